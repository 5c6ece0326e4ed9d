"""Candidates outside the SyncStateSet, and members that may not be elected: the rules of KIP-966 on our
tables."""

from __future__ import annotations

from controller.commands import clean_broker_data, register_broker
from controller.decision import Decision
from controller.elections import elect_master, replace_lost_master
from controller.electpolicy import LiveReport
from controller.events import ApplyBrokerId, CleanBrokerData, ElectMaster, Event, encode
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.state import ReplicasState
from remoting.codes import ResponseCode
from tests.unit.controller.brokersets import NOW, alive, applied, members, replaced, report


def test_an_eligible_broker_is_elected_when_the_last_member_lost_data() -> None:
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    live = alive(b1=report(50, may_miss=True), b2=report(100), b3=report(90))
    assert replaced(state, live) == ElectMaster("a", 2, frozenset({1, 3}))


def test_a_member_with_possible_data_loss_is_not_elected_before_others_return() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    assert replaced(state, alive(b1=report(50, may_miss=True))) is None
    assert replaced(state, alive(b1=report(50, may_miss=True), b2=report(40))) == ElectMaster(
        "a", 2, frozenset({1})
    )


def test_a_broker_without_a_fresh_report_is_elected_only_by_an_operator() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    table = Heartbeats()
    table.heard(("c", "a", 2), 1, Heartbeat("", 10_000, report(100)), NOW)
    before = table.at(NOW + 5, NOW + 1)
    assert before.is_alive(("c", "a", 2)) and replaced(state, before) is None
    designated = elect_master(state, before, broker_name="a", broker_id=2, designate=True, unclean=False)
    assert designated.events == (ElectMaster("a", 2, frozenset({1})),)
    table.heard(("c", "a", 2), 1, Heartbeat("", 10_000, report(100)), NOW + 6)
    assert replaced(state, table.at(NOW + 6, NOW + 1)) == ElectMaster("a", 2, frozenset({1}))


def test_the_longest_log_is_elected_once_all_members_are_back_with_possible_loss() -> None:
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    short = {"b1": report(50, may_miss=True), "b2": report(70, may_miss=True)}
    assert replaced(state, alive(**short)) is None
    assert replaced(state, alive(b3=report(0, may_miss=True), **short)) == ElectMaster(
        "a", 2, frozenset({1, 3})
    )


def test_with_possible_loss_a_longer_log_wins_and_then_a_fit_broker() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    slow = report(70, may_miss=True, unfit="its disk is slow")
    equal = alive(b1=slow, b2=report(70, may_miss=True))
    assert replaced(state, equal) == ElectMaster("a", 2, frozenset({1}))
    shorter = alive(b1=slow, b2=report(69, may_miss=True))
    assert replaced(state, shorter) == ElectMaster("a", 1, frozenset({2}))


def test_an_empty_set_elects_a_master_after_all_machines_restarted() -> None:
    state = applied(members(1, 2, 3), ElectMaster("a", None))
    empty = {f"b{broker_id}": report(0, may_miss=True) for broker_id in (1, 2, 3)}
    assert replaced(state, alive(**empty)) == ElectMaster("a", 1, frozenset({2, 3}))
    assert replaced(state, alive(incomplete=(1, 2, 3), **empty)) is None, (
        "emptied stores are a different case"
    )


def test_the_next_member_is_elected_when_the_new_master_dies_too() -> None:
    state = applied(members(1, 2, 3))
    first = replaced(state, alive(b2=report(100), b3=report(90)))
    assert first == ElectMaster("a", 2, frozenset({1, 3}))
    state.apply(first)
    assert replaced(state, alive(b3=report(90))) == ElectMaster("a", 3, frozenset({1, 2}))


def test_brokers_without_a_minimum_are_never_eligible() -> None:
    state = applied(members(1, 2, 3))
    assert replaced(state, alive(b2=report(100, 0), b3=report(90, 0))) == ElectMaster("a", 2)
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    assert replaced(state, alive(b2=report(100, 0))) is None


def test_an_unclean_election_is_labelled_and_ends_all_eligibility() -> None:
    state = applied(members(1, eligible=(2,)), ElectMaster("a", None))
    decision = replace_lost_master(state, alive(b3=report(10)), broker_name="a", unclean=True)
    assert decision is not None and decision.events == (ElectMaster("a", 3),)
    assert decision.reason.endswith("unclean")


def test_an_unfit_master_is_replaced_by_a_fit_member() -> None:
    state = applied(members(1, 2, 3))
    unfit = report(100, unfit="disk full")
    decision = replace_lost_master(state, alive(b1=unfit, b2=report(90)), broker_name="a", unclean=False)
    assert decision is not None and decision.events == (ElectMaster("a", 2, frozenset({1, 3})),)
    assert decision.reason == "could not lead"
    alone = alive(b1=unfit, b2=report(90, may_miss=True))
    assert replace_lost_master(state, alone, broker_name="a", unclean=False) is None
    both = alive(b1=unfit, b2=report(200, unfit="disk hangs"))
    assert replace_lost_master(state, both, broker_name="a", unclean=False) is None, "no broker is better"


