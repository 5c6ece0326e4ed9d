"""mqreplay verify: checks replicas, and compares them."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any

import click

from sparkreplay.check.compare import CompareJob, CompareReport, compare_stretch, comparison
from sparkreplay.check.findings import Findings
from sparkreplay.check.queuecheck import check_strays, join
from sparkreplay.check.verify import (
    StretchReport,
    VerifyJob,
    check_small_files,
    has_queues,
    verify_stretch,
    whole_segments,
)
from sparkreplay.commands.shared import (
    engine_of,
    print_json,
    printable,
    run_stretches,
    running_options,
    stores_argument,
)
from sparkreplay.engine.engine import Engine
from sparkreplay.engine.progress import size_text
from sparkreplay.errors import OptionError, ReplayError
from sparkreplay.read.abovebound import records_above
from sparkreplay.store.logs import log_min_now
from sparkreplay.store.snapshot import StoreSnapshot, check_epochs, open_store


@click.command()
@stores_argument
@click.option("--compare-only", is_flag=True, help="Only compare replicas; do not check each against itself.")
@click.option("--record-crc", is_flag=True, help="Also check the CRCs of whole records, if present.")
@running_options
def command(
    stores: tuple[str, ...],
    compare_only: bool,
    record_crc: bool,
    engine: str,
    master: str,
    spark_conf: dict[str, str],
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Checks every record up to the committed bound: lengths, places, CRCs, queue offsets, consume queue entries; and the
    checkpoint, epoch and index files. Several replicas of one broker set are also compared byte for byte.

    Continues after a fault. Exit code 1 if there is any."""
    if len(set(map(os.path.realpath, stores))) < len(stores):
        raise OptionError("STORE", "one store is named twice; name each store once")
    findings = Findings()
    opened = [store for path in stores if (store := opened_store(path, findings)) is not None]
    pairs = replicas_among(opened)
    if compare_only and not pairs and not findings.count:
        raise OptionError("--compare-only", "there are no two stores of one broker set to compare")
    quiet = quiet or as_json
    checked: list[dict[str, Any]] = []
    with engine_of(engine, master, workers, spark_conf) as workplace:
        if not compare_only and opened:
            checked = verify(opened, workplace, findings, record_crcs=record_crc, quiet=quiet)
        compared = [compare(one, other, workplace, findings, quiet=quiet) for one, other in pairs]
    for store in opened:
        try:
            check_epochs(store)
        except ReplayError as error:
            findings.add("epochs", store.root, None, str(error).removeprefix(f"{store.root}: "))
    if as_json:
        print_json(
            {
                "stores": checked,
                "compared": compared,
                "findings": [asdict(finding) for finding in findings.kept],
                "findings_count": findings.count,
            }
        )
    else:
        print_result(checked, compared, alone(opened, pairs), findings)
    if findings.count:
        raise click.exceptions.Exit(1)


def opened_store(path: str, findings: Findings) -> StoreSnapshot | None:
    try:
        return open_store(path, allow_uncommitted=True)
    except ReplayError as error:
        findings.add("store", path, None, str(error).removeprefix(f"{path}: "))
        return None


def verify(
    stores: list[StoreSnapshot], engine: Engine, findings: Findings, *, record_crcs: bool, quiet: bool
) -> list[dict[str, Any]]:
    """Check the stores. The result has one row for each store."""
    stretches = tuple(
        stretch for number, store in enumerate(stores) for stretch in whole_segments(store, number)
    )
    reports: dict[int, StretchReport] = {}

    def take(number: int, report: StretchReport) -> int:
        reports[number] = report
        return report.records

    work = partial(verify_stretch, VerifyJob(tuple(stores), stretches, record_crcs))
    run_stretches(engine, "verify", stretches, work, take, quiet=quiet)
    rows = []
    for number, store in enumerate(stores):
        every = [(stretch, reports[at]) for at, stretch in enumerate(stretches) if stretch.source == number]
        log_min = max(store.min_offset, log_min_now(store.files))  # retention deletes the beginning
        there = [(stretch, report) for stretch, report in every if stretch.start >= log_min]
        for stretch, report in there:
            findings.extend(report.findings.kept, report.findings.count)
            if report.gone:
                findings.add(
                    "log", stretch.segment.path, stretch.start, "was deleted while others before it are there"
                )
        own = [report for _, report in there]
        queues = join((report.queues for report in own), findings)
        if has_queues(store):
            check_strays(store.files, queues, log_min, store.bound, findings)
        check_small_files(store, findings)
        above = records_above(store)
        if above is not None and above.is_stale:
            findings.add("bound", store.root, above.start, above.why)
        rows.append(
            {
                "store": store.root,
                "broker_name": store.broker_name,
                "start_offset": log_min,
                "segments_deleted_meanwhile": len(every) - len(there),
                "committed_bound": store.bound,
                "bound_source": store.bound_source,
                "bytes_above_bound": 0 if above is None else above.end - above.start,
                "records": sum(report.records for report in own),
                "bytes": sum(report.bytes for report in own),
                "queues": len(queues),
                "consume_queues_checked": has_queues(store),
            }
        )
    return rows


