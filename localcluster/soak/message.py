"""The messages of a soak. Keys and bodies are computed from the run and a number, so a sent message is recognised without
being remembered.

Invariant: two numbers of a run, or two runs, share neither key nor body. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import shake_128

BODY_BYTES_MIN = 64
LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one run. Some are sent to `topic`; others are delayed and sent to `delayed_topic`. Bodies have
    `mean_bytes` on average."""

    run: str
    topic: str
    delayed_topic: str
    mean_bytes: int

    def key(self, number: int) -> str:
        return f"{self.run}-{number}"

    def number(self, key: str) -> int | None:
        """The number of a message that this run sent; None for any other message."""
        own, _, number = key.rpartition("-")
        return int(number) if own == self.run and number.isascii() and number.isdecimal() else None

    def body(self, number: int) -> bytes:
        """The body of a message. Sizes are uniformly distributed from BODY_BYTES_MIN to about twice `mean_bytes`."""
        source = shake_128(self.key(number).encode())
        lengths = max(2 * (self.mean_bytes - BODY_BYTES_MIN), 0) + 1
        return source.digest(BODY_BYTES_MIN + int.from_bytes(source.digest(LENGTH_BYTES)) % lengths)
