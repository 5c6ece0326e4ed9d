"""The answer to GET_BROKER_HA_STATUS (907), keys as upstream's HARuntimeInfo has them.

Invariant: what the other role would fill in stays at its default."""

from __future__ import annotations

from typing import Any

from ha.log import ReplicatedLog
from ha.master.connection import MasterConnection
from ha.master.mastership import Mastership
from ha.slave.client import SlaveClient


def runtime_info(log: ReplicatedLog, role: Mastership | SlaveClient | None, now_ms: int) -> dict[str, Any]:
    """Offsets in bytes, times in ms since 1970; without a role it is a slave's that never connected."""
    is_master = isinstance(role, Mastership)
    return {
        "haClientRuntimeInfo": _client_info(log, role if isinstance(role, SlaveClient) else None, now_ms),
        "haConnectionInfo": [_connection_info(log, role, link, now_ms) for link in role.connections]
        if isinstance(role, Mastership)
        else [],
        "inSyncSlaveNums": len(role.sync_state_set.applied_members) - 1
        if isinstance(role, Mastership)
        else 0,
        "master": is_master,
        "masterCommitLogMaxOffset": log.max_offset() if is_master else 0,
    }


def _connection_info(
    log: ReplicatedLog, mastership: Mastership, connection: MasterConnection, now_ms: int
) -> dict[str, Any]:
    link = connection.link
    return {
        "addr": connection.address,
        "diff": log.max_offset() - link.ack_offset,
        "inSync": connection.slave_broker_id in mastership.sync_state_set.applied_members,
        "slaveAckOffset": link.ack_offset,
        "transferFromWhere": link.next_offset,
        "transferredByteInSecond": connection.rate.last_second(now_ms),
    }


def _client_info(log: ReplicatedLog, client: SlaveClient | None, now_ms: int) -> dict[str, Any]:
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
