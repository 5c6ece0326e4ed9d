"""Notifies brokers of their master with one-way NOTIFY_BROKER_ROLE_CHANGED requests (1008).

Invariant: for each address only the newest announcement is kept to be sent. Only a few sends begin in a turn of the event loop,
because a new leader notifies all brokers of all sets. Delivery is retried for a short time and is not guaranteed. So brokers
also ask for their master themselves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from mqruntime.clock import Clock
from mqruntime.tasks import Tasks
from remoting.bodies.replicas import SyncStateSetBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.controller import NotifyBrokerRoleChangedHeader

RETRY_FOR_MS = 1000
RETRY_EVERY_MS = 100
BEGUN_A_TURN = 50


@dataclass(frozen=True, slots=True)
class _Announcement:
    header: NotifyBrokerRoleChangedHeader
    body: bytes
    on_sent: Callable[[str], None]


class Notifier:
    """Sends announcements in background tasks, over `client`'s connections."""

    def __init__(self, client: RemotingClient, clock: Clock, tasks: Tasks) -> None:
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, _Announcement] = {}
        """By address, the announcement to send next."""
        self._beginning: asyncio.Task[None] | None = None

    def announce(
        self,
        addresses: Iterable[str],
        header: NotifyBrokerRoleChangedHeader,
        members: frozenset[int],
        on_sent: Callable[[str], None],
    ) -> None:
        """Send the master in `header` and its SyncStateSet to the brokers at `addresses`. `on_sent` is called with each address
        to which the announcement was sent."""
        body = SyncStateSetBody(members, header.sync_state_set_epoch or 0).encode()
        announcement = _Announcement(header, body, on_sent)
        for address in addresses:
            older = self._sending.pop(address, None)
            if older is not None:
                older.cancel()
            self._next[address] = announcement
        if self._next and (self._beginning is None or self._beginning.done()):
            self._beginning = self._tasks.start(self._begin_all(), name="begin to notify")

    async def _begin_all(self) -> None:
        while self._next:
            for address in list(itertools.islice(self._next, BEGUN_A_TURN)):
                announcement = self._next.pop(address)
                name = f"notify {address} epoch={announcement.header.master_epoch}"
                task = self._tasks.start(self._send(address, announcement), name=name)
                self._sending[address] = task
                task.add_done_callback(partial(self._ended, address))
            await asyncio.sleep(0)

    async def _send(self, address: str, announcement: _Announcement) -> None:
        give_up_ms = self._clock.monotonic_ms() + RETRY_FOR_MS
        code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
        while True:
            try:
                command = RemotingCommand.request(code, announcement.header, announcement.body)
                await self._client.one_way(address, command)
                return announcement.on_sent(address)
            except RemotingError:
                if self._clock.monotonic_ms() >= give_up_ms:
                    return
            await asyncio.sleep(RETRY_EVERY_MS / 1000)

    def _ended(self, address: str, task: asyncio.Task[None]) -> None:
        if self._sending.get(address) is task:
            del self._sending[address]
