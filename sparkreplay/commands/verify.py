"""mqreplay verify: is a replica whole, and are replicas alike?"""

from __future__ import annotations

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
    run_stretches,
    running_options,
    stores_argument,
)
from sparkreplay.engine.engine import Engine
from sparkreplay.engine.progress import size_text
from sparkreplay.errors import ReplayError
from sparkreplay.store.snapshot import StoreSnapshot, check_epochs, open_store


@click.command()
@stores_argument
@click.option("--compare-only", is_flag=True, help="Only compare replicas; do not check each against itself.")
@running_options
def command(
    stores: tuple[str, ...],
    compare_only: bool,
    engine: str,
    master: str,
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Checks every record up to the committed bound: lengths, places, CRCs, queue offsets, consume queue entries; and the
    checkpoint, epoch and index files. Several replicas of one broker set are also compared byte for byte.

    Goes on behind what is wrong. Exit code 1 when anything is."""
    findings = Findings()
    opened = [store for path in stores if (store := opened_store(path, findings)) is not None]
    quiet = quiet or as_json
    checked: list[dict[str, Any]] = []
    with engine_of(engine, master, workers) as workplace:
        if not compare_only and opened:
            checked = verify(opened, workplace, findings, quiet=quiet)
        compared = [
            compare(one, other, workplace, findings, quiet=quiet) for one, other in replicas_among(opened)
        ]
    for store in opened:
        try:
            check_epochs(store)
        except ReplayError as error:
            findings.add("epochs", store.root, None, str(error))
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
        tell(checked, compared, findings)
    if findings.count:
        raise click.exceptions.Exit(1)


def opened_store(path: str, findings: Findings) -> StoreSnapshot | None:
    try:
        return open_store(path, allow_uncommitted=True)
    except ReplayError as error:
        findings.add("store", path, None, str(error))
        return None


def verify(
    stores: list[StoreSnapshot], engine: Engine, findings: Findings, *, quiet: bool
) -> list[dict[str, Any]]:
    """What was checked, a row a store."""
    stretches = tuple(
        stretch for number, store in enumerate(stores) for stretch in whole_segments(store, number)
    )
    reports: dict[int, StretchReport] = {}

    def take(number: int, report: StretchReport) -> int:
        reports[number] = report
        return report.records

    work = partial(verify_stretch, VerifyJob(tuple(stores), stretches))
    run_stretches(engine, "verify", stretches, work, take, quiet=quiet)
    rows = []
    for number, store in enumerate(stores):
        own = [reports[at] for at, stretch in enumerate(stretches) if stretch.source == number]
        for report in own:
            findings.extend(report.findings.kept, report.findings.count)
        queues = join((report.queues for report in own), findings)
        if has_queues(store):
            check_strays(store.files, queues, store.min_offset, store.bound, findings)
        check_small_files(store, findings)
        rows.append(
            {
                "store": store.root,
                "broker_name": store.broker_name,
                "start_offset": store.min_offset,
                "committed_bound": store.bound,
                "bound_source": store.bound_source,
                "records": sum(report.records for report in own),
                "bytes": sum(report.bytes for report in own),
                "queues": len(queues),
                "consume_queues_checked": has_queues(store),
            }
        )
    return rows


def replicas_among(stores: list[StoreSnapshot]) -> list[tuple[StoreSnapshot, StoreSnapshot]]:
    """The first of each broker set beside each other one."""
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
    compared = 0

    def take(_: int, report: CompareReport) -> int:
        nonlocal compared
        compared += report.bytes
        findings.extend(report.findings.kept, report.findings.count)
        return 0

    run_stretches(engine, "compare", job.stretches, partial(compare_stretch, job), take, quiet=quiet)
    return {
        "one": one.root,
        "other": other.root,
        "start_offset": job.stretches[0].start if job.stretches else one.bound,
        "end_offset": job.stretches[-1].end if job.stretches else one.bound,
        "bytes": compared,
    }


def tell(checked: list[dict[str, Any]], compared: list[dict[str, Any]], findings: Findings) -> None:
    for row in checked:
        print(
            f"{row['store']} (broker set {row['broker_name']}): {row['records']:,} records, "
            f"{size_text(row['bytes'])} in [{row['start_offset']}, {row['committed_bound']}), {row['queues']} queues"
            + ("" if row["consume_queues_checked"] else "; it has no consume queues to check")
        )
    for row in compared:
        print(
            f"compared {row['one']} with {row['other']}: {size_text(row['bytes'])} "
            f"in [{row['start_offset']}, {row['end_offset']})"
        )
    for finding in findings.kept:
        print(finding)
    if findings.count > len(findings.kept):
        print(f"... and {findings.count - len(findings.kept):,} more")
    print(f"{findings.count:,} findings" if findings.count else "nothing is wrong")
