"""Headers of requests between brokers, administrators and controllers.

A field that the sender omits gets upstream's default value."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64

ELECTION_PRIORITY_LOWEST = 2**31 - 1


@dataclass(slots=True)
class BrokerHeartbeatHeader(Header):
    """BROKER_HEARTBEAT (904), sent one-way to every controller.

    `epoch` is the last epoch in the sender's epoch file, and offsets are of the sender's log. `broker_id` is the id that
    the controllers assigned; a lower `election_priority` is preferred. The fields from `min_in_sync_replicas` on are
    extensions that upstream's controllers ignore; 0 or -1 means not reported. They say how many members at least
    acknowledge a send, whether the log may be missing data that were in memory before an unclean end
    (`may_miss_acknowledged`), why the broker cannot lead now, and whether it is an async learner. `incarnation` is the
    process number: later processes have higher numbers unless the clock was set back. `start_number` is the number of the
    store's start, which also grows while the store is open. `records_confirmed` is where the last whole confirmed record
    ends. `disk_set_back` says whether the disk was set back to an earlier image.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
    epoch: I32 = -1
    max_offset: I64 = -1
    confirm_offset: I64 = -1
    heartbeat_timeout_mills: I64 = 10_000
    election_priority: I32 = ELECTION_PRIORITY_LOWEST
    min_in_sync_replicas: I32 = 0
    may_miss_acknowledged: bool = False
    unfit_to_lead: str = ""
    async_learner: bool = False
    incarnation: I64 = 0
    could_lead: bool | None = None
    start_number: I64 = 0
    records_confirmed: I64 = -1
    disk_set_back: bool | None = None


@dataclass(slots=True)
class AlterSyncStateSetHeader(Header):
    """CONTROLLER_ALTER_SYNC_STATE_SET (1001). The body is the requested SyncStateSet with the epoch of the current set.
    `min_in_sync_replicas` is an extension that upstream's controllers ignore: how many members at least acknowledge a send
    (0: not reported)."""

    broker_name: str
    master_broker_id: I64
    master_epoch: I32
    invoke_time: I64 = 0
    min_in_sync_replicas: I32 = 0


@dataclass(slots=True)
class AlterSyncStateSetResponseHeader(Header):
    """The set's new epoch; 0 if the change was rejected."""

    new_sync_state_set_epoch: I32 = 0


@dataclass(slots=True)
class ElectMasterHeader(Header):
    """CONTROLLER_ELECT_MASTER (1002). `broker_id` -1 elects any eligible replica; `designate_elect` accepts only
    `broker_id`."""

    broker_name: str
    cluster_name: str = ""
    broker_id: I64 = -1
    designate_elect: bool = False
    invoke_time: I64 = 0


@dataclass(slots=True)
class ElectMasterResponseHeader(Header):
    """The elected master; empty if none was elected."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


@dataclass(slots=True)
class RegisterBrokerToControllerHeader(Header):
    """CONTROLLER_REGISTER_BROKER (1003). The last three fields are extensions that upstream's controllers ignore: the check
    code with which the broker's id was granted, and the process number and start number of BROKER_HEARTBEAT (904)."""

    broker_name: str
    broker_id: I64
    broker_address: str
    cluster_name: str = ""
    invoke_time: I64 = 0
    register_check_code: str | None = None
    incarnation: I64 = 0
    start_number: I64 = 0


@dataclass(slots=True)
class RegisterBrokerToControllerResponseHeader(Header):
    """The master's four fields are present only while a recorded master is alive. The last two fields are extensions,
    present only in rejections. `known_start_number` is a start number that a process of this broker has reported, so the
    sender's disk was set back to an earlier image. `other_address` is the address of another process of this broker."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None
    known_start_number: I64 | None = None
    other_address: str | None = None


@dataclass(slots=True)
class GetReplicaInfoHeader(Header):
    """CONTROLLER_GET_REPLICA_INFO (1004). The identity, address and process number of the sender are extensions. With them
    the controllers can reply (code 2010) that they do not know the sender any more."""

    broker_name: str
    broker_id: I64 | None = None
    register_check_code: str | None = None
    broker_address: str | None = None
    incarnation: I64 = 0


@dataclass(slots=True)
class GetReplicaInfoResponseHeader(Header):
    """The recorded master, dead or alive. `other_address` is an extension: the address of another process that claims the
    sender's identity. In a reply with code 2010 it is the address of the registered process."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    other_address: str | None = None


@dataclass(slots=True)
class GetMetadataResponseHeader(Header):
    """Reply of any controller to CONTROLLER_GET_METADATA_INFO (1005). `peers` repeats `id:host:port;`."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@dataclass(slots=True)
class NotifyBrokerRoleChangedHeader(Header):
    """NOTIFY_BROKER_ROLE_CHANGED (1008), from a controller to a broker. The body is the SyncStateSet of that epoch."""

    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None
    master_broker_id: I64 | None = None


@dataclass(slots=True)
class CleanBrokerDataHeader(Header):
    """CLEAN_BROKER_DATA (1011). `broker_controller_ids_to_clean` separates ids with `;`."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: I64 = 0


@dataclass(slots=True)
class GiveUpReplicaHeader(Header):
    """GIVE_UP_REPLICA asks the controllers to forget the broker that was granted `broker_id` with `register_check_code`,
    because the broker restarts with an empty store. `dry_run` only asks whether that is allowed."""

    broker_name: str
    broker_id: I64
    register_check_code: str | None = None
    dry_run: bool = False


@dataclass(slots=True)
class GetNextBrokerIdHeader(Header):
    """CONTROLLER_GET_NEXT_BROKER_ID (1012)."""

    broker_name: str
    cluster_name: str = ""


@dataclass(slots=True)
class GetNextBrokerIdResponseHeader(Header):
    """Reply to CONTROLLER_GET_NEXT_BROKER_ID (1012)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: I64 | None = None


@dataclass(slots=True)
class ApplyBrokerIdHeader(Header):
    """CONTROLLER_APPLY_BROKER_ID (1013). `register_check_code` is `address;milliseconds`. It distinguishes this broker's
    claim from another broker's."""

    broker_name: str
    applied_broker_id: I64
    register_check_code: str
    cluster_name: str = ""


@dataclass(slots=True)
class ApplyBrokerIdResponseHeader(Header):
    """Reply to CONTROLLER_APPLY_BROKER_ID (1013)."""

    cluster_name: str | None = None
    broker_name: str | None = None
