"""A limit on sending per second.

Invariant: in any period of t seconds at most t times the rate is sent, plus a burst of what is due in a tenth of a second.
Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

BURST_S = 0.1


@dataclass
class RateLimit:
    """A limit of `per_second` units, which are bytes or messages as the caller counts them; None for no limit."""

    per_second: float | None
    _free_at: float = field(default=0.0)

    def wait_s(self, amount: int, now_s: float) -> float:
        """Take `amount`, and return how long the sender must wait before it sends."""
        if self.per_second is None:
            return 0.0
        self._free_at = max(self._free_at, now_s - BURST_S) + amount / self.per_second
        return max(0.0, self._free_at - now_s)
