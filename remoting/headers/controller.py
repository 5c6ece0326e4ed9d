"""Headers between brokers, administrators and controllers: 904, 1001-1006, 1008, 1011-1013.

A field that upstream leaves at its default when the sender omits it has that default here.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.headers.header import Header
from remoting.wirefields import I32, I64

ELECTION_PRIORITY_LOWEST = 2**31 - 1


@dataclass(slots=True)
class BrokerHeartbeatHeader(Header):
    """904, one-way to every controller.

    `epoch` is the last one in the sender's epoch file, offsets are of its log; `broker_id` is the
    controller-given id; a lower `election_priority` is preferred. Only our brokers send the rest, which upstream's
    controllers pass over: how many members they acknowledge with at least (0 is "not said"), whether the log may lack
    what was in memory before an unclean end, why they cannot lead now, whether they are async learners, and which process
    this is: later ones have higher numbers, unless the clock was set back (0 is "not said"); the number of the store's start,
    which grows while it is open too (0 is "not said"), where the last whole record that is confirmed ends (-1 is "not said"),
    and whether the disk was set back to an earlier image.
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
    may_lack_acknowledged: bool = False
    unfit_to_lead: str = ""
    async_learner: bool = False
    incarnation: I64 = 0
    could_lead: bool | None = None
    start_number: I64 = 0
    records_confirmed: I64 = -1
    disk_set_back: bool | None = None


@dataclass(slots=True)
class AlterSyncStateSetHeader(Header):
    """1001; the body is the wanted SyncStateSet with the epoch of the current one. Only our masters say with how many
    members at least they acknowledge (0 is "not said"); upstream's controllers pass over it."""

    broker_name: str
    master_broker_id: I64
    master_epoch: I32
    invoke_time: I64 = 0
    min_in_sync_replicas: I32 = 0


@dataclass(slots=True)
class AlterSyncStateSetResponseHeader(Header):
    """The set's new epoch; 0 when refused."""

    new_sync_state_set_epoch: I32 = 0


@dataclass(slots=True)
class ElectMasterHeader(Header):
    """1002; `broker_id` -1 elects anyone fit, `designate_elect` insists on `broker_id`."""

    broker_name: str
    cluster_name: str = ""
    broker_id: I64 = -1
    designate_elect: bool = False
    invoke_time: I64 = 0


@dataclass(slots=True)
class ElectMasterResponseHeader(Header):
    """The elected master; nothing when none was."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


@dataclass(slots=True)
class RegisterBrokerToControllerHeader(Header):
    """1003. Only our brokers say with which check code the id was granted to them, which process this is and the number of its
    start, as in 904; upstream's controllers pass over it."""

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
    """The four of the master only while a recorded master is alive. The last two only in refusals by our controllers: a process
    of this broker has said so great a number, so the asker's disk was set back to an earlier image; and where another process
    of this broker lives."""

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
    """1004. Only our brokers say who asks, which process that is and where, so that they hear it (2010) when the controllers do
    not know them any more."""

    broker_name: str
    broker_id: I64 | None = None
    register_check_code: str | None = None
    broker_address: str | None = None
    incarnation: I64 = 0


@dataclass(slots=True)
class GetReplicaInfoResponseHeader(Header):
    """The recorded master, dead or alive. From our controllers also where another process lives, or asks, that says that it is
    the asker's broker; with 2010 it is the registered one."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    other_address: str | None = None


@dataclass(slots=True)
class GetMetadataResponseHeader(Header):
    """Reply to 1005 of any controller; `peers` reads `id:host:port;` repeated."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@dataclass(slots=True)
class NotifyBrokerRoleChangedHeader(Header):
    """1008, controller to broker; the body is the SyncStateSet that goes with it."""

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
    """GIVE_UP_REPLICA: the broker that was granted `broker_id` with `register_check_code` is to be forgotten, because it begins
    anew with an empty store; `dry_run` only asks whether it may."""

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
    """1013; `register_check_code` is `address;milliseconds`, and tells this broker's claim from another's."""

    broker_name: str
    applied_broker_id: I64
    register_check_code: str
    cluster_name: str = ""


@dataclass(slots=True)
class ApplyBrokerIdResponseHeader(Header):
    """Reply to 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None
