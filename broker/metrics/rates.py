"""Rates per second over the last ten seconds, minute and ten minutes, from samples of a growing count. Pure."""

from __future__ import annotations

from collections import deque

WINDOWS_MS = (10_000, 60_000, 600_000)
SAMPLE_MS = 1_000


class Rates:
    """The rates of one counter. The caller takes a sample at most once a second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def sample(self, count: int, now_ms: int) -> None:
        """Take a sample; `count` is the present total."""
        if self._samples and now_ms - self._samples[-1][0] < SAMPLE_MS:
            return
        self._samples.append((now_ms, count))
        while now_ms - self._samples[0][0] > WINDOWS_MS[-1] + SAMPLE_MS:
            self._samples.popleft()

    def per_second(self, count: int, now_ms: int) -> str:
        """Three numbers separated by blanks, as in upstream's runtime information."""
        return " ".join(f"{self._rate(count, now_ms, window_ms):.2f}" for window_ms in WINDOWS_MS)

    def _rate(self, count: int, now_ms: int, window_ms: int) -> float:
        for at_ms, before in self._samples:
            if now_ms - at_ms <= window_ms and now_ms > at_ms:
                return (count - before) * 1000 / (now_ms - at_ms)
        return 0.0
