"""To whom a leader that others are preferred to gives way; upstream's preferredLeaderIds.

Invariant: only to a member that can lead at once: heard lately, level, and did not just lose the leadership again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn

from dledger.node.node import DLedgerNode
from dledger.raft.leader import most_up_to_date
from dledger.raft.progress import Progress

logger = logging.getLogger(__name__)

LOOK_MS = 1_000
"""So often a leader that is not preferred looks for one that is, as upstream's does."""

BACK_OFF_MS_MIN = 5_000
BACK_OFF_MS_MAX = 60_000
LED_MS = 60_000
"""Who led for as long could lead, and is waited for no longer than at first when it leads no more."""


@dataclass(slots=True)
class Trial:
    """`at_ms`: when the leadership was given last; `until_ms`: not again before, None while that is not back."""

    at_ms: int
    wait_ms: int
    until_ms: int | None = None


class Trials:
    """What became of the leadership with each member that got it from here. One that cannot use it, its disk full, say, costs
    an outage each time: it gets it again after BACK_OFF_MS_MIN, then twice as late each time, up to BACK_OFF_MS_MAX. Pure."""

    def __init__(self) -> None:
        self._trials: dict[str, Trial] = {}

    def gave(self, target: str, now_ms: int) -> None:
        """`target` was handed the leadership, or was to be."""
        former = self._trials.get(target)
        wait_ms = BACK_OFF_MS_MIN if former is None else min(2 * former.wait_ms, BACK_OFF_MS_MAX)
        self._trials[target] = Trial(now_ms, wait_ms)

    def leads(self, now_ms: int) -> None:
        """This member leads: whoever it gave the leadership has it no more, or never got it."""
        for trial in self._trials.values():
            if trial.until_ms is None:
                if now_ms - trial.at_ms >= LED_MS:
                    trial.wait_ms = BACK_OFF_MS_MIN
                trial.until_ms = now_ms + trial.wait_ms

    def allowed(self, among: Collection[str], now_ms: int) -> list[str]:
        """Of `among`, who may be tried."""
        return [peer for peer in among if now_ms >= self._until_ms(peer)]

    def _until_ms(self, peer: str) -> int:
        trial = self._trials.get(peer)
        return 0 if trial is None or trial.until_ms is None else trial.until_ms


def level_among(
    preferred: Collection[str], progress: Mapping[str, Progress], held_index: int, heard_since_ms: int
) -> str | None:
    """Who of `preferred` holds most of those that were heard lately, may be elected, and hold all up to `held_index`: a member
    that has far to go would stop the group until it is there. Pure."""
    level = {
        peer: known
        for peer, known in progress.items()
        if peer in preferred and known.match_index >= held_index
    }
    return most_up_to_date(level, heard_since_ms)


async def yield_to_preferred(
    node: DLedgerNode, preferred: Collection[str], hand_over: Callable[[str], Awaitable[object]]
) -> NoReturn:
    """While `node` leads and one of `preferred` is level, and did not just fail to lead, `hand_over` to it."""
    trials = Trials()
    while True:
        await asyncio.sleep(LOOK_MS / 1000)
        core = node.core
        if core is None or not node.is_active:
            continue
        now_ms = node.clock.monotonic_ms()
        trials.leads(now_ms)
        since_ms = now_ms - node.settings.election_timeout_min_ms
        target = level_among(trials.allowed(preferred, now_ms), core.progress, core.committed_index, since_ms)
        if target is not None:
            logger.info("handing over to the preferred %s self=%s", target, node.self_id)
            trials.gave(target, now_ms)
            await hand_over(target)
