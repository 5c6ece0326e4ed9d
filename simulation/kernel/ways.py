"""The ways between simulated hosts. A way decides whether a packet passes in one direction from one host to another, and when
it arrives.

Invariant: all draws for the network come from one generator, in the order of its events."""

from __future__ import annotations

import random
from contextvars import Context

from simulation.kernel.loop import SimulatedLoop
from simulation.kernel.trace import Trace

LOOPBACK_DELAY_US = (10, 40)
DELAY_US = (100, 500)

Way = tuple[str, str]
"""(from host, to host)."""


class Ways:
    """The state of each way. `context` is that of the hosts' kernels, which belongs to no process."""

    def __init__(self, loop: SimulatedLoop, seed: int, trace: Trace) -> None:
        self.loop = loop
        self.context = Context()
        self._random = random.Random(f"{seed}/network")
        self._trace = trace
        self._cut_since_us: dict[Way, int] = {}
        self._delays_us: dict[Way, tuple[int, int]] = {}
        self._silent_hosts: dict[str, None] = {}
        self._stalled: dict[tuple[str, str, int], None] = {}

    def cut(self, host: str, other: str, *, both: bool = True) -> None:
        """Nothing passes from `host` to `other` (and back, if `both`) until `heal`. Senders notice nothing."""
        for way in ((host, other), (other, host)) if both else ((host, other),):
            self._cut_since_us.setdefault(way, self.loop.now_us)

    def stall(self, host: str, other: str, port: int) -> None:
        """Nothing passes between two hosts on connections with `port` of either host until `heal`, because the packets are
        lost. Other connections work."""
        self._stalled[host, other, port] = self._stalled[other, host, port] = None

    def is_stalled(self, name: tuple[str, int], other: tuple[str, int]) -> bool:
        """Whether a connection between these two hosts is stalled."""
        stalled, hosts = self._stalled, (name[0], other[0])
        return bool(stalled) and ((*hosts, name[1]) in stalled or (*hosts, other[1]) in stalled)

    def delay(self, host: str, other: str, min_ms: float, max_ms: float) -> None:
        """Set the one-way delay between two hosts, in both directions. It is drawn evenly for each write."""
        assert 0 < min_ms <= max_ms
        for way in ((host, other), (other, host)):
            self._delays_us[way] = (int(min_ms * 1000), int(max_ms * 1000))

    def usual_delays(self) -> None:
        """Reset the delays between all hosts to those at the beginning."""
        self._delays_us.clear()

    def is_cut(self, host: str, other: str) -> bool:
        """Whether nothing passes from `host` to `other`."""
        silent, cut = self._silent_hosts, self._cut_since_us
        if silent and (host in silent or other in silent):
            return True
        return bool(cut) and (host, other) in cut

    def arrival_us(self, host: str, other: str) -> int:
        """When a packet sent now arrives."""
        low, high = LOOPBACK_DELAY_US if host == other else DELAY_US
        if self._delays_us and host != other:
            low, high = self._delays_us.get((host, other), DELAY_US)
        return self.loop.now_us + low + int(self._random.random() * (high - low))

    def split(self, size: int, share: float, gap_us_max: int) -> tuple[int, int]:
        """How many of `size` bytes a reader gets at once, and after how long the rest follows."""
        if self._random.random() >= share:
            return size, 0
        return self._random.randint(1, size), int(self._random.random() * gap_us_max)

    def trace(self, kind: str, where: str, data: bytes | memoryview = b"") -> None:
        self._trace.event(self.loop.now_us, kind, where, len(data), data)
