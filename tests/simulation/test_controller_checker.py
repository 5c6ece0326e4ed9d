"""The check of the simulated controllers finds each violation: histories with one error each."""

from __future__ import annotations

import pytest

from controller.events import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, ElectMaster, Event, encode
from remoting.bodies.replicas import SyncStateSetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    CleanBrokerDataHeader,
    ElectMasterHeader,
    GetReplicaInfoHeader,
    RegisterBrokerToControllerHeader,
)
from simulation.controllers import entries
from simulation.controllers.asks import Ask
from simulation.controllers.check import ControllerCheck
from simulation.controllers.rules import LivenessView, Said, Unfitness
from simulation.controllers.setmodel import SetState
from simulation.kernel.violation import Violation

BOTH = frozenset({1, 2})
ALL_HEARD = LivenessView("n0", BOTH, frozenset(), BOTH)
ONE_HEARD = LivenessView("n0", frozenset({1}), frozenset(), frozenset({1}))


class History:
    """A check, and the events that a test feeds it."""

    def __init__(self) -> None:
        self.check = ControllerCheck()
        self.index = 0
        for broker_id in (1, 2):
            self.ask(apply_id(broker_id))
            self.event(ApplyBrokerId("c", "a", broker_id, f"h{broker_id}:1", f"h{broker_id}:1;x"))
        self.event(ElectMaster("a", 1))

    def ask(self, request: RemotingCommand) -> Ask:
        return self.check.sent("somebody", request)

    def event(
        self, event: Event, liveness: LivenessView | None = ALL_HEARD, kept: SetState | None = None
    ) -> None:
        """Proposes and applies an event; `kept` is the resulting state if it is not the correct one."""
        body = encode(event)
        if liveness is not None:
            self.check.proposing(self.index, 1, liveness)
        entry = entries.read(body)
        assert entry is not None
        after = self.check.sets.get("a")
        wanted = after.after(entry) if after else SetState()
        if not wanted.known and entry.kind == entries.APPLY_ID:
            wanted = SetState({1: entry.check_code}, {1: entry.address})
        self.check.applied("n0.1", self.index, 1, body, kept or (wanted if wanted.known else None))
        self.index += 1

    def answer(self, ask: Ask, request: RemotingCommand, code: int = 0, **ext: str) -> None:
        reply = request.reply(code)
        reply.ext = ext
        if code == ResponseCode.SUCCESS and ask.members:
            reply.body = SyncStateSetBody(ask.members, ask.set_epoch + 1).encode()
        self.check.answered(ask, reply)
        self.check.raise_found()


def request(code: RequestCode, header: Header, body: bytes | None = None) -> RemotingCommand:
    return RemotingCommand.request(code, header, body)


def apply_id(broker_id: int, code: str = "x") -> RemotingCommand:
    header = ApplyBrokerIdHeader("a", broker_id, f"h{broker_id}:1;{code}", "c")
    return request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)


def alter(
    members: frozenset[int] = BOTH,
    master_id: int = 1,
    epoch: int = 1,
    set_epoch: int = 1,
    members_min: int = 0,
) -> RemotingCommand:
    header = AlterSyncStateSetHeader("a", master_id, epoch, min_in_sync_replicas=members_min)
    body = SyncStateSetBody(members, set_epoch).encode()
    return request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)


def elect(broker_id: int) -> RemotingCommand:
    return request(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterHeader("a", "c", broker_id, True))


@pytest.fixture
def history() -> History:
    """Brokers 1 and 2 are registered, 1 is master of epoch 1 and the whole set."""
    return History()


def test_a_correct_history_passes(history: History) -> None:
    wanted = alter()
    ask = history.ask(wanted)
    history.event(AlterSyncStateSet("a", BOTH))
    history.answer(ask, wanted, newSyncStateSetEpoch="2")
    history.ask(elect(2))
    history.event(ElectMaster("a", 2))
    history.event(ElectMaster("a", None), LivenessView("n0", BOTH, frozenset({2})))
    history.event(ElectMaster("a", 2))
    assert history.check.elections == 4


@pytest.mark.parametrize(
    "asked",
    [alter(epoch=0), alter(set_epoch=0), alter(master_id=2), alter(frozenset({1}))],
    ids=["an earlier epoch", "an earlier set", "not the master", "another set"],
)
def test_an_alter_that_matches_no_request_is_found(history: History, asked: RemotingCommand) -> None:
    history.ask(asked)
    with pytest.raises(Violation, match="^S1"):
        history.event(AlterSyncStateSet("a", BOTH))


