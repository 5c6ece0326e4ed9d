"""Shared by the commands: options, the engine, and output.

Invariant: stdout holds only the result or, with --json, one JSON object. Progress and warnings go to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from sparkreplay.engine.engine import Engine, LocalEngine, SparkEngine, Work, missing_for_spark, reason_of
from sparkreplay.engine.progress import progress
from sparkreplay.errors import EngineFailed, OptionError, ReplayError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import ReadPlan, SourcePlan, plan_read
from sparkreplay.records.walk import Stretch
from sparkreplay.store.classic import NO_EPOCHS
from sparkreplay.stream.request import refuse_for_batch

Command = Callable[..., None]
MASTER = "local[2]"
BOUNDS = {
    "given": "given with --end",
    "latest": "the end of the log: a failover may take back records above the committed bound",
}
"""Descriptions of bounds other than the committed one."""


def running_options(command: Command) -> Command:
    """Options for the engine and the output."""
    return in_processes("Processes of the local engine.  [default: one a core, where that pays]")(command)


def in_processes(workers: str, *, in_spark_too: bool = False) -> Callable[[Command], Command]:
    """Like `running_options`, with this help for `--workers`. `in_spark_too`: whether that option applies to Spark's
    workers."""
    every = (
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option(
            "--workers",
            type=click.IntRange(1),
            help=workers,
            callback=None if in_spark_too else local_only,
        ),
        click.option(
            "--master", help=f"Spark master, with --engine spark.  [default: {MASTER}]", callback=spark_only
        ),
        click.option(
            "--conf",
            "spark_conf",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of Spark, with --engine spark, for example --conf spark.executor.memory=512m.",
            callback=spark_settings,
        ),
        click.option(
            "--engine",
            type=click.Choice(["local", "spark"]),
            default="local",
            show_default=True,
            is_eager=True,
            callback=able,
            help="local needs no Java.",
        ),
    )

    def decorate(command: Command) -> Command:
        for option in every:
            command = option(command)
        return command

    return decorate


def able(context: click.Context, option: click.Parameter, engine: str) -> str:
    """Raise EngineFailed if the engine cannot start, before anything is made that only Spark could continue."""
    if engine == "spark" and (missing := missing_for_spark()):
        raise EngineFailed(f"Spark cannot run: {missing}; or use --engine local")
    return engine


def local_only(context: click.Context, option: click.Parameter, workers: int | None) -> int | None:
    if workers is not None and context.params["engine"] == "spark":
        raise OptionError(
            "--workers", "is for --engine local; say how many in --master, for example local[4]"
        )
    return workers


def spark_only(context: click.Context, option: click.Parameter, master: str | None) -> str:
    if master is not None and context.params["engine"] == "local":
        raise OptionError("--master", "is for --engine spark; give both")
    return master or MASTER


def spark_settings(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Spark's settings by name. Raises OptionError for a text that is no setting, a repeated setting, or a setting that has
    its own option."""
    settings: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if context.params["engine"] == "local":
            raise OptionError("--conf", "is for --engine spark; give both")
        if not separator or not name.startswith("spark."):
            raise OptionError("--conf", f"{text!r} is not KEY=VALUE with a KEY that begins with spark.")
        if name == "spark.master":
            raise OptionError("--conf", "spark.master has an option of its own, --master")
        if name in settings:
            raise OptionError("--conf", f"{name} is given twice")
        settings[name] = value
    return settings


def reading_options(command: Command) -> Command:
    """Options that select what to read."""
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
    """The given options of the data source. Raises OptionError for a repeated option, and for an option that only streams
    have."""
    if not all(stores):
        raise OptionError("STORE", "is empty; name a broker's storePathRootDir")
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
    refuse_for_batch(options)
    return options


def local_place(option: str, path: str) -> str:
    """Return `path`. Raises OptionError if it cannot be written because it is empty or a URI."""
    if not path:
        raise OptionError(option, "is empty; name a file or folder")
    if "://" in path:
        raise OptionError(
            option, f"{path} is a URI, and only stores are read through one; name a local or mounted place"
        )
    return path


def require_file_place(option: str, path: str) -> None:
    """Raise OptionError if the file cannot be written, before the work begins instead of after it."""
    folder = os.path.dirname(os.path.abspath(local_place(option, path)))
    if os.path.isdir(path):
        raise OptionError(option, f"{path} is a folder; name a file")
    if os.path.exists(path) and not os.path.isfile(path):  # replacing would destroy it, for example /dev/null
        raise OptionError(option, f"{path} is no plain file; name one, or a new one")
    if not os.path.isdir(folder):
        raise OptionError(
            option, f"{path} would lie in {folder}, which is no folder; name a file in one that is"
        )


def planned(options: dict[str, str], **fixed: str) -> ReadPlan:
    """The plan of a read. The command itself sets the options `fixed`, so the user cannot give them."""
    for name in fixed:
        if name.lower() in {given.lower() for given in options}:
            raise OptionError("--option", f"{name} is not for this command")
    return plan_read(read_options({**options, **fixed}))


@contextmanager
def engine_of(engine: str, master: str, workers: int | None, spark_conf: dict[str, str]) -> Iterator[Engine]:
    made: Engine = spark_engine(master, spark_conf) if engine == "spark" else LocalEngine(workers)
    try:
        yield made
    finally:
        made.close()


def spark_engine(master: str, spark_conf: dict[str, str]) -> SparkEngine:
    """The engine with Spark. Raises EngineFailed if Spark cannot start, because there is no suitable Java or the master is
    unreachable."""
    try:
        return SparkEngine(master, spark_conf, warn)
    except ReplayError:
        raise
    except Exception as error:  # errors of PySpark and py4j share no base
        raise EngineFailed(
            f"Spark did not start ({reason_of(error).strip(' :.')}), see its own messages above; check --master {master} and "
            "Java, 17 or newer, which it finds by JAVA_HOME or the PATH"
        ) from error


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
    """Run the work on all stretches. `done(number, result)` takes each result and returns the result's number of rows."""
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
        "committed_bound": store.bound if store.committed is None else store.committed,
        "bound": store.bound,
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
    print(f"epochs     {'none' if store.epochs == NO_EPOCHS else epochs}")
    if store.committed is None:
        print(f"committed  up to {store.bound}, according to: {store.bound_source}")
    else:
        print(f"bound      {store.bound}, {BOUNDS[store.bound_source]}")
    if store.bound_note:
        print(f"           {store.bound_note}")
    if store.contract:
        print("           this store ran contract A: rows may be taken back by a failover")
    print(f"read       [{source.start}, {source.end})")


def warn(text: str) -> None:
    print(f"mqreplay: {printable(text)}", file=sys.stderr)


def printable(text: str) -> str:
    """The text on one line, without control characters, because clients choose the names in a log."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
