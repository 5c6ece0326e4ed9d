"""Planted bugs: resources that are never released."""

from __future__ import annotations

import asyncio

from controller import elections, failover
from controller.decision import Decision
from controller.heartbeats import Liveness
from controller.state import ReplicasState
from messagestore.store.trimming import Trimming
from mqruntime.segments import SegmentFile
from remoting.client import RemotingClient
from remoting.connections import Connections
from remoting.dispatch import RequestDispatcher
from remoting.peer import Peer
from simulation.mutants.cluster.bugs import bug

peer_of = RemotingClient._peer
opened = Connections.opened
replaced = elections.replace_lost_master


@bug("deleted-segment-stays-open", Trimming, "_release")
def deleted_segment_stays_open(self: Trimming, files: list[SegmentFile]) -> None:
    """N1: retention frees no disk block, because the process keeps deleted files open."""


@bug("dials-for-each-call", RemotingClient, "_peer")
async def dials_for_each_call(self: RemotingClient, address: str, timeout_ms: int) -> Peer:
    """N2: the earlier connection stays open, and nobody uses it."""
    self._peers.pop(address, None)
    return await peer_of(self, address, timeout_ms)


@bug("answered-requests-kept", RequestDispatcher, "_ended")
def answered_requests_kept(self: RequestDispatcher, task: asyncio.Task[None]) -> None:
    """N3: a server remembers each request for whose answer it ever waited, and the connection."""


@bug("sweeps-for-each-connection", Connections, "opened")
def sweeps_for_each_connection(self: Connections, peer: Peer) -> None:
    """N4: each connection starts its own timer, which nobody stops."""
    self._sweep_timer = None
    opened(self, peer)


@bug("elects-among-all-only", failover, "replace_lost_master")
def elects_among_all_only(
    state: ReplicasState, live: Liveness, *, broker_name: str, unclean: bool
) -> Decision | None:
    """V2: a set with one member down waits for that member, though the others could continue. Once all are back, nothing is
    wrong."""
    replicas, members = state.replicas[broker_name], state.sync_states[broker_name].members
    if not all(live.is_alive((replicas.cluster_name, broker_name, member)) for member in members):
        return None
    return replaced(state, live, broker_name=broker_name, unclean=unclean)
