"""What a consumer has of one queue: messages that wait, messages in the application's hands, and the offset to commit.
Upstream: ProcessQueue.

Invariant: `committed` is at most the offset of the first message that is not finished, so that a message is never skipped.
Messages are taken in the queue's order. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mqclient.message import StoredMessage


class QueueProgress:
    """The progress of one queue from `start` on. `next_offset` is where to pull."""

    def __init__(self, start: int) -> None:
        self.next_offset = start
        self._waiting: deque[StoredMessage] = deque()
        self._taken: dict[int, StoredMessage] = {}
        """Messages in the application's hands, by queue offset."""
        self._unfinished: deque[StoredMessage] = deque()
        """All messages that are not finished, in order, and some that are finished."""
        self._finished: set[int] = set()
        """Queue offsets of finished messages behind an unfinished one."""
        self.count = self.size_bytes = 0
        """Of the messages that are not finished."""

    def add(self, messages: Iterable[StoredMessage], next_offset: int) -> None:
        """Add messages that a pull returned; the next pull begins at `next_offset`."""
        for message in messages:
            if message.queue_offset >= self.next_offset:
                self._waiting.append(message)
                self._unfinished.append(message)
                self.count += 1
                self.size_bytes += message.size_bytes
        self.next_offset = max(self.next_offset, next_offset)

    @property
    def committed(self) -> int:
        """The offset to commit: all messages below it are finished."""
        return self._unfinished[0].queue_offset if self._unfinished else self.next_offset

    @property
    def waits(self) -> bool:
        """Whether a message waits to be taken."""
        return bool(self._waiting)

    @property
    def last_offset(self) -> int:
        """The offset of the last message that is not finished; 0 if there is none."""
        return self._unfinished[-1].queue_offset if self._unfinished else 0

    def take(self) -> StoredMessage:
        """The next waiting message, which is in the application's hands from now on."""
        message = self._waiting.popleft()
        self._taken[message.queue_offset] = message
        return message

    def finish(self, message: StoredMessage) -> bool:
        """The application has finished a message that it took. Returns False if it did not take it here."""
        offset = message.queue_offset
        if self._taken.get(offset) is not message:
            return False
        del self._taken[offset]
        self._finished.add(offset)
        self.count -= 1
        self.size_bytes -= message.size_bytes
        while self._unfinished and self._unfinished[0].queue_offset in self._finished:
            self._finished.discard(self._unfinished.popleft().queue_offset)
        return True

    def give_back(self, message: StoredMessage) -> bool:
        """A message in the application's hands waits again, before all later ones. Returns False if it was not taken here."""
        if self._taken.get(message.queue_offset) is not message:
            return False
        del self._taken[message.queue_offset]
        at = 0
        while at < len(self._waiting) and self._waiting[at].queue_offset < message.queue_offset:
            at += 1
        self._waiting.insert(at, message)
        return True
