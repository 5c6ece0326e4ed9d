"""mqreplay stats: statistics of senders, times and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from sparkreplay.commands.shared import (
    describe,
    engine_of,
    options_of,
    planned,
    print_json,
    print_source,
    printable,
    reading_options,
    require_file_place,
    run_stretches,
    running_options,
    stores_argument,
)
from sparkreplay.durable import replace_durably
from sparkreplay.engine.progress import size_text
from sparkreplay.read.reader import ReadPlan
from sparkreplay.summary.picture import Name, page
from sparkreplay.summary.sizes import OTHER, Sizes, summaries, without_sub
from sparkreplay.summary.stats import (
    COLUMNS,
    DIMENSIONS,
    Parts,
    merge_parts,
    queue_of,
    rows_in,
    stats_stretch,
)

Table = tuple[str, Sequence[Sizes], Name]


@click.command()
@stores_argument
@click.option("--html", "html_path", metavar="FILE", help="Also draw it as one HTML page.")
@click.option(
    "--top", default=20, show_default=True, type=click.IntRange(1), help="Rows shown of each table."
)
@reading_options
@running_options
def command(
    stores: tuple[str, ...],
    html_path: str | None,
    top: int,
    engine: str,
    master: str,
    spark_conf: dict[str, str],
    workers: int | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Messages, bytes and sizes of records by topic, queue, producer and hour (UTC, of the time stored).

    A producer is its group if a message names one (transactional ones do), else the address that it came from."""
    if html_path is not None:
        require_file_place("--html", html_path)
    read = planned(options_of(stores, **given), columns=",".join(COLUMNS))
    found: Parts = merge_parts([])
    waiting: dict[int, Parts] = {}
    merged = 0

    def add(number: int, part: Parts) -> int:
        """Merge the parts in the log's order, so that the result does not depend on the order of workers."""
        nonlocal found, merged
        waiting[number] = part
        while merged in waiting:
            found = merge_parts([found, waiting.pop(merged)])
            merged += 1
        return rows_in(part)

    with engine_of(engine, master, workers, spark_conf) as workplace:
        run_stretches(
            workplace, "stats", read.stretches, partial(stats_stretch, read), add, quiet=quiet or as_json
        )
    sizes = {name: summaries(found[name]) for name in DIMENSIONS}
    sizes["topic"] = summaries(without_sub(found["queue"]))
    brokers = [source.store.broker_name for source in read.sources]
    if html_path is not None:
        drawn = page(title_of(read), facts_of(read, sizes["hour"]), tables_of(sizes, brokers))
        replace_durably(Path(html_path), drawn.encode())
    if as_json:
        print_json(
            {
                "stores": [describe(source) for source in read.sources],
                "messages": rows_in(found),
                **{
                    f"{name}s": [shown(name, row, brokers) for row in sizes[name]]
                    for name in ("topic", *DIMENSIONS)
                },
            }
        )
        return
    for source in read.sources:
        print_source(source)
    for table in tables_of(sizes, brokers):
        print_table(*table, top)
    if html_path is not None:
        print(f"\ndrawn in {html_path}")


def tables_of(sizes: dict[str, list[Sizes]], brokers: list[str]) -> list[Table]:
    """The tables: rows are ordered by size, the largest first, but hours by time."""

    def queue(row: Sizes) -> str:
        source, queue_id = queue_of(row.sub)
        name = f"{row.key}/{queue_id}" if row.key != OTHER else OTHER
        return f"{brokers[source]}: {name}" if len(brokers) > 1 and row.key != OTHER else name

    def largest(name: str) -> list[Sizes]:
        return sorted(sizes[name], key=lambda row: (-row.bytes, row.key, row.sub))

    return [
        ("Topics", largest("topic"), lambda row: row.key),
        ("Queues", largest("queue"), queue),
        ("Producers", largest("producer"), lambda row: row.key),
        ("Hours", sizes["hour"], lambda row: row.key.replace("T", " ")),
    ]


def shown(dimension: str, row: Sizes, brokers: list[str]) -> dict[str, Any]:
    made = asdict(row)
    key, sub = made.pop("key"), made.pop("sub")
    if dimension != "queue":
        return {dimension: key, **made}
    source, queue_id = queue_of(sub)
    return {
        "broker_name": brokers[source] if key != OTHER else OTHER,
        "topic": key,
        "queue_id": queue_id,
        **made,
    }


def title_of(read: ReadPlan) -> str:
    return "Messages of " + ", ".join(sorted({source.store.broker_name for source in read.sources}))


def facts_of(read: ReadPlan, hours: Sequence[Sizes]) -> list[str]:
    total = f"{sum(row.count for row in hours):,} messages, {size_text(sum(row.bytes for row in hours))} of records"
    return [total] + [
        f"{source.store.root}: physical offsets {source.start} to {source.end}, committed up to {source.store.bound} "
        f"({source.store.bound_source})"
        for source in read.sources
    ]


def print_table(heading: str, rows: Sequence[Sizes], name: Name, top: int) -> None:
    names = [printable(name(row)) for row in rows[:top]]
    width = max([12, *map(len, names)])
    print(
        f"\n{heading:{width}} {'messages':>12} {'bytes':>16} {'least':>9} {'average':>9} {'p50':>9} {'p99':>9} {'most':>9}"
    )
    for shown_name, row in zip(names, rows, strict=False):
        print(
            f"{shown_name:{width}} {row.count:>12,} {row.bytes:>16,} {row.least:>9,} {row.average:>9,.0f} {row.p50:>9,} "
            f"{row.p99:>9,} {row.most:>9,}"
        )
    if len(rows) > top:
        print(f"and {len(rows) - top:,} more; --top or --json shows them")
