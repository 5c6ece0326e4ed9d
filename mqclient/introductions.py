"""Sends a producer's heartbeats to masters, so that they can ask the producer about its transactions and forward replies to it.

Invariant: heartbeats are sent to all masters at the same time. A master that accepted none gets one at the next call."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from mqclient.errors import RouteUnknown
from mqclient.routetable import TopicRoutes
from mqclient.together import together
from mqruntime.clock import Clock
from remoting.bodies.heartbeats import HeartbeatData, ProducerData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError


class Introductions:
    """Heartbeats of one producer of `group`. Brokers identify its client by `client_id`."""

    def __init__(
        self, group: str, client_id: str, *, routes: TopicRoutes, client: RemotingClient, clock: Clock
    ) -> None:
        self._body = HeartbeatData(client_id, [ProducerData(group)]).encode()
        self._routes = routes
        self._client = client
        self._clock = clock
        self._heard_ms: dict[str, int] = {}

    async def at(self, topics: Iterable[str], timeout_ms: int, *, fresh_ms: int = 0) -> None:
        """Send heartbeats to the masters of `topics`, except those that accepted one over their connection less than
        `fresh_ms` ago. A master has `timeout_ms` to reply, and connecting to it may take as long again."""
        masters: dict[str, None] = {}
        for topic in topics:
            with suppress(RouteUnknown):
                route = await self._routes.to_send(topic)
                found = (route.master(name) for name in route.addresses)
                masters |= dict.fromkeys(address for address in found if address is not None)
        now_ms = self._clock.monotonic_ms()
        due = [address for address in masters if not self._is_fresh(address, now_ms - fresh_ms)]
        await together([self._send_heartbeat(address, timeout_ms) for address in due])

    async def _send_heartbeat(self, address: str, timeout_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        with suppress(RemotingError):
            beat = RemotingCommand.request(RequestCode.HEART_BEAT, None, self._body)
            if (await self._client.call(address, beat, timeout_ms)).code == ResponseCode.SUCCESS:
                self._heard_ms[address] = now_ms

    def _is_fresh(self, address: str, since_ms: int) -> bool:
        heard_ms = self._heard_ms.get(address)
        return heard_ms is not None and since_ms < heard_ms and self._client.connected(address)
