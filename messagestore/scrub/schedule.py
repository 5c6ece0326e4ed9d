"""When the next slice of the log is scrubbed. The first pass checks the records that this process has not written. Each later
pass checks all cold bytes, those below the newest few segments.

    IDLE --interval over--> IN A PASS --its end reached--> IDLE

Invariant: in any second a pass takes at most its rate plus one slice. A record costs RECORD_COST_BYTES in addition to its
bytes, because its check and the comparison with its queue entry take time rather than bandwidth. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mqruntime.core import NEVER_MS

RECORD_COST_BYTES = 1024
RETRY_MS = 10_000


@dataclass(frozen=True, slots=True)
class BeginPass:
    """Begin a pass, and call `begun` with its range. With `again`, all cold bytes count as unchecked again."""

    again: bool


@dataclass(frozen=True, slots=True)
class ScrubSlice:
    """Check the unchecked bytes of [start, end), then call `scrubbed` or `failed`."""

    start: int
    end: int


Action = BeginPass | ScrubSlice


class ScrubSchedule:
    """Offsets are physical; times are monotonic ms. A rate of 0 bytes a second disables the scrub."""

    def __init__(self, *, bytes_per_second: int, interval_ms: int, now_ms: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._interval_ms = interval_ms
        self._due_ms = now_ms if bytes_per_second else NEVER_MS
        self._in_pass = False
        self._end = 0
        self.position = 0
        """The position of the current pass, or of the last one."""
        self.passes = 0
        """Number of passes that have ended."""

    @property
    def next_tick_ms(self) -> int:
        return self._due_ms

    def tick(self, now_ms: int) -> list[Action]:
        """The action that is due, one at a time. The next action is due after the result of this action was reported."""
        if now_ms < self._due_ms:
            return []
        self._due_ms = NEVER_MS
        if not self._in_pass:
            return [BeginPass(again=self.passes > 0)]
        return [ScrubSlice(self.position, self._end)]

    def begun(self, start: int, end: int, now_ms: int) -> None:
        """Note that the pass has begun, and that it covers [start, end)."""
        self._in_pass = True
        self._end = end
        self.scrubbed(start, 0, 0, now_ms)

    def scrubbed(self, position: int, size: int, records: int, now_ms: int) -> None:
        """Note that the pass has reached `position`, and has read `size` bytes with `records` records since the last report."""
        self.position = position
        if position >= self._end:
            self._in_pass = False
            self.passes += 1
            self._due_ms = now_ms + self._interval_ms
        else:
            cost = size + RECORD_COST_BYTES * records
            self._due_ms = now_ms + -(-1000 * cost // self._bytes_per_second)

    def failed(self, now_ms: int) -> None:
        """Note that the disk did not return the slice, which is then tried again after a pause."""
        self._due_ms = now_ms + RETRY_MS
