"""Planned leadership transfer to a preferred member. Upstream: preferredLeaderIds.

Invariant: the target can lead at once: it answered lately, has caught up, and did not just lose the leadership again."""

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
"""How often a leader that is not preferred looks for a preferred member, as upstream's does."""

BACK_OFF_MS_MIN = 5_000
BACK_OFF_MS_MAX = 60_000
LED_MS = 60_000
"""After a leadership of this length the next wait is BACK_OFF_MS_MIN again."""


@dataclass(slots=True)
class Trial:
    """`at_ms`: the last transfer; `until_ms`: no transfer before then, None while this member has not got the leadership
    back."""

    at_ms: int
    wait_ms: int
    until_ms: int | None = None


class Trials:
    """The last transfer to each member. A member that cannot use the leadership, because its disk is full for example, costs an
    outage each time: it gets it again after BACK_OFF_MS_MIN, and the wait doubles each time, up to BACK_OFF_MS_MAX. Pure."""

    def __init__(self) -> None:
        self._trials: dict[str, Trial] = {}

    def gave(self, target: str, now_ms: int) -> None:
        """A transfer to `target` begins."""
        former = self._trials.get(target)
        wait_ms = BACK_OFF_MS_MIN if former is None else min(2 * former.wait_ms, BACK_OFF_MS_MAX)
        self._trials[target] = Trial(now_ms, wait_ms)

    def leads(self, now_ms: int) -> None:
        """This member leads: the targets of its transfers lost the leadership, or never got it."""
        for trial in self._trials.values():
            if trial.until_ms is None:
                if now_ms - trial.at_ms >= LED_MS:
                    trial.wait_ms = BACK_OFF_MS_MIN
                trial.until_ms = now_ms + trial.wait_ms

    def allowed(self, among: Collection[str], now_ms: int) -> list[str]:
        """The members of `among` that may be tried."""
        return [peer for peer in among if now_ms >= self._until_ms(peer)]

    def _until_ms(self, peer: str) -> int:
        trial = self._trials.get(peer)
        return 0 if trial is None or trial.until_ms is None else trial.until_ms


def caught_up_among(
    preferred: Collection[str], progress: Mapping[str, Progress], held_index: int, heard_since_ms: int
) -> str | None:
    """The most up-to-date of the `preferred` members that answered lately, may be elected, and hold all entries up to
    `held_index`: a member far behind would stop the group until it has caught up. Pure."""
    caught_up = {
        peer: known
        for peer, known in progress.items()
        if peer in preferred and known.match_index >= held_index
    }
    return most_up_to_date(caught_up, heard_since_ms)


async def yield_to_preferred(
    node: DLedgerNode, preferred: Collection[str], hand_over: Callable[[str], Awaitable[object]]
) -> NoReturn:
    """While `node` leads: calls `hand_over` with a preferred member that has caught up and did not just fail to lead."""
    trials = Trials()
    while True:
        await asyncio.sleep(LOOK_MS / 1000)
        core = node.core
        if core is None or not node.is_active:
            continue
        now_ms = node.clock.monotonic_ms()
        trials.leads(now_ms)
        since_ms = now_ms - node.settings.election_timeout_min_ms
        target = caught_up_among(
            trials.allowed(preferred, now_ms), core.progress, core.committed_index, since_ms
        )
        if target is not None:
            logger.info("handing over to the preferred %s self=%s", target, node.self_id)
            trials.gave(target, now_ms)
            await hand_over(target)
