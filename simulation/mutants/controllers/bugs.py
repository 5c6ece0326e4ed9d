"""Bugs that are planted into the controllers for one run, to prove that the check finds them.

Invariant: each bug breaks only what its docstring says, whatever arguments the surrounding code passes. Nothing is left of it
when its context ends. The seeds that find the bugs are recorded in simulation/foundby.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from controller import commands, elections, livebrokers, statesnapshot
from controller.awakeclock import AwakeClock
from controller.decision import Decision
from controller.electpolicy import LiveReport
from controller.events import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, ElectMaster, Event, encode
from controller.heartbeats import Heartbeats, Liveness
from controller.holdings import Held, Holdings, LogReport
from controller.livebrokers import LiveBrokers
from controller.runner import Busy, CommandRunner
from controller.state import Replicas, ReplicasState, SyncState
from dledger.node.node import DLedgerNode
from dledger.raft.errors import NotLeader, OutcomeUnknown
from remoting.codes import ResponseCode
from simulation.controllers.asks import FENCED
from simulation.controllers.scriptedbroker import ScriptedBroker
from simulation.kernel.plants import Bugs

BUGS = Bugs()
bug, planted = BUGS.bug, BUGS.planted


# An alter that must be rejected

altered = commands.alter_sync_state_set


def set_of(state: ReplicasState, asked: dict[str, Any]) -> SyncState:
    return state.sync_states.get(asked["broker_name"], SyncState())


@bug("stale-master-epoch", commands, "alter_sync_state_set")
def stale_master_epoch(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S1: an alter of an earlier epoch of the same master is carried out."""
    return altered(state, live, **asked | {"master_epoch": set_of(state, asked).master_epoch})


