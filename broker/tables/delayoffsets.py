"""How far each delay level is delivered.

Invariant: every message of a level below its offset was put into its real queue, and the replicas that had to hold
that record held it, before the offset moved there. So whoever is elected delivers again rather than never. A pair's master
needs nobody for that, so it gives slaves only what one of them holds, see broker.tables.copiedoffsets. The log holds what the
offsets tell of up to `rests_on`: no slave takes them, and no disk, that lacks it. Pure."""

from __future__ import annotations

from remoting.bodies.offsets import DelayOffsetWrapper

DELAY_OFFSETS_FILE = "config/delayOffset.json"


class DelayOffsets:
    """Delay level (1 is the first) -> next offset in queue level - 1 of the schedule topic."""

    def __init__(self) -> None:
        self._wrapper = DelayOffsetWrapper()
        self.advances = 0
        self.from_file = False
        """Whether they were read from this disk, and neither a master's nor compared with the log since."""
        self.rests_on = 0
        """An offset of the log; what was read from this disk rests on what was there before."""
        self._given: DelayOffsetWrapper | None = None
        self._given_rests_on = 0
        self._all_is_given = True

    def next_offset(self, level: int) -> int:
        return self._wrapper.offset_table.get(level, 0)

    def advance(self, level: int, next_offset: int) -> None:
        """All before `next_offset` is delivered."""
        self._wrapper.offset_table[level] = next_offset
        self.advances += 1

    def adopt(self, wrapper: DelayOffsetWrapper, rests_on: int = 0) -> bool:
        """Take over the master's table; False when nothing is new."""
        self.from_file = False
        if wrapper.offset_table == self._wrapper.offset_table:
            return False
        self._wrapper, self.rests_on = wrapper, rests_on
        return True

    def as_they_are(self) -> DelayOffsetWrapper:
        return DelayOffsetWrapper(dict(self._wrapper.offset_table), self._wrapper.data_version)

    def give(self, given: DelayOffsetWrapper | None, rests_on: int) -> None:
        """From now on slaves get this, whatever is delivered since; None is nothing."""
        self._given, self._given_rests_on, self._all_is_given = given, rests_on, False

    def give_all(self) -> None:
        """Slaves get the table as it is, always."""
        self._given, self._all_is_given = None, True

    def for_slaves(self) -> tuple[bytes, int] | None:
        """The reply to 45, and what it rests on; None while nothing can be given."""
        if self._all_is_given:
            return self._wrapper.encode(), self.rests_on
        return None if self._given is None else (self._given.encode(), self._given_rests_on)

    def encode(self) -> bytes:
        """The content of delayOffset.json."""
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Take in delayOffset.json. Raises BodyError."""
        self._wrapper, self.from_file = DelayOffsetWrapper.decode(data), True