def test_a_damaged_log_ranks_below_an_intact_one_and_above_an_unfit_broker() -> None:
    damaged = report(100, unfit="records of its log are damaged", could_lead=True)
    cannot = report(200, unfit="it could not begin as master")
    state = applied(members(1, 2, 3), ElectMaster("a", None))
    assert replaced(state, alive(b1=cannot, b2=damaged)) == ElectMaster("a", 2, frozenset({1, 3}))
    assert replaced(state, alive(b1=cannot, b2=damaged, b3=report(90))) == ElectMaster(
        "a", 3, frozenset({1, 2})
    )
    led = applied(members(1, 2, 3))
    assert replaced(led, alive(b1=cannot, b2=damaged)) == ElectMaster("a", 2, frozenset({1, 3}))
    assert replaced(led, alive(b1=damaged, b2=cannot)) is None, "no broker is better"
    assert replaced(led, alive(b1=damaged, b2=damaged)) is None
    assert replaced(led, alive(b1=damaged, b2=report(90))) == ElectMaster("a", 2, frozenset({1, 3}))


def test_an_unfit_member_is_elected_only_when_no_other_can_be() -> None:
    state = applied(members(1, 2, 3), ElectMaster("a", None))
    assert replaced(state, alive(b1=report(100, unfit="disk full"), b2=report(90))) == ElectMaster(
        "a", 2, frozenset({1, 3})
    )
    assert replaced(state, alive(b1=report(100, unfit="disk full"))) == ElectMaster("a", 1, frozenset({2, 3}))


def test_an_async_learner_is_never_elected() -> None:
    no_master = ReplicasState()
    for broker_id in (1, 2):
        no_master.apply(ApplyBrokerId("c", "a", broker_id, "h:1", f"h:1;{broker_id}"))
    live = alive(b1=report(0, is_learner=True), b2=report(0))

    def elected(
        state: ReplicasState, asked: int, *, designate: bool, unclean: bool = False
    ) -> tuple[Event, ...]:
        decision = elect_master(
            state, live, broker_name="a", broker_id=asked, designate=designate, unclean=unclean
        )
        return decision.events

    assert elected(no_master, 1, designate=False) == ()
    assert elected(no_master, 2, designate=False) == (ElectMaster("a", 2, frozenset()),)
    state = applied(ElectMaster("a", 2))
    assert elected(state, 1, designate=True, unclean=True) == ()


def test_an_operator_may_designate_an_eligible_broker() -> None:
    state = applied(members(1, eligible=(2,)))
    live = alive(b1=report(100), b2=report(90), b3=report(90))

    def designated(broker_id: int) -> tuple[Event, ...]:
        return elect_master(
            state, live, broker_name="a", broker_id=broker_id, designate=True, unclean=False
        ).events

    assert designated(2) == (ElectMaster("a", 2, frozenset({1})),)
    assert designated(3) == ()


def test_an_operator_cannot_elect_a_broker_with_possible_loss_over_a_better_one() -> None:
    state, short = applied(members(1, eligible=(2,))), report(90, may_miss=True)

    def designated(live: Liveness, *, unclean: bool = False) -> Decision:
        return elect_master(state, live, broker_name="a", broker_id=2, designate=True, unclean=unclean)

    for live in (alive(b1=report(100), b2=short), alive(incomplete=(2,), b1=report(100), b2=report(90))):
        refused = designated(live)
        assert (refused.code, refused.events) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, ())
        assert (
            refused.remark is not None
            and "[1] lives and is missing nothing: let 2 catch up" in refused.remark
        )
    for live, unclean in ((alive(b2=short), False), (alive(b1=report(100), b2=short), True)):
        elected = designated(live, unclean=unclean)
        assert elected.events == (ElectMaster("a", 2, frozenset({1})),)
        assert elected.reason == "operator asked, unclean"


def test_an_operator_cannot_elect_past_live_brokers_without_a_fresh_report() -> None:
    """A broker without a fresh report may be complete, or its process died and its log is shorter now."""
    state, short = applied(members(1, 2), ElectMaster("a", None)), report(90, may_miss=True)

    def designated(
        said: LiveReport, *reported: int, others: tuple[int, ...] = (1,), unclean: bool = False
    ) -> Decision:
        table = Heartbeats()
        reports = {2: said, **dict.fromkeys(others, report(100))}
        for broker_id in reports:
            table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, reports[broker_id]), NOW)
        for broker_id in reported:
            table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, reports[broker_id]), NOW + 10)
        live = table.at(NOW + 10, NOW + 5)
        return elect_master(state, live, broker_name="a", broker_id=2, designate=True, unclean=unclean)

    for refused in (
        designated(short, 2),
        designated(short),
        designated(report(90), 1),
        designated(report(90)),
    ):
        assert (refused.code, refused.events) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, ())
        assert refused.remark is not None and "try again in a moment" in refused.remark
    elected = (ElectMaster("a", 2, frozenset({1})),)
    assert designated(report(90), 2).events == elected, (
        "a broker that reports no loss is no worse than others"
    )
    assert designated(short, 2, others=()).events == elected
    assert designated(report(90), others=(3,)).events == elected, "3 may not be elected"
    assert designated(short, unclean=True).events == elected


