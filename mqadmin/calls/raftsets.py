"""A set in Raft mode, asked of its brokers, in the form in which controllers tell of a set: who is level counts as in sync.

Invariant: the master is the broker that serves in the highest term; whoever it lists as level it has heard lately."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import Replica, SyncState

MASTER_ID = 0
NO_EPOCH = 0
ENTRY_HEADER_BYTES = 48
"""In Raft mode's log each record stands behind such a header, and a term begins with an entry that has no more."""


class Told(NamedTuple):
    """What one broker says of itself: its own id, that of its role, and the newest term in its log."""

    address: str
    broker_id: int
    role_id: int
    term: int


async def state_of(
    client: AdminClient, broker_name: str, members: Mapping[str, int | None]
) -> SyncState | None:
    """`members` has the address of each, with its id where that is known: who neither answers nor is known so is left out.
    None where nobody serves as master."""
    answers = await asyncio.gather(*(_told(client, address) for address in members))
    told = {answer.address: answer for answer in answers if answer is not None}
    masters = [each for each in told.values() if each.role_id == MASTER_ID]
    if not masters:
        return None
    master = max(masters, key=lambda each: each.term)
    level = {master.broker_id, *await _level_with(client, master.address)}
    ids = {
        address: told[address].broker_id if address in told else known for address, known in members.items()
    }
    replicas = [
        Replica(broker_name, broker_id, address, address in told)
        for address, broker_id in ids.items()
        if broker_id is not None
    ]
    return SyncState(
        broker_name, master.broker_id, master.address, master.term, NO_EPOCH,
        tuple(each for each in replicas if each.broker_id in level),
        tuple(each for each in replicas if each.broker_id not in level),
    )  # fmt: skip


async def _told(client: AdminClient, address: str) -> Told | None:
    try:
        epochs, info = await asyncio.gather(client.broker_epochs(address), client.runtime_info(address))
    except AdminError:
        return None
    term = epochs.epochs[-1].epoch if epochs.epochs else NO_EPOCH
    return Told(address, int(info.get("replicaId", "-1")), epochs.broker_id, term)


async def _level_with(client: AdminClient, master: str) -> list[int]:
    try:
        status = await client.ha_status(master)
    except AdminError:
        return []
    return [link.broker_id for link in status.links if link.in_sync and link.broker_id is not None]
