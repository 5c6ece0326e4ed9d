"""A cluster of which any server may be Apache RocketMQ 5.3.3's, and be exchanged for ours on its own store, and back.

Invariant: a server's properties file is the same whoever reads it; only processes that the cluster started are signalled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from localcluster.cluster import Cluster
from localcluster.layout import Layout
from tests.interop.javapeer import broker_missing, controller_missing, namesrv_missing
from tests.interop.javaserver import NO_SPIN
from tests.waits import NOBODY_IS_LATE

JAVA = "tests.interop.javaserver"
SEGMENT_BYTES = 1 << 20
CONTRACTS = {
    "B": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "1"},
    "C": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"},
}
"""Of docs/operations.md."""
FOR_JAVA = {
    "registerNameServerPeriod": "10000",  # a slave learns from the answer where its new master's log is
    "timerWheelEnable": "false",
    **NO_SPIN,
    "enablePropertyFilter": "true",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "waitTimeMillsInSendQueue": "2000",  # by default it refuses what waited 200 ms, as on a busy machine everything does
    "sendMessageThreadPoolNums": "2",
}


@dataclass(frozen=True, slots=True)
class FleetLayout(Layout):
    """A layout that says which of its processes are Java's."""

    java: frozenset[str] = frozenset()

    def module(self, name: str) -> str:
        return JAVA if name in self.java else Layout.module(self, name)


class Fleet(Cluster):
    """Not started by `made`."""

    layout: FleetLayout

    @classmethod
    def made(
        cls,
        directory: Path,
        *,
        java: Iterable[str],
        controllers: int = 1,
        brokers: int = 2,
        contract: str = "C",
        **settings: str,
    ) -> Self:
        """`java` are the processes that begin as Java's; `settings` are of all brokers."""
        made = cls.create(
            directory,
            controllers=controllers,
            brokers=brokers,
            segment_bytes=SEGMENT_BYTES,
            broker_settings={**FOR_JAVA, **NOBODY_IS_LATE, **CONTRACTS[contract], **settings},
        )
        laid = {field.name: getattr(made.layout, field.name) for field in fields(Layout)}
        made.layout = FleetLayout(**laid, java=frozenset(java))
        return made

    def become(self, names: Iterable[str], *, java: bool) -> None:
        """Who they are at their next start."""
        named = frozenset(names)
        now = self.layout.java | named if java else self.layout.java - named
        self.layout = replace(self.layout, java=now)

    def store(self, number: int) -> Path:
        return self.directory / f"broker-{number}"


def fleet_missing() -> str | None:
    """Why no Java servers can run here."""
    return broker_missing() or controller_missing() or namesrv_missing()
