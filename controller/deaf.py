"""Hands the leadership over where the leader hears no broker.

Invariant: it is looked at each `LOOK_EVERY_MS`; one hand-over at a time, and while none succeeds this controller leads on."""

from __future__ import annotations

import asyncio
import logging

from controller.livebrokers import LiveBrokers
from dledger.node.node import DLedgerNode
from mqruntime.log import fields

logger = logging.getLogger(__name__)

LOOK_EVERY_MS = 500


async def hand_over_if_deaf(node: DLedgerNode, brokers: LiveBrokers) -> None:
    """Runs until cancelled."""
    while True:
        await asyncio.sleep(LOOK_EVERY_MS / 1000)
        voters = node.core.membership.members.voters if node.core else {}
        if len(voters) > 1 and node.is_active and brokers.should_give_way():
            target = brokers.gives_way(voters, node.self_id)
            logger.warning(
                "this controller leads and hears no broker; another one tries. Where all brokers are down that is all right, "
                "else see what parts them from this machine",
                extra=fields(id=node.self_id, to=target),
            )
            await node.transfer_leadership(target)
