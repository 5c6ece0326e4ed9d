"""Delivered offset of each delay level.

Invariant: before an offset moved, every message of its level below it was put into its real queue, and the replicas that had
to hold that record held it. So a new master delivers again rather than never. A pair's master needs no replica for that, so it
gives slaves only offsets that one of them holds the log for, see broker.tables.copiedoffsets. The offsets rest on the log up
to `rests_on`: no slave or disk with a shorter log takes them. Pure."""

from __future__ import annotations

from remoting.bodies.offsets import DelayOffsetWrapper

DELAY_OFFSETS_FILE = "config/delayOffset.json"


class DelayOffsets:
    """Delay level (1 is the first) -> next offset in queue level - 1 of the schedule topic."""

    def __init__(self) -> None:
        self._wrapper = DelayOffsetWrapper()
        self.advances = 0
        self.from_file = False
        """Whether the table was read from this disk, and neither copied from a master nor compared with the log since."""
        self.rests_on = 0
        """An offset of the log; a table read from this disk rests on the log of before."""
        self._given: DelayOffsetWrapper | None = None
        self._given_rests_on = 0
        self._all_is_given = True

    def next_offset(self, level: int) -> int:
        return self._wrapper.offset_table.get(level, 0)

    def advance(self, level: int, next_offset: int) -> None:
        """Set the offset of a level: all before `next_offset` is delivered."""
        self._wrapper.offset_table[level] = next_offset
        self.advances += 1

    def adopt(self, wrapper: DelayOffsetWrapper, rests_on: int = 0) -> bool:
        """Take over the master's table; False when nothing changed."""
        self.from_file = False
        if wrapper.offset_table == self._wrapper.offset_table:
            return False
        self._wrapper, self.rests_on = wrapper, rests_on
        return True

    def as_they_are(self) -> DelayOffsetWrapper:
        return DelayOffsetWrapper(dict(self._wrapper.offset_table), self._wrapper.data_version)

    def give(self, given: DelayOffsetWrapper | None, rests_on: int) -> None:
        """From now on send slaves this table, whatever is delivered since; None for nothing."""
        self._given, self._given_rests_on, self._all_is_given = given, rests_on, False

    def give_all(self) -> None:
        """From now on send slaves the table as it is."""
        self._given, self._all_is_given = None, True

    def for_slaves(self) -> tuple[bytes, int] | None:
        """The reply to 45, and the log end that it rests on; None while nothing can be given."""
        if self._all_is_given:
            return self._wrapper.encode(), self.rests_on
        return None if self._given is None else (self._given.encode(), self._given_rests_on)

    def encode(self) -> bytes:
        """The content of delayOffset.json."""
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Take in delayOffset.json. Raises BodyError."""
        self._wrapper, self.from_file = DelayOffsetWrapper.decode(data), True
