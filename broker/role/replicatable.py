"""The controllers' replica table of this broker's set: broker id -> IP addresses of the host that the broker registered.

Invariant: each read sends CONTROLLER_GET_SYNC_STATE_DATA (1006) to the controllers' leader. A host name that cannot be resolved
has no addresses, so it matches no peer."""

from __future__ import annotations

import asyncio
import logging
import socket

import orjson

from broker.role.controllerclient import ControllerClient
from ha.errors import ReplicasUnread
from ha.master.admittance import RegisteredReplica, Table, literal, plain
from mqruntime.log import fields
from remoting.bodies.replicas import BrokerReplicasInfo, ReplicasInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError

RESOLVE_TIMEOUT_S = 2

logger = logging.getLogger("broker.replicatable")


class ReplicaTable:
    """The table of the set `broker_name`."""

    def __init__(self, broker_name: str, controllers: ControllerClient) -> None:
        self._broker_name = broker_name
        self._controllers = controllers

    async def read(self) -> Table:
        """Read the table; it is empty if the controllers have forgotten the set. Raises ReplicasUnread."""
        request = RemotingCommand.request(
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=orjson.dumps([self._broker_name])
        )
        try:
            reply = await self._controllers.call(request)
            if reply.code != ResponseCode.SUCCESS:
                raise ReplicasUnread(f"controllers answer {reply.code}: {reply.remark or ''}")
            table = BrokerReplicasInfo.decode(reply.body).replicas_info_table
        except (RemotingError, BodyError) as error:
            raise ReplicasUnread(str(error)) from error
        replicas = table.get(self._broker_name, ReplicasInfo())
        return {
            replica.broker_id: RegisteredReplica(
                await addresses_of(replica.broker_address.rpartition(":")[0]), replica.broker_address
            )
            for replica in [*replicas.in_sync_replicas, *replicas.not_in_sync_replicas]
        }


async def addresses_of(host: str) -> frozenset[str]:
    """The address itself, or the addresses of a host name; Java brokers may register a name."""
    if (address := literal(host)) is not None:
        return frozenset({address})
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # TimeoutError is an OSError; ValueError: no valid name
        logger.debug("host of a replica cannot be resolved", extra=fields(host=host, why=error))
        return frozenset()
    return frozenset(plain(str(place[0])) for *_, place in found)
