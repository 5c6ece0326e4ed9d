"""A controller logs that the controllers have no leader.

Invariant: a controller that knows no leader logs this within a few seconds, repeats the line every half minute, and logs when a
controller leads again."""

from __future__ import annotations

import asyncio
import logging

from dledger.node.node import DLedgerNode
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

logger = logging.getLogger(__name__)

LOOK_EVERY_MS = 3_000


async def log_leaderless(node: DLedgerNode, clock: Clock) -> None:
    """Log until cancelled."""
    failure = RepeatedFailure()
    while True:
        await asyncio.sleep(LOOK_EVERY_MS / 1000)
        now_ms = clock.monotonic_ms()
        if node.leader_id is None:
            if failure.failed("no leader", now_ms):
                peers = ";".join(f"{peer_id}-{address}" for peer_id, address in node.peers.items())
                logger.warning(
                    "no controller leads, retrying",
                    extra=fields(peers=peers, hint="a majority of the peers must run and reach each other"),
                )
        elif (lasted_ms := failure.recovered(now_ms)) is not None:
            logger.info("a controller leads again", extra=fields(leader=node.leader_id, after_ms=lasted_ms))
