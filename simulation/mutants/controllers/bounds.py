"""Planted bugs: tables of controllers from which nothing is ever removed."""

from __future__ import annotations

import asyncio

from controller.heartbeats import BrokerKey, Heartbeats, _Heartbeat
from dledger.node.transport import PeerTransport
from dledger.raft.messages import Request, Response
from simulation.mutants.controllers.bugs import bug


@bug("former-connections-kept", Heartbeats, "_leave_connection")
def former_connections_kept(self: Heartbeats, key: BrokerKey, entry: _Heartbeat) -> None:
    """N3: each connection over which a broker sent heartbeats is remembered."""
    del self._of_connection[entry.connection][key]


@bug("answered-members-awaited", PeerTransport, "response_to")
async def answered_members_awaited(self: PeerTransport, sender: str, request: Request) -> Response | None:
    """N3: each request of another controller is remembered with its answer."""
    self.last_ticket += 1
    answer = self.answers[self.last_ticket] = asyncio.get_running_loop().create_future()
    return await answer if self.receiver.receive(sender, request, self.last_ticket) else None
