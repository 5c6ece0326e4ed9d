"""How far each delay level is delivered.

Invariant: every message of a level below its offset was put into its real queue, and the replicas that had to hold
that record held it, before the offset moved there. So whoever is elected delivers again rather than never. Pure."""

from __future__ import annotations

from remoting.bodies.offsets import DelayOffsetWrapper

DELAY_OFFSETS_FILE = "config/delayOffset.json"


class DelayOffsets:
    """Delay level (1 is the first) -> next offset in queue level - 1 of the schedule topic."""

    def __init__(self) -> None:
        self._wrapper = DelayOffsetWrapper()
        self.advances = 0

    def next_offset(self, level: int) -> int:
        return self._wrapper.offset_table.get(level, 0)

    def advance(self, level: int, next_offset: int) -> None:
        """All before `next_offset` is delivered."""
        self._wrapper.offset_table[level] = next_offset
        self.advances += 1

    def adopt(self, wrapper: DelayOffsetWrapper) -> bool:
        """Take over the master's table; False when nothing is new."""
        if wrapper.offset_table == self._wrapper.offset_table:
            return False
        self._wrapper = wrapper
        return True

    def encode(self) -> bytes:
        """The content of delayOffset.json and the reply to 45."""
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Take in delayOffset.json. Raises BodyError."""
        self._wrapper = DelayOffsetWrapper.decode(data)
