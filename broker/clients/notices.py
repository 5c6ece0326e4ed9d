"""Tells the members of consumer groups that their groups changed (40): each shares the queues anew.

Invariant: after a change every member hears of its group once more, however many changes fall together; what fits into `SLICE`
notifications within `PAUSE_MS` is told within the change itself, the rest in such slices, group by group."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from mqruntime.clock import Clock
from mqruntime.coretimer import CoreTimer
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.frame import encode
from remoting.headers.admin import ConsumerGroupHeader
from remoting.peer import Peer

SLICE, PAUSE_MS = 100, 5
"""Who is told asks for the others at once: a group of 1,000 does so within 50 ms."""


class GroupNotices:
    """`members(group)` are those that are to be told."""

    def __init__(self, members: Callable[[str], Sequence[Peer]], clock: Clock, tasks: Tasks) -> None:
        self._members = members
        self._clock = clock
        self._timer = CoreTimer(clock, tasks, self._tell)
        self._due: OrderedDict[str, None] = OrderedDict()
        self._untold: Sequence[Peer] = ()
        """Of the group that is being told."""
        self._frame = b""
        self._left, self._renewed_at_ms = 0, 0

    def changed(self, groups: Iterable[str]) -> None:
        """Members came or went, or read one more topic."""
        self._due.update(dict.fromkeys(groups))
        self._tell()

    def _tell(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._renewed_at_ms:
            self._left, self._renewed_at_ms = SLICE, now_ms + PAUSE_MS
        while self._left and (self._untold or self._due):
            if not self._untold:
                group, _ = self._due.popitem(last=False)
                self._untold, self._frame = self._members(group), frame_of(group)
            told, self._untold = self._untold[: self._left], self._untold[self._left :]
            for peer in told:
                peer.write([self._frame])
            self._left -= len(told)
        if self._untold or self._due:
            self._timer.due_at(self._renewed_at_ms)


def frame_of(group: str) -> bytes:
    """One for all members: nobody looks at the opaque of a request that has no answer."""
    command = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupHeader(group))
    command.flag |= ONEWAY_BIT
    return b"".join(encode(command))
