"""Java clients of 5.3.3 and 4.9.8 with default settings (routes each 30 s) through planned hand-overs.

`python -m scripts.bench.handover` measures the delay. Here no call may fail and no message may be lost or out
of order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import elect_another, other_members
from scripts.peers.javapeer import JARS, OLD_CLIENT_JARS, default_clients, old_client_missing
from scripts.peers.peerprocess import PeerProcess
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.interop.conftest import ASKED_SOON

pytestmark = [
    pytest.mark.skipif(old_client_missing() is not None, reason=str(old_client_missing())),
]

TOPICS = {"HandedOver": JARS, "OldHandedOver": OLD_CLIENT_JARS}
"""Each client has its own."""
SENDERS, CONSUMERS = ("retries", "once", "transactions"), ("push", "orderly", "pull")
CALM_MS = 2_000
POLLS_MS = 32_000
"""By then every client has asked for routes."""
INTERVAL_MS = 60
"""The pause between an answer and the next send: several sends in every hand-over."""
OVERRUN = "no planned hand-over", "no successor"
"""Events of a machine too busy for a hand-over within 400 ms, or a successor within 1.5 s. Clients then
notice the change."""
SEND_MS_MAX = 20_000
"""Instead of 3 s, because a machine may stop a process that long. A client that waits for its next route poll
waits longer."""


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose brokers keep running to forward requests of clients."""
    directory = tmp_path_factory.mktemp("handed") / "cluster"
    settings = {"shutdownForwardSeconds": "35", **ASKED_SOON, **NOBODY_IS_LATE}
    with Cluster.create(directory, controllers=1, broker_settings=settings) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        for topic in TOPICS:
            asyncio.run(cluster.create_topic(topic))
        yield cluster


def test_java_clients_with_default_settings_notice_no_planned_hand_over(
    handed: Cluster, tmp_path: Path
) -> None:
    with ExitStack() as opened:
        both = [
            opened.enter_context(
                default_clients(
                    jars,
                    handed.layout.namesrv,
                    topic,
                    tmp_path / topic,
                    send_timeout_ms=SEND_MS_MAX,
                    interval_ms=INTERVAL_MS,
                )
            )
            for topic, jars in TOPICS.items()
        ]
        for clients in both:
            fine(handed, clients, CALM_MS)
        state = asyncio.run(handed.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(elect_another(handed, other_members(state)[0]))
        for clients in both:
            fine(handed, clients, CALM_MS, marked=True)
        state = asyncio.run(handed.wait_whole(timeout_ms=WAIT_MS))
        master = handed.layout.name_of(state.master_address or "")
        assert master is not None
        for clients in both:
            clients.ask("mark")
        handed.kill([master], signal.SIGTERM)
        for clients in both:
            fine(handed, clients, POLLS_MS, marked=True)
        for clients in both:
            complete(clients)
        handed.stop([master])
        handed.start([master])
        asyncio.run(handed.wait_whole(timeout_ms=WAIT_MS))


def fine(cluster: Cluster, clients: PeerProcess, during_ms: int, *, marked: bool = False) -> None:
    """No client gets an error, and none waits for its next route poll."""
    if not marked:
        clients.ask("watch", 0)  # all have begun
        clients.ask("mark")
    report = clients.ask("watch", during_ms)
    assert set(report) == {*SENDERS, *CONSUMERS}
    logs = [cluster.log_file(name).read_text() for name in cluster.layout.names]
    overran = any(event in log for event in OVERRUN for log in logs)
    for role, seen in report.items():
        assert (seen["errors"], seen["error"]) == (0, "") or overran, role
        assert seen["count"] > 0


def complete(clients: PeerProcess) -> None:
    """Every consumer has each acknowledged or committed message once; orderly consumers have them in
    order."""
    report = clients.ask("drained")
    for fault in ("missing", "rolledBack", "twice"):
        assert {role: seen[fault] for role, seen in report.items()} == dict.fromkeys(CONSUMERS, 0), fault
    assert report["orderly"]["disordered"] == 0
