"""Stored sends that wait for the other members of the SyncStateSet.

Invariant: the sends are in one deque, in the order of their end offsets, which is also the order of their deadlines. Each send
is answered exactly once. The answer is OK when the acknowledged end covers the send. Otherwise the outcome is unknown, and the
code is FLUSH_DISK_TIMEOUT if only this broker's disk is missing the send, else FLUSH_SLAVE_TIMEOUT. Replies to one connection
leave in one write. Sends that came together may be one element, with encoded replies."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from remoting.codes import ResponseCode
from remoting.command import Body, RemotingCommand
from remoting.frame import commands_in, encode
from remoting.peer import Peer

UNKNOWN_REMARK = "flush data to slave timeout"
UNFLUSHED_REMARK = "flush data to disk timeout"
DEMOTED_REMARK = (
    "this broker stopped being master before all replicas had the message; whether it stays is unknown"
)

NONE_WAITS = 1 << 63


@dataclass(slots=True)
class PendingSend:
    """A stored send, and the reply (code 0) for when all replicas hold it. Offsets are exclusive; times are monotonic ms.
    `unknown` is the reply if the outcome stays unknown; if it is None, `reply` is changed. `alone` means that there is no slave
    to wait for: `reply` reports this, and is sent once the message is stored here."""

    end_offset: int
    deadline_ms: int
    peer: Peer
    reply: RemotingCommand
    request_code: int
    unknown: RemotingCommand | None = None
    alone: bool = False
    count: ClassVar[int] = 1

    @property
    def first_end(self) -> int:
        return self.end_offset

    @property
    def response_code(self) -> int:
        return self.reply.code

    @property
    def frames(self) -> list[Body]:
        return encode(self.reply)

    def up_to(self, end: int, stored_end: Callable[[], int]) -> PendingSend | None:
        """This send, if it is answered when replicas hold the log up to `end` and this broker up to `stored_end()`; else
        None."""
        return self if self.end_offset <= (stored_end() if self.alone else end) else None

    def each(self) -> list[PendingSend]:
        return [self]


@dataclass(slots=True)
class PendingRun:
    """Stored sends of one connection that came together. `ends` are their end offsets. The encoded replies follow each other in
    `replies`: the first begins at `begin`, and reply n ends at `frame_ends[n]`."""

    ends: list[int]
    replies: bytes
    frame_ends: list[int]
    deadline_ms: int
    peer: Peer
    request_code: int
    begin: int = 0

    @property
    def count(self) -> int:
        return len(self.ends)

    @property
    def first_end(self) -> int:
        return self.ends[0]

    @property
    def end_offset(self) -> int:
        return self.ends[-1]

    @property
    def response_code(self) -> int:
        return ResponseCode.SUCCESS

    @property
    def frames(self) -> list[Body]:
        return [self.replies[self.begin : self.frame_ends[-1]]]

    def up_to(self, end: int, stored_end: Callable[[], int]) -> PendingRun | None:
        """The sends that are answered when replicas hold the log up to `end`; None if there are none. If there are others,
        these stay here, and the returned sends are removed."""
        if end < self.ends[0]:
            return None
        if end >= self.ends[-1]:
            return self
        count = bisect_right(self.ends, end)
        part = replace(self, ends=self.ends[:count], frame_ends=self.frame_ends[:count])
        self.begin, self.ends, self.frame_ends = (
            part.frame_ends[-1],
            self.ends[count:],
            self.frame_ends[count:],
        )
        return part

    def each(self) -> list[PendingSend]:
        """The sends one by one."""
        replies = commands_in(memoryview(self.replies)[self.begin : self.frame_ends[-1]])
        return [
            PendingSend(end, self.deadline_ms, self.peer, reply, self.request_code)
            for end, reply in zip(self.ends, replies, strict=True)
        ]


Waiting = PendingSend | PendingRun


class Answered(Protocol):
    """`count` sends of one connection that get the same answer."""

    @property
    def count(self) -> int: ...

    @property
    def request_code(self) -> int: ...

    @property
    def response_code(self) -> int: ...

    @property
    def deadline_ms(self) -> int: ...


class PendingSends:
    """The waiting sends of a broker, `count_max` at most. Further sends are rejected before they are stored.

    `on_answer`, if given, is called with the sends that are being answered."""

    def __init__(
        self,
        count_max: int,
        on_answer: Callable[[Sequence[Waiting]], None] | None = None,
    ) -> None:
        self._on_answer = on_answer
        self._sends: deque[Waiting] = deque()
        self._count = 0
        self._count_max = count_max

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count >= self._count_max

    @property
    def first_end(self) -> int:
        """End of the first send; above every offset if no send waits."""
        return self._sends[0].first_end if self._sends else NONE_WAITS

    @property
    def last_end(self) -> int:
        """End of the last send; 0 if no send waits."""
        return self._sends[-1].end_offset if self._sends else 0

    def add(self, send: Waiting) -> None:
        assert not self._sends or send.first_end >= self._sends[-1].end_offset
        self._sends.append(send)
        self._count += send.count

    def acknowledged(self, end: int, stored_end: Callable[[], int] = lambda: 0) -> None:
        """Answer sends below `end`, up to which every member holds the log. A send that is `alone` is answered if it is below
        `stored_end()`, up to which the log is stored here."""
        sends = self._sends
        answered: list[Waiting] = []
        while sends and (part := sends[0].up_to(end, stored_end)) is not None:
            answered.append(part)
            self._count -= part.count
            if part is not sends[0]:
                break
            sends.popleft()
        if answered:
            self._answer(answered)

    def expire(self, now_ms: int, replicated_end: int) -> None:
        """Answer sends after their deadline. The other members hold the log up to `replicated_end`."""
        sends = self._sends
        expired: list[PendingSend] = []
        while sends and sends[0].deadline_ms <= now_ms:
            expired += sends.popleft().each()
        self._count -= len(expired)
        unflushed = [send for send in expired if send.end_offset <= replicated_end]
        self._answer_unknown(unflushed, ResponseCode.FLUSH_DISK_TIMEOUT, UNFLUSHED_REMARK)
        self._answer_unknown(expired[len(unflushed) :], ResponseCode.FLUSH_SLAVE_TIMEOUT, UNKNOWN_REMARK)

    def give_up(self) -> None:
        """Answer all sends with an unknown outcome, because the broker is not master any more."""
        given_up = [send for waiting in self._sends for send in waiting.each()]
        self._sends.clear()
        self._count = 0
        self._answer_unknown(given_up, ResponseCode.FLUSH_SLAVE_TIMEOUT, DEMOTED_REMARK)

    def _answer_unknown(self, sends: list[PendingSend], code: ResponseCode, remark: str) -> None:
        for send in sends:
            if send.unknown is not None:
                send.reply = send.unknown
            elif not send.alone:
                send.reply.code = code
                send.reply.remark = remark
        self._answer(sends)

    def _answer(self, sends: Sequence[Waiting]) -> None:
        if self._on_answer is not None and sends:
            self._on_answer(sends)
        if len(sends) == 1:
            sends[0].peer.write(sends[0].frames)
            return
        by_peer: dict[Peer, list[Body]] = {}
        for send in sends:
            by_peer.setdefault(send.peer, []).extend(send.frames)
        for peer, frames in by_peer.items():
            peer.write(frames)
