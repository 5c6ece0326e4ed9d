"""Planted bugs of replicas that catch up."""

from __future__ import annotations

from broker.resync.resync import Resync
from broker.resync.roomforboth import ResyncSpaceCheck
from broker.role.membership import Membership
from controller import resync
from controller.decision import Decision
from controller.events import AlterSyncStateSet, CleanBrokerData
from controller.heartbeats import Liveness
from controller.state import ReplicasState
from ha.master.connection import MasterConnection
from ha.master.mastership import Mastership
from ha.master.pace import Pace
from ha.slave.link import SlaveLink
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from simulation.mutants.cluster.bugs import bug


@bug("limit-forgotten", Pace, "allowed", plays=("catch-up limits",))
def limit_forgotten(self: Pace, size: int, now_ms: int) -> int:
    """A replica that catches up takes the whole capacity of the network, and of the master."""
    return size


@bug("members-held-back", Mastership, "pace_of", plays=("catch-up limits",))
def members_held_back(self: Mastership, broker_id: int) -> int | None:
    """Upstream: the limit applies to every link, so sends wait for it."""
    return self._catch_up_limit()


@bug("older-master-believed", SlaveLink, "_is_proven")
def older_master_believed(self: SlaveLink) -> bool:
    """Upstream: a deposed master that was not notified is followed, because it leads some epoch."""
    return self._proof is not None


@bug("cut-again-counts", Mastership, "_began")
def cut_again_counts(self: Mastership, connection: MasterConnection, offset: int) -> None:
    """A Java slave that loses acknowledged data with each connection remains a member."""
    connection.began_at = offset


@bug("set-aside-unasked", Resync, "_refused", plays=("resync",))
async def set_aside_unasked(
    self: Resync, command: RemotingCommand, *, dry_run: bool
) -> RemotingCommand | None:
    """An operator empties a member's folder, but the member keeps its id. So the id counts for data that is gone."""
    return None


@bug("no-room-for-both", ResyncSpaceCheck, "check", plays=("resync",))
async def no_room_for_both(self: ResyncSpaceCheck) -> None:
    """A replica deletes its store but has no room for the copy, so there is one replica less until an operator makes room."""


@bug("aside-removed-at-once", Membership, "in_sync", plays=("resync",))
def aside_removed_at_once(self: Membership) -> bool:
    """The former store is deleted before its data is copied again."""
    return True


@bug("given-up-though-needed", resync, "give_up_replica", plays=("resync",))
def given_up_though_needed(
    state: ReplicasState,
    live: Liveness,
    *,
    broker_name: str,
    broker_id: int,
    check_code: str | None,
    dry_run: bool,
) -> Decision:
    """A replica is given up without counting the remaining replicas."""
    ids = frozenset({broker_id})
    sync_state = state.sync_states.get(broker_name)
    if (
        sync_state is None
        or sync_state.master_id == broker_id
        or broker_id not in state.replicas[broker_name].by_id
    ):
        return Decision(code=ResponseCode.CONTROLLER_INVALID_REQUEST)
    alter = AlterSyncStateSet(broker_name, sync_state.members - ids, sync_state.eligible - ids)
    return Decision(events=(alter, CleanBrokerData(broker_name, ids)))
