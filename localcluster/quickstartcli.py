"""`scripts/quickstart`: the quickstart from the command line.

Invariant: the exit code is 0 only if every comparison succeeded. Whatever happens, Ctrl-C included, every started process is
ended and the data is removed, unless `--keep` is given."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click

from dledger.raft.membership import peer_list
from localcluster.cli import mode_option, secure_option
from localcluster.cluster import Cluster, ClusterError
from localcluster.drill import DrillFailed
from localcluster.layout import BROKER_SET, CLUSTER_NAME, Layout, LayoutError, Mode
from localcluster.narrator import Narrator
from localcluster.ports import PortsTaken
from localcluster.quickstart import ComparisonFailed, Quickstart
from localcluster.secured import environment_of
from localcluster.waiting import WaitExpired
from mqadmin.errors import AdminError
from mqclient.errors import ClientError
from mqruntime.certificates import CannotIssue
from mqruntime.clock import SystemClock

DISK_BYTES_MIN = 2 << 30


def check_disk(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < DISK_BYTES_MIN:
        raise ClusterError(
            f"{directory} has {free >> 20} MiB free, {DISK_BYTES_MIN >> 20} MiB are needed; "
            "free some, or set TMPDIR to a larger disk"
        )


def invitations(cluster: Cluster) -> list[str]:
    """Some ten commands worth trying on a cluster that stays up."""
    layout = cluster.layout
    directory = f"'{cluster.directory}'"
    store = layout.properties(layout.broker_names[0])["storePathRootDir"]
    return [
        *(f"export {name}='{value}'" for name, value in environment_of(layout).items()),
        f"scripts/cluster status --dir {directory}",
        *(_of_members(layout) if layout.in_raft_mode else _of_controllers(layout)),
        f"mqadmin getBrokerEpoch -n {layout.namesrv} -b {BROKER_SET}",
        f"mqadmin haStatus -n {layout.namesrv} -c {CLUSTER_NAME}",
        f"mqadmin clusterList -n {layout.namesrv}",
        f"scripts/drill kill --count 3 --dir {directory}",
        f"mqreplay scan '{store}'",
        f"scripts/cluster down --dir {directory} --remove",
    ]


def _of_controllers(layout: Layout) -> list[str]:
    controllers = f"'{layout.controller_list}'"
    return [
        f"mqadmin getSyncStateSet -a {controllers} -b {BROKER_SET}",
        f"mqadmin getControllerMetaData -a {layout.address(layout.controller_names[0])}",
        f"mqadmin electMaster -a {controllers} -b 1 -bn {BROKER_SET} -c {CLUSTER_NAME}",
    ]


def _of_members(layout: Layout) -> list[str]:
    group = f"--group {BROKER_SET} --peers '{peer_list(layout.members)}'"
    return [f"python -m dledger {command} {group}" for command in ("status", "members", "transfer")]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--keep", is_flag=True, help="Leave the cluster up at the end.")
@click.option("--messages", default=10_000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True)
@mode_option
@secure_option
def main(keep: bool, messages: int, seed: int, mode: str, secure: bool) -> None:
    """Shows a cluster that fails over, and Spark reading what it committed."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # clean up after a closed terminal as after Ctrl-C
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    logging.getLogger().addHandler(logging.NullHandler())  # the narrator reports to the user
    narrator = Narrator()
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    directory = Path(tempfile.mkdtemp(prefix="autoswitch-mq-"))
    run = Quickstart(directory, messages, seed, narrator)
    cluster: Cluster | None = None
    whole = False
    try:
        narrator.step(1, "This machine")
        check_disk(directory)
        narrator.line(f"Python {sys.version.split()[0]} in {sys.prefix}; data in {directory}")
        narrator.line(f"Spark: {run.spark_missing or 'will run'}")
        cluster = Cluster.create(directory / "cluster", mode=Mode(mode), secure=secure)
        if secure:
            os.environ.update(environment_of(cluster.layout))  # for mqadmin and other children
            narrator.line(
                "all connections use TLS, with certificates at both ends, and all requests are signed"
            )
        run.directory = cluster.directory
        asyncio.run(run.run(cluster))
        run.summarize((clock.monotonic_ms() - started_ms) / 1000)
        whole = True
    except KeyboardInterrupt:
        narrator.bad("interrupted; cleaning up")
        sys.exit(130)
    except (
        ComparisonFailed, ClusterError, LayoutError, PortsTaken, WaitExpired, DrillFailed, AdminError, ClientError,
        CannotIssue, OSError,
    ) as error:  # fmt: skip
        narrator.bad(f"{type(error).__name__}: {error}")
        sys.exit(1)
    finally:
        finish(narrator, cluster, directory, keep=keep, whole=whole)


def finish(narrator: Narrator, cluster: Cluster | None, directory: Path, *, keep: bool, whole: bool) -> None:
    """End every process and remove the data. With `keep`, keep both and show how to use them."""
    if keep and whole and cluster is not None:
        narrator.line(f"the cluster stays up in {cluster.directory}; try:")
        for command in invitations(cluster):
            narrator.console.print(f"   {command}", soft_wrap=True, markup=False)
        return
    if cluster is not None:
        cluster.down(remove=not keep)
    if keep:
        narrator.line(f"data and logs are in {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
        narrator.line("all processes are stopped, all data is removed")


if __name__ == "__main__":
    main()
