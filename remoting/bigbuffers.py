"""The receive buffers of one server that are big because a long frame has begun and not ended.

Invariant: together they have at most `bytes_max`, or there is only one. The connection whose frame began first makes room: long
frames end soon unless somebody holds them back, who may not even have signed a request. If all frames are whole, the connection
makes room whose buffer has had its size for the longest time."""

from __future__ import annotations

from typing import Protocol

from remoting.frame import BUFFER_BYTES_KEPT

TOO_MUCH = "too many long frames are received at once, and its frame began first"


class Receiving(Protocol):
    """A connection."""

    @property
    def frame_begun_ms(self) -> int | None:
        """When its present frame began; None between frames."""
        ...

    def cut(self, why: str) -> None: ...


class BigBuffers:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sizes: dict[Receiving, int] = {}
        self._bytes = 0

    def has(self, connection: Receiving, size: int) -> None:
        """The receive buffer of `connection` has this size now; 0 if it has ended."""
        self._bytes -= self._sizes.pop(connection, 0)
        if size <= BUFFER_BYTES_KEPT:
            return
        self._sizes[connection] = size
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._sizes) > 1:
            begun = {each: each.frame_begun_ms for each in self._sizes if each.frame_begun_ms is not None}
            first = min(begun, key=lambda each: begun[each] or 0, default=next(iter(self._sizes)))
            self._bytes -= self._sizes.pop(first)
            first.cut(TOO_MUCH)
