"""Reads the state of a broker set in Raft mode, in the form in which controllers report a set. The set's brokers are queried,
and members that have caught up are shown as in sync.

Invariant: the master is the broker that serves as master in the highest term. It lists a member as caught up only if it has
lately heard from that member."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import ReplicaInfo, SyncStateInfo

MASTER_ID = 0
NO_EPOCH = 0
ENTRY_HEADER_BYTES = 48
"""In a log of Raft mode, each record follows such a header, and a term begins with an entry that is only a header."""


class BrokerAnswer(NamedTuple):
    """One broker's answer about itself: its broker id, its role id, and the newest term in its log."""

    address: str
    broker_id: int
    role_id: int
    term: int


async def state_of(
    client: AdminClient, broker_name: str, members: Mapping[str, int | None]
) -> SyncStateInfo | None:
    """The state of the set; None if no broker serves as master. `members` has the address of each member, and its id if known.
    A member without answer and id is left out."""
    answers = await asyncio.gather(*(_ask_broker(client, address) for address in members))
    found = {answer.address: answer for answer in answers if answer is not None}
    masters = [each for each in found.values() if each.role_id == MASTER_ID]
    if not masters:
        return None
    master = max(masters, key=lambda each: each.term)
    caught_up = {master.broker_id, *await _caught_up_with(client, master.address)}
    ids = {
        address: found[address].broker_id if address in found else known for address, known in members.items()
    }
    replicas = [
        ReplicaInfo(broker_name, broker_id, address, address in found)
        for address, broker_id in ids.items()
        if broker_id is not None
    ]
    return SyncStateInfo(
        broker_name, master.broker_id, master.address, master.term, NO_EPOCH,
        tuple(each for each in replicas if each.broker_id in caught_up),
        tuple(each for each in replicas if each.broker_id not in caught_up),
    )  # fmt: skip


async def _ask_broker(client: AdminClient, address: str) -> BrokerAnswer | None:
    try:
        epochs, info = await asyncio.gather(client.broker_epochs(address), client.runtime_info(address))
    except AdminError:
        return None
    term = epochs.epochs[-1].epoch if epochs.epochs else NO_EPOCH
    return BrokerAnswer(address, int(info.get("replicaId", "-1")), epochs.broker_id, term)


async def _caught_up_with(client: AdminClient, master: str) -> list[int]:
    try:
        status = await client.ha_status(master)
    except AdminError:
        return []
    return [link.broker_id for link in status.links if link.in_sync and link.broker_id is not None]
