"""A cluster in which any server may be one of Apache RocketMQ, 5.3.3 or 5.5.1. A server can be exchanged for ours on the same
store, and back.

Invariant: a server's properties file is the same for our server and Java's, which reads a copy with the secrets in it if it
has access control. Only processes that the cluster started are signalled."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from localcluster.cluster import WHOLE_TIMEOUT_MS, Cluster
from localcluster.layout import HOST, Layout
from localcluster.secured import admin_of, let_application_in
from localcluster.waiting import NotYet, WaitExpired, wait_for
from mqadmin.errors import AdminError
from mqadmin.replies import SyncStateInfo
from scripts.peers.javapeer import (
    NEWER,
    OLDER,
    broker_missing,
    controller_missing,
    namesrv_missing,
    newer_missing,
)
from scripts.peers.javaserver import NO_SPIN
from scripts.peers.waits import NOBODY_IS_LATE

JAVA, NEWER_JAVA = "scripts.peers.javaserver", "scripts.peers.newerjavaserver"
SEGMENT_BYTES = 1 << 20
JAVA_JOIN_MS_MAX = 100_000
"""This is a little more than ServiceThread's JOIN_TIME."""
DUMP_S = 2
JOINS = "DefaultMessageStore.truncateDirtyFiles"
"""Text in the stacks of a process that waits so long."""
CONTRACTS = {
    "B": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "1"},
    "C": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"},
}
"""The contracts of docs/operations.md."""
FOR_JAVA = {
    "registerNameServerPeriod": "10000",  # the answer names the HA address of a slave's new master
    "timerWheelEnable": "false",
    **NO_SPIN,
    "enablePropertyFilter": "true",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "waitTimeMillsInSendQueue": "2000",  # the default, 200 ms, is too short on a busy machine
    "sendMessageThreadPoolNums": "2",
}


@dataclass(frozen=True, slots=True)
class FleetLayout(Layout):
    """A layout that knows which of its processes are Java's."""

    java: frozenset[str] = frozenset()
    java_module: str = JAVA

    @property
    def java_brokers(self) -> list[str]:
        return [name for name in self.broker_names if name in self.java]

    def module(self, name: str) -> str:
        return self.java_module if name in self.java else Layout.module(self, name)


class Fleet(Cluster):
    """A fleet. `made` does not start it."""

    layout: FleetLayout
    restarts: Counter[str]
    """How often a Java process was restarted because it stayed out of the SyncStateSet."""
    stalls: Counter[str]
    """How often a Java process stayed out for longer than ours may."""

    @classmethod
    def made(
        cls,
        directory: Path,
        *,
        java: Iterable[str],
        controllers: int = 1,
        brokers: int = 2,
        contract: str = "C",
        version: str = OLDER,
        secure: bool = False,
        **settings: str,
    ) -> Self:
        """Make a fleet. `java` are the processes that begin as Java's, of `version`. `settings` are for all brokers. With
        `secure`, all requests are signed, and all connections use TLS but those of the replication stream, for which Java has
        none."""
        plain = {"tls.ha.plainHosts": HOST} if secure else {}
        made = cls.create(
            directory,
            controllers=controllers,
            brokers=brokers,
            segment_bytes=SEGMENT_BYTES,
            broker_settings={**FOR_JAVA, **NOBODY_IS_LATE, **CONTRACTS[contract], **plain, **settings},
            secure=secure,
        )
        laid = {field.name: getattr(made.layout, field.name) for field in fields(Layout)}
        made.layout = FleetLayout(
            **laid, java=frozenset(java), java_module=NEWER_JAVA if version == NEWER else JAVA
        )
        made.restarts, made.stalls = Counter(), Counter()
        return made

    async def begin(self, *, timeout_ms: int = WHOLE_TIMEOUT_MS) -> None:
        """Start all processes and wait until the fleet is whole. In a secure fleet one of our brokers leads first, because ours
        get their users from masters that are ours."""
        java_brokers = self.layout.java_brokers
        if self.layout.secure and len(java_brokers) < self.layout.brokers:
            self.start([name for name in self.layout.names if name not in java_brokers])
            await self.wait_in_sync(1, timeout_ms=timeout_ms)
        self.start()
        await self.wait_whole(timeout_ms=timeout_ms)

    async def wait_whole(self, *, timeout_ms: int = WHOLE_TIMEOUT_MS) -> SyncStateInfo:
        """Wait as for a cluster. A Java slave that stays out of the SyncStateSet logs the stacks of its threads. If all
        brokers are Java's, it is restarted and counted: if it registered before its new master, it got the former master's HA
        address and follows that master for ever. In a mixed set our broker might keep it out, so it is not restarted. Only a
        slave that truncates its log and waits for one of its own threads gets the time for that, and is counted."""
        try:
            return await super().wait_whole(timeout_ms=timeout_ms)
        except WaitExpired:
            left_out = await self._left_out()
            if not left_out or not left_out <= self.layout.java:
                raise
            stacks = await self._stacks(left_out)
            if self.layout.java.issuperset(self.layout.broker_names):
                self.kill(left_out)
                self.start(left_out)
                self.restarts.update(left_out)
                return await super().wait_whole(timeout_ms=timeout_ms)
            if not all(JOINS in each for each in stacks):
                raise
        state = await super().wait_whole(timeout_ms=JAVA_JOIN_MS_MAX)
        self.stalls.update(left_out)
        return state

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        """As for a cluster. In a secure fleet one of our brokers must be master. Nothing copies users to Java's brokers, so the
        application's user is made at each of them."""
        await super().create_topic(topic, queues)
        if not self.layout.secure:
            return
        admin = admin_of(self.layout)

        async def made() -> None:
            try:
                for name in self.layout.java_brokers:
                    await let_application_in(self.layout, admin, self.layout.address(name))
            except AdminError as error:
                raise NotYet(str(error)) from error

        try:
            await wait_for("the application's user at Java's brokers", made, WHOLE_TIMEOUT_MS)
        finally:
            await admin.close()

    async def _stacks(self, names: frozenset[str]) -> list[str]:
        """The stacks of each process's threads, which its log has from now on."""
        logs = [self.log_file(name) for name in names]
        sizes = [log.stat().st_size for log in logs]
        states = self.states()
        for name in names:
            if (identity := states[name]) is not None:
                identity.send(signal.SIGQUIT)  # a JVM then logs all stacks, and continues
        await asyncio.sleep(DUMP_S)
        return [
            log.read_bytes()[size:].decode(errors="replace") for log, size in zip(logs, sizes, strict=True)
        ]

    async def _left_out(self) -> frozenset[str]:
        """The brokers that are not in the SyncStateSet, while it has a master."""
        admin = admin_of(self.layout)
        try:
            state = await self.sync_state(admin)
        except NotYet:
            return frozenset()
        finally:
            await admin.close()
        if state.master_address is None:
            return frozenset()
        held = {self.layout.name_of(replica.address) for replica in state.in_sync}
        return frozenset(self.layout.broker_names) - held

    def become(self, names: Iterable[str], *, java: bool) -> None:
        """Set which of the processes are Java's from their next start on."""
        named = frozenset(names)
        now = self.layout.java | named if java else self.layout.java - named
        self.layout = replace(self.layout, java=now)

    def store(self, number: int) -> Path:
        return self.directory / f"broker-{number}"


def fleet_missing(version: str = OLDER) -> str | None:
    """Why no Java servers can run here."""
    if version == NEWER:
        return newer_missing()
    return broker_missing() or controller_missing() or namesrv_missing()
