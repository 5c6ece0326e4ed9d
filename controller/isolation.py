"""Detection of a leading controller that is isolated from all brokers, and when it should transfer leadership.

A network can separate the leader from all brokers and from no controller. Raft keeps such a leader, which can neither
see live brokers nor notify any of an election.

Invariant: a leader steps down only if brokers are registered and it received no heartbeat for its whole patience. The
patience is at least a third of the lifetime in the last heartbeat, and at least three of the longest pauses between
heartbeats, those before it led included. Where it never received any, it is the whole lifetime, because the brokers
may be new. It doubles each time in a row, up to `PATIENCE_MS_MAX`, because all brokers may be down. If another
controller led for long in between, the row ends, because that one heard brokers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controller.heartbeats import UNHEARD_TIMEOUT_MS

PATIENCE_MS_MAX = 600_000
LONG_LED = 16
"""Multiple of the own patience: isolated members have about the same one each, and groups are smaller."""


class Hearing:
    """State of one controller. Times exclude pauses of the process, in ms."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._heard_ms: int | None = None
        self._pause_ms_max = 0
        self._pause_before_ms_max = 0  # up to the present leadership, since the one before it began
        self._lifetime_ms = UNHEARD_TIMEOUT_MS
        self._gave_way = 0  # times in a row
        self._gave_way_ms = 0

    def leads_from(self, now_ms: int) -> None:
        """Start the full patience of a new leadership."""
        if now_ms - self._gave_way_ms > LONG_LED * self._patience_ms:
            self._gave_way = 0
        self._last_ms = now_ms
        self._pause_before_ms_max, self._pause_ms_max = self._pause_ms_max, 0

    def heard(self, lifetime_ms: int, now_ms: int) -> None:
        """Note the heartbeat of a registered broker with this lifetime, whether this controller leads or not."""
        if self._heard_ms is not None and now_ms - self._heard_ms < lifetime_ms:  # a longer one is an outage
            self._pause_ms_max = max(self._pause_ms_max, now_ms - self._heard_ms)
        self._last_ms = self._heard_ms = now_ms
        self._lifetime_ms = lifetime_ms
        self._gave_way = 0

    @property
    def _patience_ms(self) -> int:
        pause_ms = max(self._pause_ms_max, self._pause_before_ms_max)
        silence_ms = self._lifetime_ms if self._heard_ms is None else self._lifetime_ms // 3
        return min(max(silence_ms, 3 * pause_ms) << min(self._gave_way, 16), PATIENCE_MS_MAX)

    def should_give_way(self, now_ms: int) -> bool:
        return now_ms - self._last_ms > self._patience_ms

    def give_way(self, members: Iterable[str], self_id: str, now_ms: int) -> str:
        """The controller that is to lead next: in the order of ids, another one each time."""
        self._last_ms = self._gave_way_ms = now_ms
        others = sorted(set(members) - {self_id}, key=lambda peer: (peer < self_id, peer))
        target = others[self._gave_way % len(others)]
        self._gave_way += 1
        return target
