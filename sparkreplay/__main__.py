"""mqreplay: what a committed log holds, and its rows as Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from sparkreplay.engine import Engine, LocalEngine, SparkEngine
from sparkreplay.errors import ReplayError
from sparkreplay.export import export_stretch, prepare_target, write_manifest
from sparkreplay.options import read_options
from sparkreplay.reader import ReadPlan, SourcePlan, plan_read
from sparkreplay.scan import SCAN_COLUMNS, merge, require_gapless, scan_stretch, summaries


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every command shares."""
    for option in (
        click.option("--topic", metavar="NAMES", help="Only these topics, separated by commas."),
        click.option("--start", default="earliest", show_default=True, help="Physical offset to begin at."),
        click.option("--end", default="confirmed", show_default=True, help="Physical offset to end at."),
        click.option("--crc", is_flag=True, help="Check the CRC of every body."),
        click.option("--split", default="128m", show_default=True, help="Size of a unit of work."),
        click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True),
        click.option(
            "--master", default="local[2]", show_default=True, help="Spark master, with --engine spark."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="autoswitch-mq")
def cli() -> None:
    """Reads the committed part of a broker's commit log (STORE is its storePathRootDir)."""


@cli.command()
@click.argument("store")
@reading_options
def scan(store: str, engine: str, master: str, as_json: bool, **given: Any) -> None:
    """What is there: committed bound, epochs, and per queue rows, bytes, offsets, times."""
    read = planned(store, columns=",".join(SCAN_COLUMNS), **given)
    parts = list(engine_named(engine, master).run(partial(scan_stretch, read), len(read.stretches)))
    found = summaries(merge(parts)) if parts else []
    require_gapless(read, found)
    if as_json:
        print(json.dumps({**describe(read), "queues": [asdict(queue) for queue in found]}))
        return
    print_plan(read)
    print(f"{'topic':32} {'queue':>5} {'rows':>12} {'bytes':>16} {'first':>10} {'last':>10}  last stored")
    for queue in found:
        print(
            f"{queue.topic:32} {queue.queue_id:>5} {queue.rows:>12,} {queue.bytes:>16,} "
            f"{queue.first_offset:>10} {queue.last_offset:>10}  {queue.last_stored}"
        )
    print(f"{sum(queue.rows for queue in found):,} rows in {len(found)} queues")


@cli.command()
@click.argument("store")
@click.option("--to", "folder", required=True, metavar="DIR", help="A new or empty folder.")
@click.option(
    "--columns", default="full", show_default=True, help="full, meta, or names separated by commas."
)
@reading_options
def export(
    store: str, folder: str, columns: str, engine: str, master: str, as_json: bool, **given: Any
) -> None:
    """The rows as Parquet, with a manifest."""
    read = planned(store, columns=columns, **given)
    prepare_target(folder)
    rows = list(
        engine_named(engine, master).run(partial(export_stretch, read, folder=folder), len(read.stretches))
    )
    manifest = write_manifest(read, rows, folder)
    if as_json:
        print(json.dumps({**describe(read), "rows": sum(rows), "manifest": str(manifest)}))
        return
    print_plan(read)
    print(f"{sum(rows):,} rows in {len(rows)} parts; {manifest}")


def planned(
    store: str, *, columns: str, topic: str | None, start: str, end: str, crc: bool, split: str
) -> ReadPlan:
    options = {"path": store, "columns": columns, "startingOffsets": start, "endingOffsets": end}
    options |= {"crc": str(crc), "splitBytes": split}
    if topic is not None:
        options["topic"] = topic
    return plan_read(read_options(options))


def engine_named(name: str, master: str) -> Engine:
    return SparkEngine(master) if name == "spark" else LocalEngine()


def describe(read: ReadPlan) -> dict[str, Any]:
    return {"stores": [describe_source(source) for source in read.sources]}


def describe_source(source: SourcePlan) -> dict[str, Any]:
    store = source.store
    return {
        "store": store.root,
        "broker_name": store.broker_name,
        "segments": len(store.segments),
        "epochs": [list(entry) for entry in store.epochs],
        "committed_bound": store.bound,
        "start_offset": source.start,
        "end_offset": source.end,
    }


def print_plan(read: ReadPlan) -> None:
    for number, source in enumerate(read.sources):
        store = source.store
        epochs = ", ".join(f"{epoch} from {start}" for epoch, start in store.epochs)
        splits = sum(stretch.source == number for stretch in read.stretches)
        print(f"store {store.root} of {store.broker_name}: {len(store.segments)} segments")
        print(f"epochs {epochs}")
        print(f"reading [{source.start}, {source.end}) in {splits} splits, committed up to {store.bound}")


def main() -> None:
    try:
        cli(prog_name="mqreplay")
    except ReplayError as error:
        print(f"mqreplay: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
