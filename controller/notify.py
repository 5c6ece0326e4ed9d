"""Tells brokers who their master is: request 1008, one-way.

Invariant: to one address only the newest announcement is being sent. Delivery is tried for a moment and not
assured: brokers also ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from mqruntime.clock import Clock
from mqruntime.tasks import Tasks
from remoting.bodies.replicas import SyncStateSet
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.controller import NotifyBrokerRoleChangedHeader

RETRY_FOR_MS = 1000
RETRY_EVERY_MS = 100


class Notifier:
    """Sends announcements in the background, over `client`'s connections."""

    def __init__(self, client: RemotingClient, clock: Clock, tasks: Tasks) -> None:
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._sending: dict[str, asyncio.Task[None]] = {}

    def announce(
        self,
        addresses: Iterable[str],
        header: NotifyBrokerRoleChangedHeader,
        members: frozenset[int],
        on_sent: Callable[[str], None],
    ) -> None:
        """Tell the brokers at `addresses` the master in `header` and the SyncStateSet that goes with it; `on_sent`
        gets each address that it was sent to."""
        body = SyncStateSet(members, header.sync_state_set_epoch or 0).encode()
        for address in addresses:
            older = self._sending.pop(address, None)
            if older is not None:
                older.cancel()
            name = f"notify {address} epoch={header.master_epoch}"
            task = self._tasks.start(self._send(address, header, body, on_sent), name=name)
            self._sending[address] = task
            task.add_done_callback(partial(self._ended, address))

    async def _send(
        self,
        address: str,
        header: NotifyBrokerRoleChangedHeader,
        body: bytes,
        on_sent: Callable[[str], None],
    ) -> None:
        give_up_ms = self._clock.monotonic_ms() + RETRY_FOR_MS
        while True:
            command = RemotingCommand.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)
            try:
                await self._client.one_way(address, command)
                return on_sent(address)
            except RemotingError:
                if self._clock.monotonic_ms() >= give_up_ms:
                    return
            await asyncio.sleep(RETRY_EVERY_MS / 1000)

    def _ended(self, address: str, task: asyncio.Task[None]) -> None:
        if self._sending.get(address) is task:
            del self._sending[address]
