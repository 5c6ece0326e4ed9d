"""Detects that the leading controller is isolated from all brokers, and decides when it should transfer leadership.

A network fault can separate the leader from all brokers but from no controller. Raft keeps such a leader, although it can
neither see live brokers nor notify a broker of an election.

Invariant: a leader steps down only if brokers are registered and it received no heartbeat for its whole patience. The patience
is at least a third of the lifetime in the last heartbeat, and at least three times the longest pause between heartbeats, pauses
before the leadership included. A leader that never received a heartbeat waits for the whole lifetime, because the brokers may
be new. Each time that the leader steps down again the patience doubles, up to `PATIENCE_MS_MAX`, because all brokers may be
down. The doubling ends with the next heartbeat, or if another controller led for long in between, because that controller heard
brokers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controller.heartbeats import UNHEARD_TIMEOUT_MS

PATIENCE_MS_MAX = 600_000
LONG_LED = 16
"""Another controller led for long if it led for more than this multiple of the own patience. All isolated controllers have
about the same patience, and a group has fewer than 16 members."""


class Hearing:
    """The state of one controller. Times are in ms, without pauses of the process."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._heard_ms: int | None = None
        self._pause_ms_max = 0
        self._pause_before_ms_max = 0  # from the start of the last leadership to the start of this one
        self._lifetime_ms = UNHEARD_TIMEOUT_MS
        self._gave_way = 0  # how many times in a row
        self._gave_way_ms = 0

    def leads_from(self, now_ms: int) -> None:
        """Start the full patience of a new leadership."""
        if now_ms - self._gave_way_ms > LONG_LED * self._patience_ms:
            self._gave_way = 0
        self._last_ms = now_ms
        self._pause_before_ms_max, self._pause_ms_max = self._pause_ms_max, 0

    def heard(self, lifetime_ms: int, now_ms: int) -> None:
        """Record the heartbeat of a registered broker with this lifetime, whether this controller leads or not."""
        if self._heard_ms is not None and now_ms - self._heard_ms < lifetime_ms:  # longer is an outage
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
        """The controller that should lead next. The first call in a row returns the controller with the next higher id (after
        the highest, the lowest), and each further call the one after that. A heartbeat ends the row."""
        self._last_ms = self._gave_way_ms = now_ms
        others = sorted(set(members) - {self_id}, key=lambda peer: (peer < self_id, peer))
        target = others[self._gave_way % len(others)]
        self._gave_way += 1
        return target
