"""What the connections of one server have not read, and what therefore waits in this process.

Invariant: together it has at most `bytes_max`, or it is all of one connection. The connection that has been behind for the
longest time makes room: a client that reads is behind for a moment only. Pure."""

from __future__ import annotations

from typing import Protocol

TOO_MUCH = "too much is unsent to all connections together, and it has been behind for the longest time"


class Sending(Protocol):
    """A connection."""

    def cut(self, why: str) -> None: ...


class Unsent:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sizes: dict[Sending, int] = {}
        """The connections that are behind, in the order in which they fell behind."""
        self._bytes = 0

    def has(self, connection: Sending, size: int) -> None:
        """So much is unsent to `connection`, which is behind; 0 if it is no longer."""
        self._bytes += size - self._sizes.get(connection, 0)
        if size:
            self._sizes[connection] = size
        else:
            self._sizes.pop(connection, None)
        while self._bytes > self._bytes_max and len(self._sizes) > 1:
            first = next(iter(self._sizes))
            self._bytes -= self._sizes.pop(first)
            first.cut(TOO_MUCH)
