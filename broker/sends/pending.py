"""Sends that are stored and wait for the other members of the SyncStateSet.

Invariant: they stand in one deque in the order of their end offsets, which is also that of their deadlines; each is
answered exactly once: OK when the acknowledged end covers it, else with what tells its client that the message is
stored and its fate unknown (for sends FLUSH_DISK_TIMEOUT where only the own disk lacks it, else FLUSH_SLAVE_TIMEOUT).
Replies that go to one connection leave in one write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer

UNKNOWN_REMARK = "flush data to slave timeout"
UNFLUSHED_REMARK = "flush data to disk timeout"
DEMOTED_REMARK = (
    "this broker stopped being master before all replicas had the message; whether it stays is unknown"
)

NONE_WAITS = 1 << 63


@dataclass(slots=True)
class PendingSend:
    """A stored send and the reply for when all hold it (code 0); offsets exclusive, times monotonic ms. `unknown` is
    the reply for when that stays unknown; without one `reply` becomes it. `request_code` is what asked for it. `alone`: no
    slave can be waited for, `reply` says so, and it goes once the message is stored here."""

    end_offset: int
    deadline_ms: int
    peer: Peer
    reply: RemotingCommand
    request_code: int
    unknown: RemotingCommand | None = None
    alone: bool = False


class PendingSends:
    """The waiting sends of a broker, `count_max` at most; more are refused before they are stored.

    `on_answer`, where there is one, gets those that are being answered."""

    def __init__(
        self,
        count_max: int,
        on_answer: Callable[[Sequence[PendingSend]], None] | None = None,
    ) -> None:
        self._on_answer = on_answer
        self._sends: deque[PendingSend] = deque()
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._sends)

    @property
    def full(self) -> bool:
        return len(self._sends) >= self._count_max

    @property
    def first_end(self) -> int:
        """Where the first one ends; above every offset when none waits."""
        return self._sends[0].end_offset if self._sends else NONE_WAITS

    def add(self, send: PendingSend) -> None:
        assert not self._sends or send.end_offset >= self._sends[-1].end_offset
        self._sends.append(send)

    def acknowledged(self, end: int, stored_end: int = 0) -> None:
        """All that was stored below `end` is held by every member, and what is below `stored_end` is stored here: answer it."""
        sends = self._sends
        answered: list[PendingSend] = []
        while sends and sends[0].end_offset <= (stored_end if sends[0].alone else end):
            answered.append(sends.popleft())
        self._answer(answered)

    def expire(self, now_ms: int, replicated_end: int) -> None:
        """Answer those whose time is over; what ends at or below `replicated_end` the other members hold."""
        sends = self._sends
        expired: list[PendingSend] = []
        while sends and sends[0].deadline_ms <= now_ms:
            expired.append(sends.popleft())
        unflushed = [send for send in expired if send.end_offset <= replicated_end]
        self._answer_unknown(unflushed, ResponseCode.FLUSH_DISK_TIMEOUT, UNFLUSHED_REMARK)
        self._answer_unknown(expired[len(unflushed) :], ResponseCode.FLUSH_SLAVE_TIMEOUT, UNKNOWN_REMARK)

    def give_up(self) -> None:
        """The broker is master no more: nobody will ever know here."""
        given_up = list(self._sends)
        self._sends.clear()
        self._answer_unknown(given_up, ResponseCode.FLUSH_SLAVE_TIMEOUT, DEMOTED_REMARK)

    def _answer_unknown(self, sends: list[PendingSend], code: ResponseCode, remark: str) -> None:
        for send in sends:
            if send.unknown is not None:
                send.reply = send.unknown
            elif not send.alone:
                send.reply.code = code
                send.reply.remark = remark
        self._answer(sends)

    def _answer(self, sends: list[PendingSend]) -> None:
        if self._on_answer is not None and sends:
            self._on_answer(sends)
        by_peer: dict[Peer, list[RemotingCommand]] = {}
        for send in sends:
            by_peer.setdefault(send.peer, []).append(send.reply)
        for peer, replies in by_peer.items():
            peer.send(replies)
