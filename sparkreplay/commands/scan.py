"""mqreplay scan: shows the contents of stores."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import Any

import click
import pyarrow as pa

from sparkreplay.commands.shared import (
    describe,
    engine_of,
    options_of,
    planned,
    print_json,
    print_source,
    printable,
    reading_options,
    run_stretches,
    running_options,
    stores_argument,
    warn,
)
from sparkreplay.read.abovebound import AboveBound, records_above
from sparkreplay.summary.scan import (
    KINDS,
    MESSAGE,
    SCAN_COLUMNS,
    QueueGap,
    QueueSummary,
    gaps,
    merge,
    rows_in,
    scan_stretch,
    summaries,
)


@click.command()
@stores_argument
@reading_options
@running_options
def command(
    stores: tuple[str, ...],
    engine: str,
    master: str,
    spark_conf: dict[str, str],
    workers: int | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Segments, epochs, the committed bound, and per queue rows, bytes, offsets and times.

    Every record of the range is counted by its kind, also kinds that a read leaves out. Exit code 1 when a queue has a gap, and
    when records lie above a bound that does not follow the log."""
    options = options_of(stores, **given)
    everything = {} if "topic" in options else {"includeSystemTopics": "true"}
    read = planned(options, columns=",".join(SCAN_COLUMNS), transactions="all", index="walk", **everything)
    found = pa.table({})

    def add(_: int, part: pa.Table) -> int:
        nonlocal found
        found = merge([found, part])
        return rows_in(part)

    with engine_of(engine, master, workers, spark_conf) as workplace:
        run_stretches(
            workplace, "scan", read.stretches, partial(scan_stretch, read), add, quiet=quiet or as_json
        )
    queues = summaries(found)
    above = [one for source in read.sources if (one := records_above(source.store)) is not None]
    filtered = any(source.selection.row_filter is not None for source in read.sources)
    holes = [] if filtered else gaps(found)
    kinds: Counter[str] = Counter()
    for queue in queues:
        kinds[queue.kind] += queue.rows
    if as_json:
        print_json(
            {
                "stores": [describe(source) for source in read.sources],
                "records": {kind: kinds[kind] for kind in KINDS},
                "bytes": sum(queue.bytes for queue in queues),
                "queues": [asdict(queue) for queue in queues],
                "gaps": [asdict(hole) for hole in holes],
                "above_bound": [asdict(one) for one in above],
            }
        )
    else:
        for source in read.sources:
            print_source(source)
        print_queues(queues, kinds, with_broker=len(read.sources) > 1)
    warn_of_absent(read.sources[0].selection.topics, queues)
    report(holes, above)


def warn_of_absent(wanted: frozenset[str] | None, queues: list[QueueSummary]) -> None:
    """Warn of topics without records, because a misspelled topic looks like an empty one."""
    for topic in sorted((wanted or frozenset()) - {queue.topic for queue in queues}):
        warn(f"no record of topic {topic} was found")


def report(holes: list[QueueGap], above: list[AboveBound]) -> None:
    for what in [*holes, *above]:
        warn(str(what))
    if holes or any(one.is_stale for one in above):
        raise click.exceptions.Exit(1)


def print_queues(queues: list[QueueSummary], kinds: Counter[str], *, with_broker: bool) -> None:
    """Print the queues. If several broker sets were read, their names are included, because each set has its own queues."""
    topics = [printable(queue.topic) for queue in queues]
    width = max(map(len, topics), default=5)
    brokers = max(10, *(len(queue.broker_name) for queue in queues)) + 1 if with_broker and queues else 0

    def line(broker_name: str, topic: str, rest: str) -> str:
        return f"{broker_name:{brokers}.{brokers}}{topic:{width}} {rest}"

    numbers = f"{'rows':>12} {'bytes':>16} {'first':>10} {'last':>10}"
    print("\n" + line("broker set", "topic", f"{'queue':>5} {'kind':8} {numbers}  stored (UTC)"))
    for topic, queue in zip(topics, queues, strict=True):
        numbers = f"{queue.rows:>12,} {queue.bytes:>16,} {queue.first_offset:>10} {queue.last_offset:>10}"
        stored = f"{seconds(queue.first_stored)} to {seconds(queue.last_stored)}"
        print(line(queue.broker_name, topic, f"{queue.queue_id:>5} {queue.kind:8} {numbers}  {stored}"))
    total = sum(kinds.values())
    bytes_total = sum(queue.bytes for queue in queues)
    counts = ", ".join(f"{kinds[kind]:,} {kind}" for kind in KINDS if kinds[kind] and kind != MESSAGE)
    print(
        f"\n{total:,} records, {bytes_total:,} bytes; a read gives {kinds[MESSAGE]:,} of them"
        + (f" and leaves out {counts}" if counts else "")
    )


def seconds(time: str) -> str:
    """An ISO time as `2026-11-21 10:00:00`."""
    return time[:19].replace("T", " ")