@pytest.mark.parametrize("members", [frozenset(), frozenset({2}), frozenset({1, 9})])
def test_an_invalid_sync_state_set_is_found(history: History, members: frozenset[int]) -> None:
    history.ask(alter(members))
    with pytest.raises(Violation, match="^S2"):
        history.event(AlterSyncStateSet("a", members))


def test_an_alter_of_unknown_outcome_may_take_effect_later_a_refused_one_not(history: History) -> None:
    lost, refused = alter(), alter()
    history.answer(history.ask(lost), lost, ResponseCode.SYSTEM_ERROR)
    ask = history.ask(refused)
    history.event(AlterSyncStateSet("a", BOTH))
    history.answer(ask, refused, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)
    other = alter(frozenset({1}), set_epoch=2)
    ask = history.ask(other)
    history.event(AlterSyncStateSet("a", frozenset({1})))
    with pytest.raises(Violation, match="^R8"):
        history.answer(ask, other, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)


def test_one_event_answered_to_two_requests_is_found(history: History) -> None:
    one, other = alter(), alter()
    asks = history.ask(one), history.ask(other)
    history.event(AlterSyncStateSet("a", BOTH))
    history.answer(asks[0], one, newSyncStateSetEpoch="2")
    with pytest.raises(Violation, match="^R8"):
        history.answer(asks[1], other, newSyncStateSetEpoch="2")


def test_a_set_with_a_member_that_the_master_does_not_wait_for_is_found(history: History) -> None:
    history.check.union_of = lambda _name, _master, _epoch: frozenset({1})
    history.ask(alter())
    with pytest.raises(Violation, match="^S3"):
        history.event(AlterSyncStateSet("a", BOTH))


@pytest.mark.parametrize("successor", [2, None])
def test_a_live_master_is_replaced_only_for_an_operator(history: History, successor: int | None) -> None:
    history.ask(alter())
    history.event(AlterSyncStateSet("a", BOTH))
    with pytest.raises(Violation, match="^H1"):
        history.event(ElectMaster("a", successor))


def test_an_election_outside_the_set_passes_only_if_unclean_ones_are_allowed(history: History) -> None:
    history.check.unclean = True
    history.event(ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset({1})))
    history.check.unclean = False
    with pytest.raises(Violation, match="^M4"):
        history.event(ElectMaster("a", 1), LivenessView("n0", BOTH, frozenset({2})))


def test_the_election_of_an_inactive_broker_is_found(history: History) -> None:
    history.event(ElectMaster("a", None), LivenessView("n0", BOTH, frozenset({1})))
    with pytest.raises(Violation, match="^M4"):
        history.event(ElectMaster("a", 1), LivenessView("n0", frozenset({2}), frozenset({1})))


def test_an_epoch_for_no_master_twice_or_for_the_same_master_is_found(history: History) -> None:
    with pytest.raises(Violation, match="^M1"):
        history.event(ElectMaster("a", 1))
    history.event(ElectMaster("a", None), LivenessView("n0", BOTH, frozenset({1})))
    with pytest.raises(Violation, match="^M1"):
        history.event(ElectMaster("a", None))


def test_an_id_with_two_owners_is_found(history: History) -> None:
    history.ask(apply_id(2, "another"))
    with pytest.raises(Violation, match="^B1"):
        history.event(ApplyBrokerId("c", "a", 2, "h2:1", "h2:1;another"))


def test_the_removal_of_a_live_broker_is_found(history: History) -> None:
    history.ask(request(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataHeader("a", "c", "2")))
    with pytest.raises(Violation, match="^B2"):
        history.event(CleanBrokerData("a", frozenset({2})))


def test_an_unproposed_entry_and_a_wrong_resulting_state_are_found(history: History) -> None:
    history.ask(alter())
    with pytest.raises(Violation, match="^R8"):
        history.event(AlterSyncStateSet("a", BOTH), liveness=None)
    with pytest.raises(Violation, match="^R5"):
        history.event(AlterSyncStateSet("a", BOTH), kept=history.check.state("a"))


@pytest.mark.parametrize(("epoch", "passes"), [("2", True), ("1", False)])
def test_a_read_returns_a_state_no_older_than_its_begin(history: History, epoch: str, passes: bool) -> None:
    history.event(ElectMaster("a", None), LivenessView("n0", BOTH, frozenset({1})))
    reading = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader("a"))
    ask = history.ask(reading)
    reply = reading.reply()
    reply.ext = {"masterEpoch": epoch} | ({} if passes else {"masterBrokerId": "1"})
    reply.body = SyncStateSetBody(frozenset({1}), 1).encode()
    history.check.answered(ask, reply)
    if passes:
        history.check.raise_found()
    else:
        with pytest.raises(Violation, match="^R10"):
            history.check.raise_found()


