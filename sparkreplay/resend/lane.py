"""Sends the rows of one source queue to one target queue, one request after the other.

Invariant: a request is sent only when all requests before it are acknowledged, so the target keeps the queue's order. A
request whose outcome is unknown is reported before it is sent again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import OutgoingMessage
from mqclient.producer import SendResult
from remoting.codes import ResponseCode
from sparkreplay.resend.errors import ResendFailed
from sparkreplay.resend.rewrite import QueueMessage

WAITING_MAX, WAITING_LOW = 512, 384
BATCH_MESSAGES_MAX = 64
BATCH_BYTES_MAX = 256 << 10
RETRY_S_MIN, RETRY_S_MAX = 0.05, 2.0
FINAL = frozenset(
    {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER}
)
"""Rejections that the same message would get again."""


class Parcel(NamedTuple):
    """A row and the message that is made of it."""

    row: QueueMessage
    message: OutgoingMessage


Sender = Callable[[list[OutgoingMessage]], Awaitable[SendResult]]
"""Sends to one queue of the target; raises a Producer's errors."""


class Lane:
    """`on_attempt(parcels)` is called before a request is sent for the first time, and `on_acked(parcels)` after the request
    was acknowledged. `on_unknown(messages)` is called before a request that may have been stored is sent again."""

    def __init__(
        self,
        origin: str,
        sender: Sender,
        *,
        wait_for_rate: Callable[[int, int], Awaitable[None]],
        on_attempt: Callable[[list[Parcel]], None],
        on_acked: Callable[[list[Parcel]], None],
        on_unknown: Callable[[int], None],
        not_taken_s_max: float,
    ) -> None:
        self.origin = origin
        self._send = sender
        self._wait_for_rate = wait_for_rate
        self._on_attempt = on_attempt
        self._on_acked = on_acked
        self._on_unknown = on_unknown
        self._not_taken_s_max = not_taken_s_max
        self._waiting: deque[Parcel] = deque()
        self._finished = False
        self._arrived = asyncio.Event()  # set if there is work, or at the end
        self._room = asyncio.Event()

    async def put(self, parcel: Parcel) -> None:
        """Add a row. If the lane is full, wait until it has room for many rows, because switching tasks for each row costs as
        much as reading the row. Only one task may call this."""
        if len(self._waiting) >= WAITING_MAX:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(parcel)
        self._arrived.set()

    def finish(self) -> None:
        """Announce that no more rows follow. `run` returns once all rows are acknowledged."""
        self._finished = True
        self._arrived.set()

    async def run(self) -> None:
        """Send the rows. Raises ResendFailed if the target rejects a row for good, or has not accepted it for
        `not_taken_s_max`."""
        while parcels := await self._request():
            await self._wait_for_rate(len(parcels), sum(len(parcel.message.body) for parcel in parcels))
            await self._deliver(parcels)
            self._on_acked(parcels)

    async def _request(self) -> list[Parcel]:
        """The oldest row, and the rows after it that fit into the same request. Empty at the end."""
        waiting = self._waiting
        while not waiting:
            if self._finished:
                return []
            self._arrived.clear()
            await self._arrived.wait()
        first = waiting.popleft()
        parcels, size = [first], len(first.message.body)
        while waiting and len(parcels) < BATCH_MESSAGES_MAX and _share_a_request(first, waiting[0]):
            size += len(waiting[0].message.body)
            if size > BATCH_BYTES_MAX:
                break
            parcels.append(waiting.popleft())
        if len(waiting) <= WAITING_LOW:
            self._room.set()
        return parcels

    async def _deliver(self, parcels: list[Parcel]) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._not_taken_s_max
        pause_s = RETRY_S_MIN
        messages = [parcel.message for parcel in parcels]
        self._on_attempt(parcels)
        while True:
            try:
                result = await self._send(messages)
                if result.acknowledged:
                    return
                why = f"the target stored it, but answered {result.status.name}"
                self._on_unknown(len(parcels))
            except SendOutcomeUnknown as error:
                why = str(error)
                self._on_unknown(len(parcels))
            except SendRefused as error:
                why = str(error)
                if error.code in FINAL:
                    raise ResendFailed(self._where(parcels[0]), why) from error
            if loop.time() >= give_up_at:
                raise ResendFailed(
                    self._where(parcels[0]), f"was not taken for {self._not_taken_s_max:g} s: {why}"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _where(self, parcel: Parcel) -> str:
        return f"{self.origin}: the message at physical offset {parcel.row.physical_offset}"


def _share_a_request(first: Parcel, following: Parcel) -> bool:
    """Whether two rows may share a request: messages of a batch have the same time of birth and are not compressed."""
    return first.row.born_ms == following.row.born_ms and not (
        first.message.sys_flag or following.message.sys_flag
    )
