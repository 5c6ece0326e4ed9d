"""Removal of a live replica that will start again with an empty store.

Invariant: the removed replica is neither the master nor needed. Enough members remain for sends to be acknowledged. Enough
holders of acknowledged data remain, and one of them is alive and known to be complete. The event that removes the replica also
forgets its id, so messages under its old id count neither here nor at the master. After its start the broker gets a new id.
Pure."""

from __future__ import annotations

from controller.commands import why_needed
from controller.decision import Decision
from controller.events import AlterSyncStateSet, CleanBrokerData
from controller.heartbeats import Liveness
from controller.state import ReplicasState
from remoting.codes import ResponseCode


def give_up_replica(
    state: ReplicasState,
    live: Liveness,
    *,
    broker_name: str,
    broker_id: int,
    check_code: str | None,
    dry_run: bool,
) -> Decision:
    """GIVE_UP_REPLICA (290024): forget the requesting broker, which was granted `broker_id` with `check_code` (None: not
    known). Idempotent. With `dry_run` nothing changes."""

    def refused(remark: str) -> Decision:
        return Decision(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)

    known = state.known(broker_name)
    if known is None:
        return Decision(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
    replicas, sync_state = known
    replica = replicas.by_id.get(broker_id)
    if replica is None and check_code in replicas.forgotten:
        return Decision()  # an earlier copy of this request was carried out
    if replica is None or not replica.may_say(check_code):
        return Decision(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"BrokerId: {broker_id} in broker-set: {broker_name} is not known as this broker's; stop it and empty its store",
        )
    master_id = sync_state.master_id
    if master_id == broker_id:
        return refused(f"broker {broker_id} is the master of {broker_name}: elect another one first")
    if master_id is None or not live.is_alive((replicas.cluster_name, broker_name, master_id)):
        return refused(f"{broker_name} has no living master to make a new copy from")
    ids = frozenset({broker_id})
    why = why_needed(broker_name, replicas, sync_state, live, ids)
    if why is not None:
        return refused(why)
    rest = sync_state.members - ids
    if rest != sync_state.members:
        reports = live.reports(replicas.cluster_name, broker_name, rest)
        needed = max((report.members_min for report in reports.values()), default=0)
        if len(rest) < needed:
            return refused(
                f"without broker {broker_id} the SyncStateSet of {broker_name} would be {sorted(rest)}, and minInSyncReplicas "
                f"is {needed}, so that sends would be refused: first have as many others in the set"
            )
    if dry_run:
        return Decision()
    forgotten = CleanBrokerData(broker_name, ids)
    if broker_id not in sync_state.members | sync_state.eligible:
        return Decision(events=(forgotten,))
    return Decision(events=(AlterSyncStateSet(broker_name, rest, sync_state.eligible - ids), forgotten))