def test_a_refusal_may_increase_the_set_epoch_and_change_nothing_else(history: History) -> None:
    asked = alter()
    ask = history.ask(asked)
    history.event(AlterSyncStateSet("a", frozenset({1})), ONE_HEARD)
    history.answer(ask, asked, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)
    history.check.raise_found()
    with pytest.raises(Violation, match="^S1"):
        history.event(AlterSyncStateSet("a", BOTH))


@pytest.mark.parametrize("liveness", [ALL_HEARD, ONE_HEARD])
def test_a_fence_without_a_refused_request_is_found(history: History, liveness: LivenessView) -> None:
    if liveness is ALL_HEARD:
        history.ask(alter())
    with pytest.raises(Violation, match="^S1"):
        history.event(AlterSyncStateSet("a", frozenset({1})), liveness)


def test_a_fence_with_another_refusal_is_found(history: History) -> None:
    asked = alter()
    ask = history.ask(asked)
    history.event(AlterSyncStateSet("a", frozenset({1})), ONE_HEARD)
    with pytest.raises(Violation, match="^R8"):
        history.answer(ask, asked, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH)


def shrunk(history: History, members_min: int, eligible: frozenset[int]) -> None:
    """Both are in the set, and 2 leaves it."""
    history.ask(alter(members_min=members_min))
    history.event(AlterSyncStateSet("a", BOTH))
    history.ask(alter(frozenset({1}), set_epoch=2, members_min=members_min))
    history.event(AlterSyncStateSet("a", frozenset({1}), eligible))


@pytest.mark.parametrize(("members_min", "stays"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("kept", [False, True])
def test_a_member_that_leaves_a_set_below_the_minimum_stays_eligible(
    history: History, members_min: int, stays: bool, kept: bool
) -> None:
    if kept == stays:
        shrunk(history, members_min, frozenset({2}) if kept else frozenset())
    else:
        with pytest.raises(Violation, match="^S1"):
            shrunk(history, members_min, frozenset({2}) if kept else frozenset())


@pytest.mark.parametrize(("members_min", "rule"), [(2, None), (0, "^M4")])
def test_an_eligible_broker_that_reports_its_data_loss_may_be_elected(
    history: History, members_min: int, rule: str | None
) -> None:
    shrunk(history, 2, frozenset({2}))
    said = {2: Said(members_min)}
    elected = ElectMaster("a", 2, frozenset({1}) if members_min else frozenset())
    liveness = LivenessView("n0", BOTH, frozenset({1}), BOTH, said=said)
    if rule is None:
        history.event(elected, liveness)
    else:
        with pytest.raises(Violation, match=rule):
            history.event(elected, liveness)


def test_the_election_of_a_broker_without_acknowledged_data_is_found(history: History) -> None:
    shrunk(history, 2, frozenset({2}))
    history.check.acknowledged("a", frozenset({1}))
    with pytest.raises(Violation, match="^M5"):
        history.event(
            ElectMaster("a", 2, frozenset({1})), LivenessView("n0", BOTH, frozenset({1}), said={2: Said(2)})
        )


def test_a_broker_that_may_have_lost_data_is_elected_only_after_the_others(history: History) -> None:
    history.ask(alter())
    history.event(AlterSyncStateSet("a", BOTH))
    history.event(ElectMaster("a", None), LivenessView("n0", BOTH, frozenset({1})))
    incomplete = Said(may_miss=True, log_end=9)
    for liveness in (
        LivenessView("n0", frozenset({2}), frozenset({1}), frozenset({2}), said={2: incomplete}),
        LivenessView("n0", BOTH, frozenset(), BOTH, said={1: Said(log_end=1), 2: incomplete}),
    ):
        with pytest.raises(Violation, match="^M4"):
            history.event(ElectMaster("a", 2), liveness)
    history.event(
        ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset(), BOTH, said={1: incomplete, 2: incomplete})
    )


@pytest.mark.parametrize("better", [Unfitness.FIT, Unfitness.COULD_LEAD])
def test_an_unfit_master_is_replaced_by_a_fit_one(history: History, better: Unfitness) -> None:
    history.ask(alter())
    history.event(AlterSyncStateSet("a", BOTH))
    unfit, fit = Said(unfit=Unfitness.CANNOT, log_end=9), Said(unfit=better, log_end=9)
    with pytest.raises(Violation, match="^H1"):
        history.event(
            ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset(), BOTH, said={1: unfit, 2: unfit})
        )
    history.event(ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset(), BOTH, said={1: unfit, 2: fit}))
    with pytest.raises(Violation, match="^M4"):
        history.event(
            ElectMaster("a", 1), LivenessView("n0", BOTH, frozenset({2}), BOTH, said={1: unfit, 2: fit})
        )


