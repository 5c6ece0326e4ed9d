"""The status of a local cluster, as a table for people.

Invariant: reading the status changes nothing. A process that does not answer has a row too."""

from __future__ import annotations

from dataclasses import dataclass

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, Mode
from localcluster.raftset import raft_set
from localcluster.secured import admin_of
from localcluster.waiting import NotYet
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import SyncStateInfo

PLACES = {
    Mode.CONTROLLER: ("epoch", "in the SyncStateSet", "not in the SyncStateSet"),
    Mode.RAFT: ("term", "caught up", "not caught up"),
}
"""The name of the master's epoch or term, and the descriptions of a broker with or without all committed data."""
STATES = {"T": "paused", "t": "paused"}


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One process. `process` is `running`, `paused` or `down`. `role` is its role according to the controllers or, in Raft
    mode, the brokers."""

    name: str
    address: str
    pid: int | None
    process: str
    role: str
    detail: str


async def status_rows(cluster: Cluster) -> list[StatusRow]:
    """A row for each process of the cluster, in the order of their start."""
    admin = admin_of(cluster.layout)
    try:
        leader, state = await _leader_and_set(cluster, admin)
        rows: list[StatusRow] = []
        for name, identity in cluster.states().items():
            address = cluster.layout.address(name)
            kernel_state = identity.state() if identity is not None else None
            process = "down" if kernel_state is None else STATES.get(kernel_state, "running")
            role = detail = ""
            if name in cluster.layout.controller_names and process == "running":
                role = "leader" if address == leader else "follower" if leader else "no leader"
            elif name in cluster.layout.broker_names:
                role, detail = _broker(state, address, *PLACES[cluster.layout.mode])
                if process == "running":
                    detail = " ".join(filter(None, [detail, await _log_end(admin, address)]))
            rows.append(StatusRow(name, address, identity.pid if identity else None, process, role, detail))
        return rows
    finally:
        await admin.close()


def format_rows(rows: list[StatusRow]) -> str:
    """Aligned columns under a heading."""
    cells = [("NAME", "PROCESS", "PID", "ADDRESS", "ROLE", "DETAIL")]
    cells += [(row.name, row.process, str(row.pid or "-"), row.address, row.role, row.detail) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in cells
    )


async def _leader_and_set(cluster: Cluster, admin: AdminClient) -> tuple[str | None, SyncStateInfo | None]:
    try:
        if cluster.layout.in_raft_mode:
            return None, await raft_set(cluster.layout, admin)
        leader = await admin.leader(cluster.layout.controller_list)
        states = await admin.sync_states(cluster.layout.controller_list, [BROKER_SET])
    except (AdminError, NotYet):
        return None, None
    return leader, states.get(BROKER_SET)


def _broker(
    state: SyncStateInfo | None, address: str, epoch: str, inside: str, outside: str
) -> tuple[str, str]:
    if state is None:
        return "unknown", ""
    for replica in (*state.in_sync, *state.not_in_sync):
        if replica.address == address:
            role = "master" if address == state.master_address else "slave"
            place = inside if replica in state.in_sync else outside
            under = f", {epoch} {state.master_epoch}" if role == "master" else ""
            return role, f"{BROKER_SET}, id {replica.broker_id}{under}, {place}"
    return "unregistered", ""


async def _log_end(admin: AdminClient, address: str) -> str:
    try:
        return f"log end {(await admin.broker_epochs(address)).max_offset}"
    except AdminError:
        return "does not answer"
