"""What a broker says of its replication: replies to 907 and 1007."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class HAConnectionInfo(Body):
    """One slave as its master sees it; offsets are -1 before the first ack or transfer."""

    addr: str
    slave_ack_offset: I64 = -1
    diff: I64 = 0
    in_sync: bool = False
    transferred_byte_in_second: I64 = 0
    transfer_from_where: I64 = -1


@dataclass(slots=True)
class HAClientInfo(Body):
    """A slave's own end of its link; timestamps are wall clock ms."""

    master_addr: str | None = None
    max_offset: I64 = 0
    last_read_timestamp: I64 = 0
    last_write_timestamp: I64 = 0
    transferred_byte_in_second: I64 = 0
    master_flush_offset: I64 = 0


@dataclass(slots=True)
class HARuntimeInfo(Body):
    """Reply to 907."""

    master: bool
    master_commit_log_max_offset: I64 = 0
    in_sync_slave_nums: I32 = 0
    ha_connection_info: list[HAConnectionInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientInfo = field(default_factory=HAClientInfo)


@dataclass(slots=True)
class EpochSpan(Body):
    """One epoch; the last one's `end_offset` is Long.MAX_VALUE."""

    epoch: I32
    start_offset: I64
    end_offset: I64


@dataclass(slots=True)
class EpochCache(Body):
    """Reply to 1007; `broker_id` is the role id, 0 on the master."""

    cluster_name: str
    broker_name: str
    broker_id: I64
    max_offset: I64
    epoch_list: list[EpochSpan] = field(default_factory=list)
