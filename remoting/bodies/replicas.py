"""Bodies between brokers, administrators and controllers."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.bodies.routes import BrokerMemberGroup
from remoting.wirefields import I32, I64


@dataclass(frozen=True, slots=True)
class SyncStateSetBody(Body):
    """The ids of the brokers in sync, and the set's epoch. It is the body of CONTROLLER_ALTER_SYNC_STATE_SET (1001) and
    NOTIFY_BROKER_ROLE_CHANGED (1008), and the reply to 1001, CONTROLLER_REGISTER_BROKER (1003) and
    CONTROLLER_GET_REPLICA_INFO (1004)."""

    sync_state_set: frozenset[I64]
    sync_state_set_epoch: I32 = 0


@dataclass(slots=True)
class ElectMasterBody(Body):
    """Reply to CONTROLLER_ELECT_MASTER (1002). The group is present only if a master was elected."""

    sync_state_set: frozenset[I64] = frozenset()
    broker_member_group: BrokerMemberGroup | None = None


@dataclass(slots=True)
class ReplicaIdentity(Body):
    """One member of a broker set, as CONTROLLER_GET_SYNC_STATE_DATA (1006) reports it."""

    broker_name: str
    broker_id: I64
    broker_address: str
    alive: bool = False


@dataclass(slots=True)
class ReplicasInfo(Body):
    """One broker set, as CONTROLLER_GET_SYNC_STATE_DATA (1006) reports it. The master is absent if the set has none."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 = 0
    sync_state_set_epoch: I32 = 0
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclass(slots=True)
class BrokerReplicasInfo(Body):
    """Reply to CONTROLLER_GET_SYNC_STATE_DATA (1006)."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)
