"""`scripts/drill`: drills from the command line, with a verdict and an exit code.

Invariant: exit 0 only if every drill ended on a whole cluster and every promise to the client was kept.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from localcluster.cli import unusable
from localcluster.cluster import Cluster, ClusterError
from localcluster.drill import DrillReport, Kind, run_drills
from localcluster.layout import LayoutError
from localcluster.ports import PortsTaken
from localcluster.processes import BooksDamaged
from localcluster.waiting import WaitExpired
from mqadmin.errors import AdminError
from mqclient.errors import ClientError
from mqruntime.clock import SystemClock

FAULT_LINES_MAX = 20


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("kind", type=click.Choice([kind.value for kind in Kind]))
@click.option("--count", default=1, show_default=True, type=click.IntRange(1), help="How many drills.")
@click.option("--seed", default=1, show_default=True, help="Decides bodies, pauses and who is elected.")
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="A running cluster; else a new one is made."
)
@click.option("--controllers", default=3, show_default=True, help="Of a new cluster.")
@click.option("--brokers", default=3, show_default=True, help="Of a new cluster.")
@click.option(
    "--interval-ms", default=5, show_default=True, type=click.IntRange(0), help="Between two sends."
)
@click.option("--keep", is_flag=True, help="Leave a new cluster's directory behind.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the whole report there.")
def drill(
    kind: str,
    count: int,
    seed: int,
    directory: Path | None,
    controllers: int,
    brokers: int,
    interval_ms: int,
    keep: bool,
    json_file: Path | None,
) -> None:
    """Kills, ends, pauses or replaces the master under load and says what the client lost.

    \b
    kill   SIGKILL to the master; it is started again before the next drill
    term   SIGTERM to the master; likewise
    pause  SIGSTOP to the master until another one acknowledges
    elect  electMaster to another member of the SyncStateSet
    """
    try:
        if json_file is not None:
            json_file.touch()  # not to learn after minutes that nothing can be written there
        if directory is not None:
            report = _on(Cluster.open(directory), kind, count, seed, interval_ms)
        else:
            report = _on_new_cluster(controllers, brokers, keep, kind, count, seed, interval_ms)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (
        ClusterError,
        LayoutError,
        PortsTaken,
        BooksDamaged,
        WaitExpired,
        AdminError,
        ClientError,
    ) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(unusable(error)) from error
    for line in summary(report):
        click.echo(line)
    if json_file is not None:
        json_file.write_text(json.dumps(asdict(report), indent=1) + "\n")
    if not report.passed:
        raise SystemExit(1)


def _on(cluster: Cluster, kind: str, count: int, seed: int, interval_ms: int) -> DrillReport:
    topic = f"Drill_{seed}_{SystemClock().now_ms()}"
    return asyncio.run(
        run_drills(
            cluster,
            Kind(kind),
            count,
            seed=seed,
            topic=topic,
            say=lambda line: click.echo(line),
            interval_ms=interval_ms,
        )
    )


def _on_new_cluster(
    controllers: int, brokers: int, keep: bool, kind: str, count: int, seed: int, interval_ms: int
) -> DrillReport:
    directory = Path(tempfile.mkdtemp(prefix="autoswitch-mq-drill-"))
    click.echo(f"new cluster in {directory}")
    report: DrillReport | None = None
    cluster = Cluster.create(directory, controllers=controllers, brokers=brokers)
    try:
        cluster.start()
        report = _on(cluster, kind, count, seed, interval_ms)
        return report
    finally:
        passed = report is not None and report.passed
        cluster.down(remove=passed and not keep)
        if keep or not passed:
            click.echo(f"logs and data are in {directory}")


def summary(report: DrillReport) -> list[str]:
    """The lines that end a run: outages, what was sent and read, every fault."""
    lines: list[str] = []
    outages = [result.outage_ms for result in report.drills if result.outage_ms is not None]
    if outages:
        lines.append(
            f"client outage of {len(outages)} drills: min {min(outages)}, "
            f"median {round(statistics.median(outages))}, max {max(outages)} ms"
        )
    verdict = report.verdict
    if verdict is not None:
        lines.append(
            f"acknowledged {verdict.acknowledged} · lost {len(verdict.lost)} · changed {len(verdict.changed)} · "
            f"moved {len(verdict.moved)} · duplicated {len(verdict.duplicated)} · "
            f"unknown outcome {verdict.unknown} ({verdict.unknown_present} present) · "
            f"refused {verdict.refused} ({len(verdict.refused_present)} present) · read {verdict.read}"
        )
        lines += verdict.faults[:FAULT_LINES_MAX]
        if len(verdict.faults) > FAULT_LINES_MAX:
            lines.append(f"... and {len(verdict.faults) - FAULT_LINES_MAX} more")
    if report.failure is not None:
        lines.append(f"not all drills were done: {report.failure}")
    return lines


if __name__ == "__main__":
    drill(prog_name="drill")
