"""A Raft-mode set, asked of its brokers, in the form in which controllers tell of a set: who is level counts as in sync.

Invariant: the master is the broker that serves as one in the highest term, and whoever it lists as level is alive."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from dledger.client import DLedgerClient, Refused
from dledger.errors import NotLeader, OutcomeUnknown
from localcluster.layout import BROKER_SET, Layout
from localcluster.waiting import NotYet
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import Replica, SyncState
from mqruntime.clock import SystemClock

MASTER_ID = 0


class HandOverFailed(Exception):
    """The leadership was not handed over, or perhaps it was; the text says why."""


class Told(NamedTuple):
    """What one broker says of itself: its role's id, and the newest term in its log."""

    name: str
    role_id: int
    term: int


async def raft_set(layout: Layout, admin: AdminClient) -> SyncState:
    """Raises `NotYet` while nobody serves as master."""
    answers = await asyncio.gather(*(_told(layout, admin, name) for name in layout.broker_names))
    told = [answer for answer in answers if answer is not None]
    masters = [each for each in told if each.role_id == MASTER_ID]
    if not masters:
        raise NotYet(f"no broker of {BROKER_SET} serves as master; {len(told)} answer")
    master = max(masters, key=lambda each: each.term)
    level = {master.name, *await _level_with(layout, admin, master.name)}
    alive = {each.name for each in told}
    replicas = {
        name: Replica(BROKER_SET, number + 1, layout.address(name), name in alive)
        for number, name in enumerate(layout.broker_names)
    }
    return SyncState(
        BROKER_SET,
        replicas[master.name].broker_id,
        layout.address(master.name),
        master.term,
        0,
        tuple(replica for name, replica in replicas.items() if name in level),
        tuple(replica for name, replica in replicas.items() if name not in level),
    )


async def _told(layout: Layout, admin: AdminClient, name: str) -> Told | None:
    try:
        epochs = await admin.broker_epochs(layout.address(name))
    except AdminError:
        return None
    return Told(name, epochs.broker_id, epochs.epochs[-1].epoch if epochs.epochs else 0)


async def _level_with(layout: Layout, admin: AdminClient, master: str) -> list[str]:
    try:
        status = await admin.ha_status(layout.address(master))
    except AdminError as error:
        raise NotYet(str(error)) from error
    level = {link.address for link in status.links if link.in_sync}
    return [name for name in layout.broker_names if layout.member_address(name) in level]


async def transfer(layout: Layout, broker_id: int) -> None:
    """Hands the leadership to the member with that broker id, as `python -m dledger transfer` does. Raises `HandOverFailed`."""
    admin = AdminClient(SystemClock())
    member = list(layout.members)[broker_id - 1]
    try:
        await DLedgerClient(layout.members, BROKER_SET, admin.remoting).transfer(member)
    except (NotLeader, OutcomeUnknown, Refused, TimeoutError) as error:
        raise HandOverFailed(f"transfer to {member}: {error}") from error
    finally:
        await admin.close()
