"""Reads the state of a local cluster's Raft-mode set, and transfers its leadership.

Invariant: this module calls no controller."""

from __future__ import annotations

from dledger.client import DLedgerClient, Refused
from dledger.raft.errors import NotLeader, OutcomeUnknown
from localcluster.layout import BROKER_SET, Layout
from localcluster.secured import admin_of
from localcluster.waiting import NotYet
from mqadmin.admin import AdminClient
from mqadmin.calls import raftsets
from mqadmin.replies import SyncStateInfo


class HandOverFailed(Exception):
    """The leadership was not transferred, or it is unknown whether it was. The text says why."""


async def raft_set(layout: Layout, admin: AdminClient) -> SyncStateInfo:
    """The state of the set. Raises `NotYet` while no broker serves as master."""
    members: dict[str, int | None] = {
        layout.address(name): number for number, name in enumerate(layout.broker_names, 1)
    }
    state = await raftsets.state_of(admin, BROKER_SET, members)
    if state is None:
        raise NotYet(f"no broker of {BROKER_SET} serves as master")
    return state


async def transfer(layout: Layout, broker_id: int) -> None:
    """Transfer the leadership to the member with that broker id, as `python -m dledger transfer` does. Raises
    `HandOverFailed`."""
    admin = admin_of(layout)
    member = list(layout.members)[broker_id - 1]
    try:
        await DLedgerClient(layout.members, BROKER_SET, admin.remoting).transfer(member)
    except (NotLeader, OutcomeUnknown, Refused, TimeoutError) as error:
        raise HandOverFailed(f"transfer to {member}: {error}") from error
    finally:
        await admin.close()
