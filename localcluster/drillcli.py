"""`scripts/drill`: drills from the command line, with a verdict and an exit code.

Invariant: the exit code is 0 only if every drill ended with a whole cluster and every promise to the client was kept.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from localcluster.cli import mode_option, secure_option, unusable
from localcluster.cluster import Cluster, ClusterError
from localcluster.drill import DrillKind, DrillReport, DrillResult, run_drills
from localcluster.layout import HOST, HOST_BEHIND_RELAY, LayoutError, Mode
from localcluster.partitions import OF_CONTROLLERS, Shape
from localcluster.ports import PortsTaken
from localcluster.processes import BooksDamaged
from localcluster.relayprocess import RelayProcess
from localcluster.transacting import QUICK_CHECKS
from localcluster.waiting import WaitExpired
from mqadmin.errors import AdminError
from mqclient.errors import ClientError
from mqruntime.certificates import CannotIssue
from mqruntime.clock import SystemClock

FAULT_LINES_MAX = 20
JAVA_DEFAULT = "java-default"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("kind", type=click.Choice([kind.value for kind in DrillKind]))
@click.option("--count", default=1, show_default=True, type=click.IntRange(1), help="How many drills.")
@click.option(
    "--seed", default=1, show_default=True, help="Decides bodies, pauses, the elected master, the cuts."
)
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="A running cluster; else a new one is made."
)
@mode_option
@secure_option
@click.option("--controllers", default=3, show_default=True, help="Of a new cluster; in Raft mode none.")
@click.option("--brokers", default=3, show_default=True, help="Of a new cluster.")
@click.option(
    "--shape",
    type=click.Choice([shape.name.lower().replace("_", "-") for shape in Shape]),
    help="Of all partitions; else all shapes in turn, in an order that the seed decides.",
)
@click.option(
    "--interval-ms", default=5, show_default=True, type=click.IntRange(0), help="Between two sends."
)
@click.option(
    "--client",
    "client",
    type=click.Choice(["quick", JAVA_DEFAULT]),
    default="quick",
    show_default=True,
    help="When the client asks for routes: after failures too, or every 30 s only.",
)
@click.option(
    "--in-order", is_flag=True, help="Readers in order read along, which lock their queues and swap them."
)
@click.option(
    "--transactions",
    is_flag=True,
    help="Also messages in transactions, some of which brokers must check.",
)
@click.option("--keep", is_flag=True, help="Leave a new cluster's directory behind.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the whole report there.")
def drill(
    kind: str,
    count: int,
    seed: int,
    directory: Path | None,
    mode: str,
    secure: bool,
    controllers: int,
    brokers: int,
    shape: str | None,
    interval_ms: int,
    client: str,
    in_order: bool,
    transactions: bool,
    keep: bool,
    json_file: Path | None,
) -> None:
    """Kills, ends, pauses, replaces or cuts off the master under load and reports losses of the client.

    \b
    kill       SIGKILL to the master; it is started again before the next drill
    term       SIGTERM to the master; likewise
    pause      SIGSTOP to the master until another one acknowledges
    elect      electMaster to another member of the SyncStateSet;
               in Raft mode a leadership transfer to a caught-up member
    partition  bytes of some processes do not reach some others, for a while;
               on a new cluster, whose processes talk through a relay

    A drill fails if an acknowledged message is lost, changed or moved, or if the set was without an acknowledging master for
    longer than 15 s while two of its members could have one among them (20 s if the master must remove an unreachable slave).
    With --in-order also if two readers had one queue at once, or a message was handled before an earlier one, or never; with
    --transactions if a committed one is not there exactly once, or a rolled back one is there.
    """
    try:
        if json_file is not None:
            json_file.touch()  # if it is not writable, fail now and not after minutes
        plan = DrillPlan(
            DrillKind(kind),
            count,
            seed,
            interval_ms,
            Shape[shape.upper().replace("-", "_")] if shape else None,
            asks_after_failures=client != JAVA_DEFAULT,
            in_order=in_order,
            in_transactions=transactions,
        )
        if directory is not None:
            if plan.kind is DrillKind.PARTITION:
                raise ClusterError(
                    "partitions need a cluster whose processes talk through a relay; leave --dir out"
                )
            report = _on(Cluster.open(directory), plan)
        elif plan.kind is DrillKind.PARTITION and brokers < 2:
            raise ClusterError("partitions are between two brokers at least; --brokers is for how many")
        elif plan.shape in OF_CONTROLLERS and mode == Mode.RAFT.value:
            raise ClusterError("there are no controllers in Raft mode; name another --shape")
        else:
            report = _on_new_cluster(Mode(mode), secure, controllers, brokers, keep, plan)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (
        ClusterError,
        LayoutError,
        CannotIssue,
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
        json_file.write_text(json.dumps(asdict(report), indent=1, default=sorted) + "\n")
    if not report.passed:
        raise SystemExit(1)


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """The drills of a run."""

    kind: DrillKind
    count: int
    seed: int
    interval_ms: int
    shape: Shape | None
    asks_after_failures: bool
    in_order: bool
    in_transactions: bool

    def broker_settings(self) -> dict[str, str]:
        """Broker settings of a new cluster."""
        forwards = {} if self.asks_after_failures else {"shutdownForwardSeconds": "35"}
        return forwards | (QUICK_CHECKS if self.in_transactions else {})


def _on(cluster: Cluster, plan: DrillPlan, relay: RelayProcess | None = None) -> DrillReport:
    topic = f"Drill_{plan.seed}_{SystemClock().now_ms()}"
    return asyncio.run(
        run_drills(
            cluster,
            plan.kind,
            plan.count,
            seed=plan.seed,
            topic=topic,
            say=lambda line: click.echo(line),
            interval_ms=plan.interval_ms,
            relay=relay,
            only=plan.shape,
            asks_after_failures=plan.asks_after_failures,
            in_order=plan.in_order,
            in_transactions=plan.in_transactions,
        )
    )


def _on_new_cluster(
    mode: Mode, secure: bool, controllers: int, brokers: int, keep: bool, plan: DrillPlan
) -> DrillReport:
    directory = Path(tempfile.mkdtemp(prefix="autoswitch-mq-drill-"))
    click.echo(f"new cluster in {directory}")
    report: DrillReport | None = None
    relayed = plan.kind is DrillKind.PARTITION
    cluster = Cluster.create(
        directory,
        controllers=controllers,
        brokers=brokers,
        bind_host=HOST_BEHIND_RELAY if relayed else HOST,
        mode=mode,
        secure=secure,
        broker_settings=plan.broker_settings(),
    )
    try:
        cluster.start()
        with RelayProcess(cluster) if relayed else nullcontext() as relay:
            report = _on(cluster, plan, relay)
        return report
    finally:
        passed = report is not None and report.passed
        cluster.down(remove=passed and not keep)
        if keep or not passed:
            click.echo(f"logs and data are in {directory}")


def summary(report: DrillReport) -> list[str]:
    """The last lines of a run: outages, messages sent and read, every fault."""
    lines = _outages("client outage of {} drills", report.drills)
    for shape in Shape:
        drills = [result for result in report.drills if result.partition and result.partition.shape is shape]
        lines += _outages(f"  {{}} x {shape}", drills)
    for limit_ms in sorted({result.unserved_ms_max for result in report.drills}):
        times = [result.unserved_ms for result in report.drills if result.unserved_ms_max == limit_ms]
        lines.append(
            f"longest time without an acknowledging master, of {len(times)} drills that allow {limit_ms} ms: {max(times)} ms"
        )
    lines += [
        f"{result.old_master}'s set was without an acknowledging master for {result.unserved_ms} ms"
        for result in report.drills
        if not result.served
    ]
    verdict = report.verdict
    if verdict is not None:
        lines.append(
            f"acknowledged {verdict.acknowledged} · lost {len(verdict.lost)} · changed {len(verdict.changed)} · "
            f"moved {len(verdict.moved)} · duplicated {len(verdict.duplicated)} · "
            f"unknown outcome {verdict.unknown} ({verdict.unknown_present} present) · "
            f"refused {verdict.refused} ({len(verdict.refused_present)} present) · read {verdict.read}"
        )
        lines += _shortened(verdict.faults)
    order = report.order
    if order is not None:
        lines.append(
            f"in order: handled {order.handled} in {order.tenures} tenures · again {order.again} · "
            f"two readers at once {len(order.at_once)} · out of order {len(order.out_of_order)} · never {len(order.never)}"
        )
        lines += _shortened(order.faults)
    ends = report.ends
    if ends is not None:
        lines.append(
            f"transactions: committed {ends.committed} · rolled back {ends.rolled_back} · half unknown {ends.unknown} · "
            f"lost {len(ends.lost)} · twice {len(ends.twice)} · there uninvited {len(ends.uninvited)} · "
            f"contradicted {len(ends.contradicted)}"
        )
        lines += _shortened(ends.faults)
    if report.failure is not None:
        lines.append(f"not all drills were done: {report.failure}")
    return lines


def _shortened(faults: list[str]) -> list[str]:
    more = len(faults) - FAULT_LINES_MAX
    return [*faults[:FAULT_LINES_MAX], *([f"... and {more} more"] if more > 0 else [])]


def _outages(title: str, drills: list[DrillResult]) -> list[str]:
    """One line, which begins with `title` and the number of drills. Without drills there is no line."""
    outages = [result.outage_ms for result in drills if result.outage_ms is not None]
    if not outages:
        return []
    median = round(statistics.median(outages))
    return [f"{title.format(len(outages))}: min {min(outages)}, median {median}, max {max(outages)} ms"]


if __name__ == "__main__":
    drill(prog_name="drill")