@bug("stale-set-epoch", commands, "alter_sync_state_set")
def stale_set_epoch(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S1: an alter that was made for an earlier set is carried out."""
    return altered(state, live, **asked | {"set_epoch": set_of(state, asked).set_epoch})


@bug("altered-by-anyone", commands, "alter_sync_state_set")
def altered_by_anyone(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S1: any broker that names the right epochs may alter the set."""
    master_id = set_of(state, asked).master_id
    return altered(state, live, **asked if master_id is None else asked | {"master_id": master_id})


def as_it_was_asked(decision: Decision, asked: dict[str, Any]) -> Decision:
    """Make the decision for a harmless request, and apply it to the actual request."""
    if decision.code != ResponseCode.SUCCESS:
        return decision
    events: list[Event] = [
        replace(event, members=asked["members"]) if isinstance(event, AlterSyncStateSet) else event
        for event in decision.events
    ]
    return replace(decision, events=tuple(events))


@bug("strangers-in-the-set", commands, "alter_sync_state_set")
def strangers_in_the_set(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S2: an unregistered broker becomes a member."""
    replicas = state.replicas.get(asked["broker_name"])
    known = frozenset(asked["members"].intersection(replicas.by_id if replicas else ()))
    return as_it_was_asked(altered(state, live, **asked | {"members": known}), asked)


@bug("empty-set", commands, "alter_sync_state_set")
def empty_set(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S2: the set becomes empty."""
    members = asked["members"] or frozenset({asked["master_id"]})
    return as_it_was_asked(altered(state, live, **asked | {"members": members}), asked)


@bug("master-left-out", commands, "alter_sync_state_set")
def master_left_out(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S2: the set loses its master."""
    members = asked["members"] | {asked["master_id"]} if asked["members"] else frozenset()
    return as_it_was_asked(altered(state, live, **asked | {"members": members}), asked)


@bug("dead-member-enters", commands, "alter_sync_state_set")
def dead_member_enters(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S2: a broker without heartbeats becomes a member."""
    with patch.object(Liveness, "is_alive", lambda self, key: True):
        return altered(state, live, **asked)


@bug("eligible-kept-though-the-set-is-large-enough", commands, "after_alter")
def eligible_kept_though_the_set_is_large_enough(
    members: frozenset[int], eligible: frozenset[int], altered: frozenset[int], members_min: int
) -> frozenset[int]:
    """S1: a broker that leaves a set whose master acknowledges stays electable."""
    return (members | eligible) - altered


@bug("refusal-not-fenced", commands, "alter_sync_state_set")
def refusal_not_fenced(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S3: an alter is rejected only for now, but its master takes the rejection for final."""
    decision = altered(state, live, **asked)
    return decision if decision.code not in FENCED else replace(decision, body=None, events=())


# Reads, proposals and their answers

settled = CommandRunner._settle
proposed = CommandRunner._propose


@bug("read-without-barrier", CommandRunner, "read")
async def read_without_barrier(self: CommandRunner, decide: Callable[..., Decision]) -> Decision:
    """R10: a controller that believes to lead answers without confirming that it does."""
    if not self._node.is_active:
        raise NotLeader(self._node.leader_id, self._node.leader_address)
    return decide(self._state, self._liveness())


@bug("reads-by-followers", CommandRunner, "read")
async def reads_by_followers(self: CommandRunner, decide: Callable[..., Decision]) -> Decision:
    """R10: every controller answers from its own state."""
    return decide(self._state, self._liveness())


@bug("no-settling", CommandRunner, "_settle")
async def no_settling(self: CommandRunner, broker_name: str, end: float) -> None:
    """S1: the next command is decided while an earlier command may still take effect."""
    self._unsettled.pop(broker_name, None)


@bug("commands-side-by-side", CommandRunner, "run")
async def commands_side_by_side(self: CommandRunner, broker_name: str, decide: Callable[..., Any]) -> Any:
    """S1: two commands about a set are decided on the same state."""
    if not self._node.is_active:
        raise NotLeader(self._node.leader_id, self._node.leader_address)
    decision = decide(self._state, self._liveness())
    if decision is not None and decision.events:
        await self._propose(broker_name, [encode(event) for event in decision.events], 2_000)
    return decision


@bug("unknown-is-refused", CommandRunner, "_propose")
async def unknown_is_refused(
    self: CommandRunner, broker_name: str, bodies: list[bytes], timeout_ms: int
) -> None:
    """R8: a command that is not committed in time gets the answer that it was not tried."""
    try:
        await proposed(self, broker_name, bodies, timeout_ms)
    except OutcomeUnknown as error:
        raise Busy(str(error)) from error


@bug("answered-before-committed", DLedgerNode, "propose")
async def answered_before_committed(
    self: DLedgerNode, bodies: list[bytes], timeout_ms: int = 3000
) -> list[object]:
    """R8: success is answered when only the leader's log has the entry."""
    core = self._serving_core()
    self._take(lambda now_ms: core.propose(bodies, now_ms))
    return []


# Elections

chosen = elections._choose
was_dead = Liveness.is_dead
applied = ReplicasState.apply
reported = elections._reports
whole, able = elections._complete, elections._usable


def as_if_there_had_been_no_master(
    name: str, replicas: Any, sync_state: Any, live: Any, designated: Any, unclean: bool
) -> int | None:
    """Elect as if there had been no master, so that the former master is not preferred."""
    return chosen(name, replicas, replace(sync_state, master_id=None), live, designated, unclean)


def with_epoch(self: ReplicasState, event: Event, wrong: Callable[[int], int]) -> None:
    """Apply the event with another epoch."""
    sync_state = self.sync_states.get(event.broker_name)
    before = sync_state.master_epoch if sync_state else 0
    applied(self, event)
    if sync_state is not None:
        sync_state.master_epoch = wrong(before)


@bug("epoch-not-bumped", ReplicasState, "apply")
def epoch_not_bumped(self: ReplicasState, event: Event) -> None:
    """M1: a new master gets the epoch of its predecessor."""
    if isinstance(event, ElectMaster) and event.master_id is not None:
        with_epoch(self, event, lambda before: max(1, before))
    else:
        applied(self, event)


@bug("epoch-reused", ReplicasState, "apply")
def epoch_reused(self: ReplicasState, event: Event) -> None:
    """M1: a deposed master may be elected again in its epoch."""
    if isinstance(event, ElectMaster) and event.master_id is None:
        with_epoch(self, event, lambda before: before)
    else:
        applied(self, event)


@bug("set-epoch-not-bumped", ReplicasState, "apply")
def set_epoch_not_bumped(self: ReplicasState, event: Event) -> None:
    """S1: an election does not change the set's epoch."""
    applied(self, event)
    if isinstance(event, ElectMaster) and event.master_id is not None:
        self.sync_states[event.broker_name].set_epoch -= 1


@bug("elected-outside-the-set", elections, "_choose")
def elected_outside_the_set(
    name: str, replicas: Any, sync_state: Any, live: Any, designated: Any, unclean: bool
) -> int | None:
    """M4: unclean elections are always on."""
    return chosen(name, replicas, sync_state, live, designated, True)


@bug("dead-elected", Liveness, "reports")
def dead_elected(
    self: Liveness, cluster_name: str, broker_name: str, ids: Iterable[int]
) -> dict[int, LiveReport]:
    """M4: any broker that ever sent a heartbeat may be elected. The lost master is elected only if no other broker is left."""
    keys = {broker_id: (cluster_name, broker_name, broker_id) for broker_id in ids}
    return {
        broker_id: self.entries[key].heartbeat.report
        for broker_id, key in keys.items()
        if key in self.entries
    }


BUGS["dead-elected"].append((elections, "_choose", as_if_there_had_been_no_master))


@bug("learner-elected", elections, "_reports", plays=("learner",))
def learner_elected(broker_name: str, replicas: Replicas, live: Liveness) -> dict[int, LiveReport]:
    """M4: the first election elects a learner that requests it."""
    return live.reports(replicas.cluster_name, broker_name, replicas.by_id)


@bug("one-that-may-miss-data-is-elected", elections, "_reports")
def one_that_may_miss_data_is_elected(
    broker_name: str, replicas: Replicas, live: Liveness
) -> dict[int, LiveReport]:
    """M4: a broker's report that its log may be missing acknowledged data is ignored."""
    reports = reported(broker_name, replicas, live)
    return {broker_id: replace(report, may_miss=False) for broker_id, report in reports.items()}


@bug("operator-elects-one-that-may-miss-data", elections, "_better")
def operator_elects_one_that_may_miss_data(*arguments: Any) -> frozenset[int]:
    """M4: an operator's request elects a broker that may be missing data, although a live broker holds the data."""
    return frozenset()


@bug("unfit-elected", elections, "_complete")
def unfit_elected(*arguments: Any, fit: bool = False) -> frozenset[int]:
    """M4: a broker that reports that it cannot lead is elected though another could."""
    return whole(*arguments)


@bug("one-that-cannot-lead-is-able", elections, "_usable")
def one_that_cannot_lead_is_able(*arguments: Any) -> frozenset[int]:
    """M4: a broker that cannot lead at all is elected, although a broker with a damaged log could lead."""
    return whole(*arguments) if able(*arguments) else frozenset()


@bug("eligible-comes-back-short", livebrokers, "_held_all")
def eligible_comes_back_short(sync_state: SyncState, broker_id: int) -> bool:
    """M5: an eligible broker outside the set counts as complete, even if it comes back with an older log."""
    return broker_id in sync_state.members


@bug("elects-again", elections, "_keeps_master")
def elects_again(*arguments: Any) -> bool:
    """H1: a broker that requests an election gets a new master, although the present master is alive."""
    return False


BUGS["elects-again"].append((elections, "_choose", as_if_there_had_been_no_master))


@bug("impatient-leader", Liveness, "is_dead")
def impatient_leader(self: Liveness, key: Any) -> bool:
    """H1: a new leader takes a master for dead because it has not got the master's heartbeat yet."""
    return not self.is_alive(key)


@bug("little-patience", Liveness, "is_dead")
def little_patience(self: Liveness, key: Any) -> bool:
    """H1: a broker counts as dead after a quarter of the time that it announced."""
    entry = self.entries.get(key)
    if entry is None or not entry.open:
        return was_dead(self, key)
    return max(entry.last_seen_ms, self.judging_since_ms) + entry.heartbeat.timeout_ms // 4 < self.now_ms


@bug("frozen-silence-counts", AwakeClock, "monotonic_ms")
def frozen_silence_counts(self: AwakeClock) -> int:
    """H1: a controller counts the time of its own pause as a broker's silence."""
    return self._clock.monotonic_ms()


counted = LiveBrokers.heard


@bug("another-clusters-heartbeat", LiveBrokers, "heard")
def another_clusters_heartbeat(self: LiveBrokers, header: Any, connection: int) -> None:
    """M4, S2: a heartbeat counts for the broker of that name, though it names another cluster."""
    replicas = self._state.replicas.get(header.broker_name)
    if replicas is not None:
        header.cluster_name = replicas.cluster_name
    counted(self, header, connection)


# Registration and cleaning

granted = commands.apply_broker_id
registered = commands.register_broker
cleaned = commands.clean_broker_data


@bug("id-granted-twice", commands, "apply_broker_id")
def id_granted_twice(state: ReplicasState, **asked: Any) -> Decision:
    """B1: a broker that applies for another broker's id gets the answer that the id is its own."""
    decision = granted(state, **asked)
    taken = decision.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID and state.known(asked["broker_name"])
    return replace(decision, code=ResponseCode.SUCCESS, remark=None) if taken else decision


@bug("id-taken-over", commands, "apply_broker_id")
def id_taken_over(state: ReplicasState, **asked: Any) -> Decision:
    """B1: the grant of a taken id is written."""
    decision = granted(state, **asked)
    if (
        decision.code != ResponseCode.CONTROLLER_BROKER_ID_INVALID
        or state.known(asked["broker_name"]) is None
    ):
        return decision
    code = asked["check_code"]
    event = ApplyBrokerId(
        asked["cluster_name"], asked["broker_name"], asked["broker_id"], code.partition(";")[0], code
    )
    return replace(decision, code=ResponseCode.SUCCESS, remark=None, events=(event,))


restarted = LiveBrokers.restarted


@bug("former-holder-speaks", LiveBrokers, "restarted")
def former_holder_speaks(
    self: LiveBrokers, name: str, broker_id: int, connection: int, incarnation: int, check_code: str | None
) -> bool:
    """V2: a rejected broker that had the id before is taken for the newest process of the id's owner."""
    return restarted(self, name, broker_id, connection, incarnation)


@bug("restarted-master-leads-on", commands, "register_broker")
def restarted_master_leads_on(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """M2: a master that was restarted stays master of its epoch."""
    decision = registered(state, live, **asked)
    kept = tuple(event for event in decision.events if not isinstance(event, ElectMaster))
    return replace(decision, events=kept)


@bug("late-registration-deposes", commands, "register_broker")
def late_registration_deposes(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """H1: a late or repeated registration deposes a live master."""
    return registered(state, live, **asked | {"is_late": False})


@bug("living-cleaned", commands, "clean_broker_data")
def living_cleaned(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """B2: a live broker is forgotten without an explicit request."""
    return cleaned(state, live, **asked | {"living_too": True})


@bug("holders-cleaned", commands, "why_needed")
def holders_cleaned(*asked: Any) -> str | None:
    """M5: a broker that may be the only holder of acknowledged data is forgotten like any other dead broker."""
    return None


@bug("master-cleaned", commands, "clean_broker_data")
def master_cleaned(state: ReplicasState, live: Liveness, **asked: Any) -> Decision:
    """S2: a dead master is forgotten like any other."""
    decision = cleaned(state, live, **asked)
    words = (asked["ids_to_clean"] or "").strip()
    known = state.known(asked["broker_name"])
    if known is None or not words.isdigit() or known[1].master_id != int(words):
        return decision
    return Decision(events=(CleanBrokerData(asked["broker_name"], frozenset({int(words)})),))


answered_info = commands.replica_info


@bug("forgotten-is-not-notified", commands, "replica_info")
def forgotten_is_not_notified(state: ReplicasState, **asked: Any) -> Decision:
    """R10: a living broker that was forgotten keeps getting answers to its reads as if nothing had happened."""
    return answered_info(state, **asked | {"asked_by": None})


@bug("late-heartbeat-revives", Heartbeats, "of_former")
def late_heartbeat_revives(self: Heartbeats, key: Any, connection: int, incarnation: int) -> bool:
    """S2, M4: a heartbeat of a dead process makes its broker alive, though its successor has registered."""
    return False


# What a master believes

judged = ScriptedBroker._refused


@bug("refusal-settles-all", ScriptedBroker, "_refused")
def refusal_settles_all(self: ScriptedBroker, sending: Any, code: int | None = None) -> None:
    """S3: after a rejected alter, a master believes that earlier alters without an answer cannot take effect any more."""
    self.asked_for.clear()
    self._waits()


@bug("refusal-not-fenced", ScriptedBroker, "_refused")
def refusal_not_fenced_2(self: ScriptedBroker, sending: Any, code: int | None = None) -> None:
    """The other half of it."""
    if code in FENCED:
        self.asked_for.clear()
    judged(self, sending, code)


# Reports of brokers' logs

heard = Holdings.heard


@bug("older-connection-reports", Holdings, "heard")
def older_connection_reports(
    self: Holdings, key: Any, connection: int, report: LogReport, *, member: bool
) -> Held | None:
    """M5: a broker that is missing data counts as complete after a report over an older connection, from before its log was
    emptied."""
    newest = max(connection, self._of[key].connection if key in self._of else 0)
    return heard(self, key, newest, report, member=member)


# Snapshots

row = statesnapshot.row_of


@bug("snapshot-forgets-the-eligible", statesnapshot, "row_of")
def snapshot_forgets_the_eligible(state: ReplicasState, name: str) -> dict[str, Any]:
    """R5: a loaded state forgets the brokers that left the set but hold all acknowledged data."""
    saved = row(state, name)
    return saved | {"eligible": []} if "eligible" in saved else saved


@bug("snapshot-counts-no-epochs", statesnapshot, "row_of")
def snapshot_counts_no_epochs(state: ReplicasState, name: str) -> dict[str, Any]:
    """R5: epochs start again from the beginning after a snapshot."""
    saved = row(state, name)
    return saved | {"setEpoch": 1} if "setEpoch" in saved else saved
