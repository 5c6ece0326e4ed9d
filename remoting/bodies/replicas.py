"""Bodies between brokers, administrators and controllers."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.bodies.routes import BrokerMemberGroup
from remoting.wirefields import I32, I64


@dataclass(frozen=True, slots=True)
class SyncStateSetBody(Body):
    """The broker ids in sync and the set's epoch: body of 1001 and 1008, reply to 1001, 1003, 1004."""

    sync_state_set: frozenset[I64]
    sync_state_set_epoch: I32 = 0


@dataclass(slots=True)
class ElectMasterBody(Body):
    """Reply to 1002; the group only when a master was elected."""

    sync_state_set: frozenset[I64] = frozenset()
    broker_member_group: BrokerMemberGroup | None = None


@dataclass(slots=True)
class ReplicaIdentity(Body):
    """One member of a broker set as 1006 shows it."""

    broker_name: str
    broker_id: I64
    broker_address: str
    alive: bool = False


@dataclass(slots=True)
class ReplicasInfo(Body):
    """One broker set as 1006 shows it; the master is absent when there is none."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 = 0
    sync_state_set_epoch: I32 = 0
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclass(slots=True)
class BrokerReplicasInfo(Body):
    """Reply to 1006."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)
