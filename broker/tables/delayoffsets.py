"""The delivery progress of each delay level.

Invariant: an offset moves only after every message of its level below it was put into its real queue, and the required replicas
hold those records. So a new master may deliver messages again, but skips none. A pair's master requires no replica for that, so
its slaves get only offsets whose log a slave holds (broker.tables.copiedoffsets). The offsets belong to the log up to
`rests_on`; no slave with a shorter log uses them, and no disk with a shorter log stores them. Pure."""

from __future__ import annotations

from remoting.bodies.offsets import DelayOffsetWrapper

DELAY_OFFSETS_FILE = "config/delayOffset.json"


class DelayOffsets:
    """Delay level (1 is the first) -> next offset in queue level - 1 of the schedule topic."""

    def __init__(self) -> None:
        self._wrapper = DelayOffsetWrapper()
        self.advances = 0
        self.from_file = False
        """Whether the table is as read from this disk: not copied from a master, and not compared with the log since."""
        self.rests_on = 0
        """An offset of the log. A table that was read from this disk belongs to the log that was on the disk."""
        self._given: DelayOffsetWrapper | None = None
        self._given_rests_on = 0
        self._all_is_given = True

    def next_offset(self, level: int) -> int:
        return self._wrapper.offset_table.get(level, 0)

    def advance(self, level: int, next_offset: int) -> None:
        """Set the offset of a level: all messages before `next_offset` are delivered."""
        self._wrapper.offset_table[level] = next_offset
        self.advances += 1

    def adopt(self, wrapper: DelayOffsetWrapper, rests_on: int = 0) -> bool:
        """Adopt the master's table. Returns False if nothing changed."""
        self.from_file = False
        if wrapper.offset_table == self._wrapper.offset_table:
            return False
        self._wrapper, self.rests_on = wrapper, rests_on
        return True

    def as_they_are(self) -> DelayOffsetWrapper:
        return DelayOffsetWrapper(dict(self._wrapper.offset_table), self._wrapper.data_version)

    def give(self, given: DelayOffsetWrapper | None, rests_on: int) -> None:
        """From now on send slaves this table, even if more is delivered. None: send nothing."""
        self._given, self._given_rests_on, self._all_is_given = given, rests_on, False

    def give_all(self) -> None:
        """From now on send slaves the present table."""
        self._given, self._all_is_given = None, True

    def for_slaves(self) -> tuple[bytes, int] | None:
        """The reply to GET_ALL_DELAY_OFFSET (45), and the log end to which it belongs; None while slaves may get no offsets."""
        if self._all_is_given:
            return self._wrapper.encode(), self.rests_on
        return None if self._given is None else (self._given.encode(), self._given_rests_on)

    def encode(self) -> bytes:
        """The content of delayOffset.json."""
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Read the content of delayOffset.json. Raises BodyError."""
        self._wrapper, self.from_file = DelayOffsetWrapper.decode(data), True
