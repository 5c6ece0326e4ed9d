"""A meter of the bytes in the last full second.

Invariant: `last_second` never counts a second that is still running. Pure."""

from __future__ import annotations

_SECOND_MS = 1_000


class ByteRate:
    """The meter of one direction of one link."""

    def __init__(self) -> None:
        self._second = 0
        self._bytes = 0
        self._last_second_bytes = 0

    def add(self, size: int, now_ms: int) -> None:
        self._roll(now_ms)
        self._bytes += size

    def last_second(self, now_ms: int) -> int:
        self._roll(now_ms)
        return self._last_second_bytes

    def _roll(self, now_ms: int) -> None:
        second = now_ms // _SECOND_MS
        if second != self._second:
            self._last_second_bytes = self._bytes if second == self._second + 1 else 0
            self._second, self._bytes = second, 0
