"""The running hash of all events of a world.

Invariant: two runs of one seed that delivered the same bytes at the same virtual times have the same digest, in any process and
under any PYTHONHASHSEED. If two runs differ, the digests differ from the first difference on."""

from __future__ import annotations

import zlib
from collections import deque

RECENT_MAX = 200


class Trace:
    """`digest` is a CRC over all events so far. `recent` holds the last events for a failure report."""

    def __init__(self) -> None:
        self.digest = 0
        self.events = 0
        self.recent: deque[tuple[int, str, str, int]] = deque(maxlen=RECENT_MAX)

    def event(self, at_us: int, kind: str, where: str, size: int = 0, data: bytes | memoryview = b"") -> None:
        """Add one delivered chunk, connection change or disk operation at virtual time `at_us`."""
        self.digest = zlib.crc32(data, zlib.crc32(f"{at_us} {kind} {where} {size};".encode(), self.digest))
        self.events += 1
        self.recent.append((at_us, kind, where, size))
