"""The sides that are measured: our brokers or those of Apache RocketMQ 5.3.3, with the contract of their acknowledgements.

Invariant: both sides have the same settings, except for the contract and Java's patience. They run under our name server and
controllers, which do no work for a message. Their folders are removed afterwards."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, HOST, Layout, Mode
from localcluster.waiting import NotYet
from mqadmin.admin import AdminClient
from mqadmin.calls.raftsets import MASTER_ID
from mqadmin.errors import AdminError
from mqadmin.replies import ReplicaInfo, SyncStateInfo

OURS, SAMPLED, JAVA = "broker", "scripts.bench.sampledbroker", "scripts.bench.javabroker"
SEGMENT_BYTES = 1 << 30  # as shipped, and upstream's default
PATIENT = {"waitTimeMillsInSendQueue": "2000"}
"""A Java broker rejects requests that waited longer than this. The default is 200 ms, which all requests exceed on a busy
machine."""
RAFT = "Raft"
CONTRACTS = {
    "A": {"allAckInSyncStateSet": "false", "minInSyncReplicas": "1"},
    "B": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "1"},
    "C": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"},
    RAFT: {"brokerRole": "ASYNC_MASTER"},
}
"""The contracts. That of Raft mode is a majority, on disk for our brokers and in memory for Java's."""


@dataclass(frozen=True)
class Side:
    """One side. `python -m` starts `module` as each broker. Contracts are those of docs/operations.md."""

    name: str
    contract: str
    module: str

    secure: bool = False
    """TLS on all connections; for Java not on the replication stream, where it has none."""

    @property
    def is_java(self) -> bool:
        return self.module == JAVA

    @property
    def mode(self) -> Mode:
        return Mode.RAFT if self.contract == RAFT else Mode.CONTROLLER


SIDES = {
    f"{kind}-{contract}{'-tls' if secure else ''}".lower(): Side(
        f"{kind} {contract}{' TLS' if secure else ''}", contract, module, secure
    )
    for kind, module in (("ours", OURS), ("Java", JAVA))
    for contract in CONTRACTS
    for secure in (False, True)
}


def chosen(parser: ArgumentParser, names: str, without_java: str | None) -> list[Side]:
    """The sides that an option names, separated by commas. If Java is missing, its sides are left out with a message. The
    command ends if there is no such side, or ours is not the first."""
    unknown = [name for name in names.split(",") if name not in SIDES]
    if unknown:
        parser.error(f"no side {unknown[0]!r}; there are {', '.join(SIDES)}")
    sides = [SIDES[name] for name in names.split(",")]
    if sides[0].is_java:
        parser.error("the first side must be one of ours")
    if without_java is not None:
        print(f"without Java: {without_java}")
        sides = [side for side in sides if not side.is_java]
    return sides


@dataclass(frozen=True, slots=True)
class SideLayout(Layout):
    """A layout that knows the kind of its brokers."""

    broker_module: str = OURS

    def module(self, name: str) -> str:
        return self.broker_module if name in self.broker_names else Layout.module(self, name)


class JavaRaftCluster(Cluster):
    """Java's brokers in Raft mode. They report their set only by registering, so the name server's routes are used."""

    async def sync_state(self, admin: AdminClient) -> SyncStateInfo:
        self.check_alive()
        try:
            sets = (await admin.cluster_info(self.layout.namesrv)).broker_sets
        except AdminError as error:
            raise NotYet(str(error)) from error
        found = sets[BROKER_SET].addresses if BROKER_SET in sets else {}
        master = found.get(MASTER_ID)
        if master is None:
            raise NotYet(f"{BROKER_SET} has no master at the name server; registered are {found}")
        names = self.layout.broker_names
        replicas = {
            address: ReplicaInfo(
                BROKER_SET, names.index(self.layout.name_of(address) or names[0]) + 1, address, True
            )
            for address in found.values()
        }
        return SyncStateInfo(
            BROKER_SET, replicas[master].broker_id, master, 0, 0, tuple(replicas.values()), ()
        )


@contextmanager
def cluster_of(
    side: Side,
    *,
    brokers: int = 3,
    directory: Path | None = None,
    authority: Path | None = None,
    **settings: str,
) -> Iterator[Cluster]:
    """Make a cluster without starting it. `settings` of the brokers come before those of the contract. Its folder is below
    `directory`. `authority` is the folder of the authority for a secure side."""
    plain = {"tls.ha.plainHosts": HOST} if side.secure and side.is_java else {}
    with tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-", dir=directory) as folder:
        kind = JavaRaftCluster if side.is_java and side.mode is Mode.RAFT else Cluster
        with kind.create(
            Path(folder) / "cluster",
            mode=side.mode,
            brokers=brokers,
            segment_bytes=SEGMENT_BYTES,
            broker_settings={
                **(PATIENT if side.is_java else {}),
                **CONTRACTS[side.contract],
                **plain,
                **settings,
            },
            secure=side.secure,
            authority=authority,
        ) as cluster:
            laid = {field.name: getattr(cluster.layout, field.name) for field in fields(Layout)}
            cluster.layout = SideLayout(**laid, broker_module=side.module)
            try:
                yield cluster
            finally:
                if side.is_java:  # it needs ten seconds to end by itself
                    cluster.kill(cluster.layout.broker_names)
