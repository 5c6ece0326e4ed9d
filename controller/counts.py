"""What a controller has been asked and what its elections came to, since it was started.

Invariant: every answered request is counted once, under upstream's names; elections are counted by the controller that
leads, when they are applied."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable

from controller.events import ElectMaster, Event
from controller.state import ReplicasState
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Handler, Router

COUNTED = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: "CONTROLLER_ALTER_SYNC_STATE_SET",
    RequestCode.CONTROLLER_ELECT_MASTER: "CONTROLLER_ELECT_MASTER",
    RequestCode.CONTROLLER_REGISTER_BROKER: "CONTROLLER_REGISTER_BROKER",
    RequestCode.CONTROLLER_GET_REPLICA_INFO: "CONTROLLER_GET_REPLICA_INFO",
    RequestCode.CONTROLLER_GET_METADATA_INFO: "CONTROLLER_GET_METADATA_INFO",
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: "CONTROLLER_GET_SYNC_STATE_DATA",
    RequestCode.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
    RequestCode.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    RequestCode.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
    RequestCode.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA",
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: "CONTROLLER_GET_NEXT_BROKER_ID",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: "CONTROLLER_APPLY_BROKER_ID",
}


class Counts:
    """`requests` by (type, status); `elections` by (cluster, broker set, result)."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.elections: Counter[tuple[str, str, str]] = Counter()

    def watch(self, router: Router) -> None:
        """Count what the handlers of `router` answer from now on."""
        for code, name in COUNTED.items():
            router.handlers[code] = self._counting(name, router.handlers[code])

    def applied(self, event: Event, state: ReplicasState) -> None:
        """An election was carried out; `state` is what came of it."""
        if isinstance(event, ElectMaster):
            replicas = state.replicas.get(event.broker_name)
            cluster = replicas.cluster_name if replicas is not None else ""
            result = "no_master_elected" if event.master_id is None else "new_master_elected"
            self.elections[cluster, event.broker_name, result] += 1

    def _counting(self, name: str, handler: Handler) -> Handler:
        def handle(
            peer: Peer, request: RemotingCommand
        ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
            try:
                result = handler(peer, request)
            except Exception:
                self.requests[name, "failed"] += 1
                raise
            if inspect.isawaitable(result):
                return self._awaited(name, result)
            self._count(name, result)
            return result

        return handle

    async def _awaited(self, name: str, result: Awaitable[RemotingCommand | None]) -> RemotingCommand | None:
        try:
            reply = await result
        except Exception:
            self.requests[name, "failed"] += 1
            raise
        self._count(name, reply)
        return reply

    def _count(self, name: str, reply: RemotingCommand | None) -> None:
        if reply is None or reply.code == ResponseCode.SUCCESS:
            status = "success"
        elif (reply.remark or "").startswith("outcome unknown"):
            status = "timeout"
        else:
            status = "failed"
        self.requests[name, status] += 1