def test_an_unclean_election_takes_a_broker_with_possible_data_loss() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    decision = replace_lost_master(state, alive(b1=report(50, may_miss=True)), broker_name="a", unclean=True)
    assert decision is not None and decision.events == (ElectMaster("a", 1, frozenset({2})),)
    assert decision.reason == "no master, unclean"


def test_eligibility_survives_the_loss_of_the_master_and_ends_with_the_replica() -> None:
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    assert state.sync_states["a"].eligible == {2, 3}
    state.apply(CleanBrokerData("a", frozenset({2})))
    assert state.sync_states["a"].eligible == {3}


def test_events_without_eligible_replicas_have_the_bytes_of_upstream() -> None:
    assert b"eligible" not in encode(members(1, 2)) + encode(ElectMaster("a", 1))
    assert b'"eligibleReplicas":[2,3]' in encode(members(1, eligible=(3, 2)))


def test_a_late_registration_deposes_no_master_and_changes_no_address() -> None:
    table = Heartbeats()
    key = ("c", "a", 1)
    table.heard(key, 7, Heartbeat("h1:1", 10_000, report(100)), NOW)
    assert not table.restarted(key, 5, NOW), "it was heard over a newer connection since"
    assert table.at(NOW, NOW).is_alive(key)
    state = applied(members(1, 2))

    def registered(*, is_late: bool, address: str = "h1:1") -> tuple[Event, ...]:
        return register_broker(
            state,
            table.at(NOW, NOW),
            cluster_name="c",
            broker_name="a",
            broker_id=1,
            address=address,
            is_late=is_late,
        ).events

    assert registered(is_late=True) == registered(is_late=True, address="former:1") == ()
    assert registered(is_late=False) == (ElectMaster("a", None),)
    assert table.restarted(key, 8, NOW) and not table.at(NOW, NOW).is_alive(key)


def test_a_new_leader_waits_for_the_report_of_a_live_better_candidate() -> None:
    """Seeds 994013693870096 and 994013693870278 of the controllers' world: one heartbeat later a better one
    was known."""
    state = applied(members(1, 2), ElectMaster("a", None))
    table = Heartbeats()
    for broker_id in (1, 2):
        said = report(100, unfit="disk full") if broker_id == 1 else report(100)
        table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, said), NOW)
    table.heard(("c", "a", 1), 1, Heartbeat("", 10_000, report(100, unfit="disk full")), NOW + 10)
    assert replaced(state, table.at(NOW + 10, NOW + 5)) is None, (
        "2 is alive and has not reported to this leader"
    )
    table.heard(("c", "a", 2), 2, Heartbeat("", 10_000, report(100)), NOW + 20)
    assert replaced(state, table.at(NOW + 20, NOW + 5)) == ElectMaster("a", 2, frozenset({1}))


def test_a_new_leader_replaces_no_live_master_before_all_brokers_reported() -> None:
    """Of two damaged logs none is better; if the third broker is unfit too, its report is still needed to
    choose."""
    damaged = report(100, unfit="records of its log are damaged", could_lead=True)
    cannot = report(100, unfit="its disk takes no messages")
    for master, ids in ((damaged, (1, 2)), (cannot, (1, 2, 3))):
        said = {1: master, 2: damaged, 3: cannot}
        state, table = applied(members(*ids)), Heartbeats()
        for broker_id in ids:
            table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, said[broker_id]), NOW)
        table.heard(("c", "a", 2), 2, Heartbeat("", 10_000, damaged), NOW + 10)
        assert replaced(state, table.at(NOW + 10, NOW + 5)) is None
    for broker_id in ids:
        table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, said[broker_id]), NOW + 20)
    assert replaced(state, table.at(NOW + 20, NOW + 5)) == ElectMaster("a", 2, frozenset({1, 3}))


def test_a_learner_does_not_count_when_another_replica_is_cleaned() -> None:
    state = applied(members(1, eligible=(2, 3)))
    others = {"b1": report(9), "b2": report(9)}
    for learns, code in ((False, 0), (True, 2009)):
        live = alive(**others, b3=report(9, is_learner=learns))
        decision = clean_broker_data(state, live, broker_name="a", ids_to_clean="2", living_too=True)
        assert decision.code == code, decision.remark
