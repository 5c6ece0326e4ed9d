"""Headers between brokers, administrators and controllers: 904, 1001-1006, 1008, 1011-1013.

A field that the sender omits has upstream's default.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64

ELECTION_PRIORITY_LOWEST = 2**31 - 1


@dataclass(slots=True)
class BrokerHeartbeatHeader(Header):
    """904, one-way to every controller.

    `epoch` is the last one in the sender's epoch file, offsets are of its log; `broker_id` is the controller-given id; a
    lower `election_priority` is preferred. Upstream's controllers ignore the remaining fields of this project: the least
    number of members that acknowledge a send (0: not reported); whether the log may be missing data that were in memory
    before an unclean end; why the broker cannot lead now; whether it is an async learner; the process number: later processes
    have higher numbers unless the clock was set back (0: not reported); the number of the store's start, which also grows
    while it is open (0: not reported); where the last whole confirmed record ends (-1: not reported); whether the disk was
    set back to an earlier image.
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
    """1001; the body is the requested SyncStateSet with the epoch of the current one. Only masters of this project report the
    least number of members that acknowledge (0: not reported); upstream's controllers ignore it."""

    broker_name: str
    master_broker_id: I64
    master_epoch: I32
    invoke_time: I64 = 0
    min_in_sync_replicas: I32 = 0


@dataclass(slots=True)
class AlterSyncStateSetResponseHeader(Header):
    """The set's new epoch; 0 when rejected."""

    new_sync_state_set_epoch: I32 = 0


@dataclass(slots=True)
class ElectMasterHeader(Header):
    """1002; `broker_id` -1 elects any eligible replica, `designate_elect` accepts only `broker_id`."""

    broker_name: str
    cluster_name: str = ""
    broker_id: I64 = -1
    designate_elect: bool = False
    invoke_time: I64 = 0


@dataclass(slots=True)
class ElectMasterResponseHeader(Header):
    """The elected master; empty when none was."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


@dataclass(slots=True)
class RegisterBrokerToControllerHeader(Header):
    """1003. Only brokers of this project send the check code with which their id was granted, the process number and the
    start number, as in 904; upstream's controllers ignore them."""

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
    """The master's four fields only while a recorded master is alive. The last two only in rejections by controllers of this
    project: a process of this broker has reported this start number, so the sender's disk was set back to an earlier image;
    and the address of another process of this broker."""

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
    """1004. Only brokers of this project send their identity, process number and address, so that the reply (2010) shows that
    the controllers do not know them any more."""

    broker_name: str
    broker_id: I64 | None = None
    register_check_code: str | None = None
    broker_address: str | None = None
    incarnation: I64 = 0


@dataclass(slots=True)
class GetReplicaInfoResponseHeader(Header):
    """The recorded master, dead or alive. Controllers of this project add the address of another process that claims the
    sender's identity; with 2010 that of the registered one."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    other_address: str | None = None


@dataclass(slots=True)
class GetMetadataResponseHeader(Header):
    """Reply to 1005 of any controller; `peers` repeats `id:host:port;`."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@dataclass(slots=True)
class NotifyBrokerRoleChangedHeader(Header):
    """1008, controller to broker; the body is the SyncStateSet of that epoch."""

    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None
    master_broker_id: I64 | None = None


@dataclass(slots=True)
class CleanBrokerDataHeader(Header):
    """1011; `broker_controller_ids_to_clean` separates ids with `;`."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: I64 = 0


@dataclass(slots=True)
class GiveUpReplicaHeader(Header):
    """GIVE_UP_REPLICA: forget the broker that was granted `broker_id` with `register_check_code`, because it restarts with an
    empty store; `dry_run` only asks whether that is allowed."""

    broker_name: str
    broker_id: I64
    register_check_code: str | None = None
    dry_run: bool = False


@dataclass(slots=True)
class GetNextBrokerIdHeader(Header):
    """1012"""

    broker_name: str
    cluster_name: str = ""


@dataclass(slots=True)
class GetNextBrokerIdResponseHeader(Header):
    """Reply to 1012."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: I64 | None = None


@dataclass(slots=True)
class ApplyBrokerIdHeader(Header):
    """1013; `register_check_code` is `address;milliseconds`, and distinguishes this broker's claim from another's."""

    broker_name: str
    applied_broker_id: I64
    register_check_code: str
    cluster_name: str = ""


@dataclass(slots=True)
class ApplyBrokerIdResponseHeader(Header):
    """Reply to 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None
