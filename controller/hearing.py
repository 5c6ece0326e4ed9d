"""Whether the leader among the controllers hears brokers at all, and when it should let another one try.

A network can part the leader from all brokers and from no controller. Raft keeps such a leader, and it can neither see who
lives nor tell anybody that it was elected.

Invariant: a leader gives way only while brokers are registered of which it heard none for its whole patience: a third of the
time that the last one announced as its life, and three of the longest pauses between heartbeats at least, also of those that
it heard before it led; the whole of that time where it never heard any, for they may be new. Each time in a row its patience
doubles, `PATIENCE_MS_MAX` at most, for all may be down; not in a row is what another one led long after, for that one heard
brokers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controller.heartbeats import UNHEARD_TIMEOUT_MS

PATIENCE_MS_MAX = 600_000
LONG_LED = 16
"""Times the own patience: deaf members have about the same one each, and groups are smaller."""


class Hearing:
    """That of one controller. Times count what it was awake for, in ms."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._heard_ms: int | None = None
        self._pause_ms_max = 0
        self._pause_before_ms_max = 0  # up to the present leadership, since the one before it began
        self._lifetime_ms = UNHEARD_TIMEOUT_MS
        self._gave_way = 0  # times in a row
        self._gave_way_ms = 0

    def leads_from(self, now_ms: int) -> None:
        """Brokers get the whole patience of each leadership."""
        if now_ms - self._gave_way_ms > LONG_LED * self._patience_ms:
            self._gave_way = 0
        self._last_ms = now_ms
        self._pause_before_ms_max, self._pause_ms_max = self._pause_ms_max, 0

    def heard(self, lifetime_ms: int, now_ms: int) -> None:
        """The heartbeat of a registered broker that counts as dead when it is silent for `lifetime_ms`; to whoever leads."""
        if (
            self._heard_ms is not None and now_ms - self._heard_ms < lifetime_ms
        ):  # longer is no pause, but an outage
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

    def yield_to_preferred(self, members: Iterable[str], self_id: str, now_ms: int) -> str:
        """Who is to lead: the next in the order of their ids, another one each time, so that all have their turn."""
        self._last_ms = self._gave_way_ms = now_ms
        others = sorted(set(members) - {self_id}, key=lambda peer: (peer < self_id, peer))
        target = others[self._gave_way % len(others)]
        self._gave_way += 1
        return target
