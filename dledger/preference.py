"""To whom a leader that others are preferred to gives way; upstream's preferredLeaderIds.

Invariant: only to a member that can lead at once: heard lately, and level."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NoReturn

from dledger.node import DLedgerNode
from dledger.progress import Progress
from dledger.transfer import fittest

logger = logging.getLogger(__name__)

LOOK_MS = 1_000
"""So often a leader that is not preferred looks for one that is, as upstream's does."""


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
    return fittest(level, heard_since_ms)


async def give_way(
    node: DLedgerNode, preferred: Collection[str], hand_over: Callable[[str], Awaitable[object]]
) -> NoReturn:
    """While `node` leads and one of `preferred` is level, `hand_over` to it; tried again each second while it fails."""
    while True:
        await asyncio.sleep(LOOK_MS / 1000)
        core = node.core
        if core is None or not node.is_active:
            continue
        since_ms = node.clock.monotonic_ms() - node.settings.election_timeout_min_ms
        target = level_among(preferred, core.progress, core.committed_index, since_ms)
        if target is not None:
            logger.info("handing over to the preferred %s self=%s", target, node.self_id)
            await hand_over(target)
