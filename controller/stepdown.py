"""Transfers leadership away from a leader that receives no broker's heartbeats.

Invariant: the leader is checked each `LOOK_EVERY_MS`. Only one transfer runs at a time; if it fails, this controller keeps
leading."""

from __future__ import annotations

import asyncio
import logging

from controller.livebrokers import LiveBrokers
from dledger.node.node import DLedgerNode
from mqruntime.log import fields

logger = logging.getLogger(__name__)

LOOK_EVERY_MS = 500


async def step_down_if_isolated(node: DLedgerNode, brokers: LiveBrokers) -> None:
    """Check until cancelled."""
    while True:
        await asyncio.sleep(LOOK_EVERY_MS / 1000)
        voters = node.core.membership.members.voters if node.core else {}
        if len(voters) > 1 and node.is_active and brokers.should_give_way():
            target = brokers.gives_way(voters, node.self_id)
            logger.warning(
                "leader hears no broker, transferring leadership",
                extra=fields(
                    id=node.self_id,
                    to=target,
                    hint="unless all brokers are down, check the network between them and this machine",
                ),
            )
            await node.transfer_leadership(target)
