"""What the commands share: options, the engine that does the work, and how they tell what they found.

Invariant: stdout holds the answer, or with --json one JSON object and nothing else; progress and warnings go to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from sparkreplay.engine.engine import Engine, LocalEngine, SparkEngine, Work
from sparkreplay.engine.progress import progress
from sparkreplay.errors import OptionError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import ReadPlan, SourcePlan, plan_read
from sparkreplay.records.walk import Stretch

Command = Callable[..., None]


def running_options(command: Command) -> Command:
    """Where the work is done and how it is told."""
    for option in (
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="Processes of the local engine.  [default: one a core, where that pays]",
        ),
        click.option(
            "--master", default="local[2]", show_default=True, help="Spark master, with --engine spark."
        ),
        click.option(
            "--engine",
            type=click.Choice(["local", "spark"]),
            default="local",
            show_default=True,
            help="local needs no Java.",
        ),
    ):
        command = option(command)
    return command


def reading_options(command: Command) -> Command:
    """What is read."""
    for option in (
        click.option(
            "-o",
            "--option",
            "others",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any option of the data source, for example -o queues=0,1.",
        ),
        click.option("--split", metavar="SIZE", help="Size of a unit of work, for example 64m."),
        click.option("--crc", is_flag=True, help="Check the CRC of every body."),
        click.option("--end", metavar="OFFSET", help="Where to end.  [default: the committed bound]"),
        click.option("--start", metavar="OFFSET", help="Where to begin.  [default: earliest]"),
        click.option("--topic", metavar="NAMES", help="Only these topics, separated by commas."),
    ):
        command = option(command)
    return command


stores_argument = click.argument("stores", nargs=-1, required=True, metavar="STORE...")


def options_of(
    stores: Sequence[str],
    topic: str | None,
    start: str | None,
    end: str | None,
    crc: bool,
    split: str | None,
    others: Sequence[str],
) -> dict[str, str]:
    """Options of the data source, as given; raises OptionError for what is given twice."""
    given = {
        "path": json.dumps(list(stores)),
        "topic": topic,
        "startingOffsets": start,
        "endingOffsets": end,
        "crc": "true" if crc else None,
        "splitBytes": split,
    }
    options = {name: value for name, value in given.items() if value is not None}
    taken = {name.lower() for name in options}
    for other in others:
        name, separator, value = other.partition("=")
        if not separator or not name:
            raise OptionError("--option", f"{other!r} is not NAME=VALUE")
        if name.lower() in taken:
            raise OptionError("--option", f"{name} is given twice")
        taken.add(name.lower())
        options[name] = value
    return options


def planned(options: dict[str, str], **fixed: str) -> ReadPlan:
    """The plan of a read with `fixed` besides; what a command fixes cannot be given."""
    for name in fixed:
        if name.lower() in {given.lower() for given in options}:
            raise OptionError("--option", f"{name} is not for this command")
    return plan_read(read_options({**options, **fixed}))


@contextmanager
def engine_of(engine: str, master: str, workers: int | None) -> Iterator[Engine]:
    made: Engine = SparkEngine(master) if engine == "spark" else LocalEngine(workers)
    try:
        yield made
    finally:
        made.close()


def run_stretches(
    engine: Engine,
    what: str,
    stretches: Sequence[Stretch],
    work: Work,
    done: Callable[[int, Any], int],
    *,
    quiet: bool,
    numbers: Sequence[int] | None = None,
) -> None:
    """`done(number, result)` takes each result and returns the rows that it stands for."""
    chosen = list(range(len(stretches)) if numbers is None else numbers)
    with progress(what, sum(size_of(stretches[number]) for number in chosen), quiet=quiet) as shown:
        engine.run(
            work,
            chosen,
            lambda number, result: shown.advance(size_of(stretches[number]), done(number, result)),
        )


def size_of(stretch: Stretch) -> int:
    return stretch.end - stretch.start


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, default=str))


def describe(source: SourcePlan) -> dict[str, Any]:
    store = source.store
    return {
        "store": store.root,
        "broker_name": store.broker_name,
        "segments": len(store.segments),
        "segment_bytes": store.segments[0].size_bytes if store.segments else 0,
        "epochs": [list(entry) for entry in store.epochs],
        "committed_bound": store.bound,
        "bound_source": store.bound_source,
        "bound_note": store.bound_note,
        "contract": store.contract,
        "start_offset": source.start,
        "end_offset": source.end,
    }


def print_source(source: SourcePlan) -> None:
    store = source.store
    epochs = ", ".join(f"{epoch} from {start}" for epoch, start in store.epochs)
    print(f"store      {store.root}  (broker set {store.broker_name})")
    print(f"segments   {len(store.segments)}")
    print(f"epochs     {epochs}")
    print(f"committed  up to {store.bound}, as told by: {store.bound_source}")
    if store.bound_note:
        print(f"           {store.bound_note}")
    if store.contract:
        print("           this store ran contract A: rows may be taken back by a failover")
    print(f"read       [{source.start}, {source.end})")


def warn(text: str) -> None:
    print(f"mqreplay: {text}", file=sys.stderr)
