"""The answer to GET_BROKER_HA_STATUS (907), with the keys of upstream's HARuntimeInfo.

Invariant: fields of the other role keep their defaults. Upstream does not have `learner`, which is set for the link of a
learner."""

from __future__ import annotations

from typing import Any

from ha.classic.mastership import PairMastership
from ha.log import ReplicatedLog
from ha.master.link import MasterLink
from ha.master.mastership import Mastership
from ha.master.sender import LogSender
from ha.slave.follower import Follower

Role = Mastership | PairMastership | Follower | None


def runtime_info(log: ReplicatedLog, role: Role, now_ms: int) -> dict[str, Any]:
    """The answer, with offsets in bytes and times in ms since 1970. A broker without a role answers like a slave that never
    connected."""
    is_master = isinstance(role, Mastership | PairMastership)
    in_sync = _in_sync(role)
    members = len(role.sync_state_set.applied_members) - 1 if isinstance(role, Mastership) else len(in_sync)
    return {
        "haClientRuntimeInfo": _client_info(log, role if isinstance(role, Follower) else None, now_ms),
        "haConnectionInfo": [
            _connection_info(log, link, link in in_sync, now_ms) for link in role.connections
        ]
        if isinstance(role, Mastership | PairMastership)
        else [],
        "inSyncSlaveNums": members,
        "master": is_master,
        "masterCommitLogMaxOffset": log.max_offset() if is_master else 0,
    }


def _in_sync(role: Role) -> list[LogSender]:
    if isinstance(role, PairMastership):
        return list(role.in_step())
    if not isinstance(role, Mastership):
        return []
    members = role.sync_state_set.applied_members
    return [link for link in role.connections if link.slave_broker_id in members]


def _connection_info(log: ReplicatedLog, connection: LogSender, in_sync: bool, now_ms: int) -> dict[str, Any]:
    link = connection.link
    handshake = link.handshake if isinstance(link, MasterLink) else None
    learns = {"learner": True} if handshake is not None and handshake.is_async_learner else {}
    return learns | {
        "addr": connection.address,
        "diff": log.max_offset() - link.ack_offset,
        "inSync": in_sync,
        "slaveAckOffset": link.ack_offset,
        "transferFromWhere": link.next_offset,
        "transferredByteInSecond": connection.rate.last_second(now_ms),
    }


def _client_info(log: ReplicatedLog, client: Follower | None, now_ms: int) -> dict[str, Any]:
    info: dict[str, Any] = {
        "lastReadTimestamp": 0,
        "lastWriteTimestamp": 0,
        "masterFlushOffset": 0,
        "maxOffset": 0,
        "transferredByteInSecond": 0,
    }
    if client is not None:
        info["maxOffset"] = log.max_offset()
        if client.master_ha_address is not None:
            info["masterAddr"] = client.master_ha_address
        if client.connection is not None:
            info["lastReadTimestamp"] = client.connection.read_wall_ms
            info["lastWriteTimestamp"] = client.connection.written_wall_ms
            info["transferredByteInSecond"] = client.connection.rate.last_second(now_ms)
    return info
