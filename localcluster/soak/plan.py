"""The plan of a soak, and its brokers' settings.

Invariant: only age decides what retention removes, however full this machine's disk is."""

from __future__ import annotations

from dataclasses import dataclass

from localcluster.soak.strikekinds import StrikeKind

RETENTIONS_IN_A_RUN = 12
"""In a run of an hour, five minutes of log are kept, so all data is replaced several times in the last two thirds."""
RESERVED_S_MIN = 60
"""This is longer than a fault keeps a replica away, because a replica whose next data retention has deleted cannot rejoin."""
CLEANS_IN_A_RETENTION = 30
CLEAN_MS = 200, 10_000
FORWARD_S = 5
PAGES_SHARE = 0.05
PAGE_S = 5.0, 60.0
SAMPLES_IN_A_RUN = 120
SAMPLE_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """A run with `rate` messages a second of `mean_bytes` on average. The log is kept for `reserved_s`."""

    seconds: float
    seed: int
    rate: float
    mean_bytes: int
    segment_bytes: int
    reserved_s: int
    kinds: tuple[StrikeKind, ...]

    @property
    def sample_s(self) -> float:
        return min(SAMPLE_S_MAX, self.seconds / SAMPLES_IN_A_RUN)

    def broker_settings(self) -> dict[str, str]:
        clean_ms = min(max(1000 * self.reserved_s // CLEANS_IN_A_RETENTION, CLEAN_MS[0]), CLEAN_MS[1])
        return {
            "fileReservedSeconds": str(self.reserved_s),
            "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
            "cleanResourceInterval": str(clean_ms),
            "diskMaxUsedSpaceRatio": "100",
            "diskSpaceCleanForciblyRatio": "100",
            "diskSpaceWarningLevelRatio": "100",
            "cleanFileForciblyEnable": "false",
            "shutdownForwardSeconds": str(FORWARD_S),
        }


def page_after_s(elapsed_s: float) -> float:
    """The time from one page to the next: short at first, later a minute."""
    return min(max(PAGES_SHARE * elapsed_s, PAGE_S[0]), PAGE_S[1])


def reserved_s_for(seconds: float) -> int:
    """The default time for which a run of this length keeps its log."""
    return max(round(seconds / RETENTIONS_IN_A_RUN), RESERVED_S_MIN)