def test_of_two_half_fit_brokers_the_master_is_replaced_only_if_it_misses_data(history: History) -> None:
    history.ask(alter())
    history.event(AlterSyncStateSet("a", BOTH))
    whole = Said(unfit=Unfitness.COULD_LEAD, log_end=4000, once=4000)
    short = Said(unfit=Unfitness.COULD_LEAD, log_end=1000, once=4000)
    for said in ({1: whole, 2: whole}, {1: short, 2: short}, {1: whole, 2: short}):
        with pytest.raises(Violation, match="^H1"):
            history.event(ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset(), frozenset(), said=said))
    history.event(ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset(), BOTH, said={1: short, 2: whole}))


@pytest.mark.parametrize("late", [False, True])
def test_a_registration_deposes_a_live_master_unless_it_is_late(history: History, late: bool) -> None:
    history.ask(
        request(RequestCode.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerHeader("a", 1, "h1:1", "c"))
    )
    liveness = LivenessView("n0", BOTH, frozenset(), BOTH, restarted=frozenset() if late else frozenset({1}))
    if late:
        with pytest.raises(Violation, match="^H1"):
            history.event(ElectMaster("a", None), liveness)
    else:
        history.event(ElectMaster("a", None), liveness)


def test_a_half_fit_broker_with_an_outdated_report_may_count_as_missing_data(
    history: History,
) -> None:
    history.ask(alter())
    history.event(AlterSyncStateSet("a", BOTH))
    echoed = Said(unfit=Unfitness.COULD_LEAD, log_end=9, once=9, overtaken=True)
    whole = Said(unfit=Unfitness.COULD_LEAD, log_end=9, once=9)
    fit = Said(log_end=9, once=9, overtaken=True)
    history.event(
        ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset(), BOTH, said={1: echoed, 2: whole})
    )
    history.event(ElectMaster("a", None), LivenessView("n0", BOTH, frozenset({2}), BOTH))
    history.event(ElectMaster("a", 2), LivenessView("n0", BOTH, frozenset(), BOTH, said={1: fit, 2: whole}))


@pytest.mark.parametrize(("incarnation", "rule"), [(7, None), (8, "^M2"), (0, "^M2")])
def test_a_process_elected_since_its_start_may_ask_again(
    history: History, incarnation: int, rule: str | None
) -> None:
    def register(incarnation: int) -> RemotingCommand:
        header = RegisterBrokerToControllerHeader("a", 1, "h1:1", "c", incarnation=incarnation)
        return request(RequestCode.CONTROLLER_REGISTER_BROKER, header)

    history.ask(register(7))
    history.event(
        ElectMaster("a", None), LivenessView("n0", BOTH, frozenset(), BOTH, restarted=frozenset({1}))
    )
    history.event(ElectMaster("a", 1))
    once_more = register(incarnation)
    if rule is None:
        history.answer(history.ask(once_more), once_more)
    else:
        with pytest.raises(Violation, match=rule):
            history.answer(history.ask(once_more), once_more)


@pytest.mark.parametrize(
    ("since", "rule"), [("recreated", None), ("forgotten", "^R10"), ("registered", "^R10")]
)
def test_only_a_broker_that_was_never_in_the_set_gets_metadata_not_exist(
    history: History, since: str, rule: str | None
) -> None:
    living = CleanBrokerDataHeader("a", "c", "2" if since == "forgotten" else "1;2", True)
    if since != "registered":
        history.ask(request(RequestCode.CLEAN_BROKER_DATA, living))
        cleaned = frozenset({2}) if since == "forgotten" else BOTH
        history.event(CleanBrokerData("a", cleaned))
    if since == "recreated":
        history.ask(apply_id(1, "y"))
        history.event(ApplyBrokerId("c", "a", 1, "h1:1", "h1:1;y"))
    asked = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader("a", 2, "h2:1;x"))
    if rule is None:
        history.answer(history.ask(asked), asked, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)
    else:
        with pytest.raises(Violation, match=rule):
            history.answer(history.ask(asked), asked, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)


def test_a_master_that_stops_waiting_for_a_member_of_its_set_is_found(history: History) -> None:
    history.check.waits_for("a", 1, 1, BOTH)
    history.check.raise_found()
    history.check.waits_for("a", 1, 1, frozenset({2}))
    with pytest.raises(Violation, match="^S3"):
        history.check.raise_found()
