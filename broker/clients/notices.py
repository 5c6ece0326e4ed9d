"""Notifies consumers that their group changed (NOTIFY_CONSUMER_IDS_CHANGED, 40). Each consumer then rebalances. Upstream:
DefaultConsumerIdsChangeListener.

Invariant: after a change every member is notified once more, however many changes come at the same time. The first `SLICE`
notifications within `PAUSE_MS` are sent during the change itself. The others follow in slices of this size, group by group."""

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
"""A notified client asks for the group's members at once. With these values a group of 1,000 clients asks within 50 ms."""


class GroupNotices:
    """The notifications. `members(group)` returns the connections to notify."""

    def __init__(self, members: Callable[[str], Sequence[Peer]], clock: Clock, tasks: Tasks) -> None:
        self._members = members
        self._clock = clock
        self._timer = CoreTimer(clock, tasks, self._notify)
        self._due: OrderedDict[str, None] = OrderedDict()
        self._waiting: Sequence[Peer] = ()
        """The connections that are still to be notified, of the present group."""
        self._frame = b""
        self._left, self._renewed_at_ms = 0, 0

    def changed(self, groups: Iterable[str]) -> None:
        """Notify groups, because members came or left, or read one more topic."""
        self._due.update(dict.fromkeys(groups))
        self._notify()

    def _notify(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._renewed_at_ms:
            self._left, self._renewed_at_ms = SLICE, now_ms + PAUSE_MS
        while self._left and (self._waiting or self._due):
            if not self._waiting:
                group, _ = self._due.popitem(last=False)
                self._waiting, self._frame = self._members(group), frame_of(group)
            notified, self._waiting = self._waiting[: self._left], self._waiting[self._left :]
            for peer in notified:
                peer.write([self._frame])
            self._left -= len(notified)
        if self._waiting or self._due:
            self._timer.due_at(self._renewed_at_ms)


def frame_of(group: str) -> bytes:
    """The frame of the notification. It is the same for all members, because no client uses the opaque of a one-way request."""
    command = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupHeader(group))
    command.flag |= ONEWAY_BIT
    return b"".join(encode(command))