def deleted(segments: int) -> str:
    """The note on segments that retention deleted during the check."""
    return f"; {counted(segments, 'segment')} deleted meanwhile" if segments else ""


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def replicas_among(stores: list[StoreSnapshot]) -> list[tuple[StoreSnapshot, StoreSnapshot]]:
    """The pairs to compare: the first replica of each broker set with each other replica of the set."""
    pairs = []
    for _, replicas in groupby(sorted(stores, key=set_of), key=set_of):
        first, *others = replicas
        pairs += [(first, other) for other in others]
    return pairs


def set_of(store: StoreSnapshot) -> tuple[str, str]:
    return store.cluster_name, store.broker_name


def compare(
    one: StoreSnapshot, other: StoreSnapshot, engine: Engine, findings: Findings, *, quiet: bool
) -> dict[str, Any]:
    job: CompareJob = comparison(one, other, findings)
    compared = gone = 0

    def take(_: int, report: CompareReport) -> int:
        nonlocal compared, gone
        compared += report.bytes
        gone += report.gone
        findings.extend(report.findings.kept, report.findings.count)
        return 0

    run_stretches(engine, "compare", job.stretches, partial(compare_stretch, job), take, quiet=quiet)
    return {
        "one": one.root,
        "other": other.root,
        "start_offset": job.stretches[0].start if job.stretches else one.bound,
        "end_offset": job.stretches[-1].end if job.stretches else one.bound,
        "bytes": compared,
        "segments_deleted_meanwhile": gone,
    }


def alone(
    stores: list[StoreSnapshot], pairs: list[tuple[StoreSnapshot, StoreSnapshot]]
) -> list[StoreSnapshot]:
    """The stores, if several were given, that have no other replica among them."""
    compared = {store.root for pair in pairs for store in pair}
    return [store for store in stores if store.root not in compared] if len(stores) > 1 else []


def print_result(
    checked: list[dict[str, Any]],
    compared: list[dict[str, Any]],
    not_compared: list[StoreSnapshot],
    findings: Findings,
) -> None:
    for row in checked:
        print(
            f"{row['store']} (broker set {row['broker_name']}): {row['records']:,} records, "
            f"{size_text(row['bytes'])} in [{row['start_offset']}, {row['committed_bound']}), {row['queues']} queues"
            + ("" if row["consume_queues_checked"] else "; it has no consume queues to check")
            + (f"; {size_text(row['bytes_above_bound'])} above it" if row["bytes_above_bound"] else "")
            + deleted(row["segments_deleted_meanwhile"])
        )
    for row in compared:
        print(
            f"compared {row['one']} with {row['other']}: {size_text(row['bytes'])} "
            f"in [{row['start_offset']}, {row['end_offset']}){deleted(row['segments_deleted_meanwhile'])}"
        )
    for store in not_compared:
        print(f"not compared: {store.root} is the only one of broker set {store.broker_name}")
    for finding in findings.kept:
        print(printable(str(finding)))
    if findings.count > len(findings.kept):
        print(f"... and {findings.count - len(findings.kept):,} more")
    print(counted(findings.count, "finding") if findings.count else "nothing is wrong")
