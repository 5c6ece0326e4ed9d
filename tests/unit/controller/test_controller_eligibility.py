"""Who may be elected besides the SyncStateSet, and who of it may not: KIP-966's rules on our tables."""

from __future__ import annotations

from controller.commands import clean_broker_data, register_broker
from controller.decision import Decision
from controller.elections import elect_master, replace_lost_master
from controller.electpolicy import LiveReport
from controller.events import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, ElectMaster, Event, encode
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.state import ReplicasState
from remoting.codes import ResponseCode

NOW = 1_000_000


def report(end: int, members_min: int = 2, **said: bool | str) -> LiveReport:
    return LiveReport(1, end, 0, members_min, **said)  # type: ignore[arg-type]


def alive(lacking: tuple[int, ...] = (), **reports: LiveReport) -> Liveness:
    """b1=report(100): broker 1 lives and says so; whoever is not named is dead."""
    table = Heartbeats()
    for broker_id in (1, 2, 3):
        said = reports.get(f"b{broker_id}")
        table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, said or report(0)), NOW)
        if said is None:
            table.connection_closed(broker_id, NOW)
    return table.at(NOW, NOW, frozenset(("c", "a", broker_id) for broker_id in lacking))


def applied(*events: Event) -> ReplicasState:
    """Three brokers, of which 1 led epoch 1; and what happened then."""
    state = ReplicasState()
    ids = (
        ApplyBrokerId("c", "a", broker_id, f"h{broker_id}:1", f"h{broker_id}:1;7") for broker_id in (1, 2, 3)
    )
    for event in (*ids, ElectMaster("a", 1), *events):
        state.apply(event)
    return state


def members(*ids: int, eligible: tuple[int, ...] = ()) -> AlterSyncStateSet:
    return AlterSyncStateSet("a", frozenset(ids), frozenset(eligible))


def replaced(state: ReplicasState, live: Liveness, *, unclean: bool = False) -> ElectMaster | None:
    decision = replace_lost_master(state, live, broker_name="a", unclean=unclean)
    if decision is None:
        return None
    (event,) = decision.events
    assert isinstance(event, ElectMaster)
    return event


def test_the_last_member_came_back_short_and_one_that_left_with_everything_is_elected() -> None:
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    live = alive(b1=report(50, may_lack=True), b2=report(100), b3=report(90))
    assert replaced(state, live) == ElectMaster("a", 2, frozenset({1, 3}))


def test_a_member_that_may_lack_something_waits_for_one_that_does_not() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    assert replaced(state, alive(b1=report(50, may_lack=True))) is None
    assert replaced(state, alive(b1=report(50, may_lack=True), b2=report(40))) == ElectMaster(
        "a", 2, frozenset({1})
    )


def test_who_was_heard_only_before_this_controller_led_is_elected_by_an_operator_alone() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    table = Heartbeats()
    table.heard(("c", "a", 2), 1, Heartbeat("", 10_000, report(100)), NOW)
    before = table.at(NOW + 5, NOW + 1)
    assert before.is_alive(("c", "a", 2)) and replaced(state, before) is None
    designated = elect_master(state, before, broker_name="a", broker_id=2, designate=True, unclean=False)
    assert designated.events == (ElectMaster("a", 2, frozenset({1})),)
    table.heard(("c", "a", 2), 1, Heartbeat("", 10_000, report(100)), NOW + 6)
    assert replaced(state, table.at(NOW + 6, NOW + 1)) == ElectMaster("a", 2, frozenset({1}))


def test_once_all_are_there_and_all_may_lack_something_the_best_of_them_leads() -> None:
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    short = {"b1": report(50, may_lack=True), "b2": report(70, may_lack=True)}
    assert replaced(state, alive(**short)) is None
    assert replaced(state, alive(b3=report(0, may_lack=True), **short)) == ElectMaster(
        "a", 2, frozenset({1, 3})
    )


def test_of_equal_logs_that_may_lack_something_one_that_can_lead_is_elected_and_a_longer_one_before() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    slow = report(70, may_lack=True, unfit="its disk is slow")
    equal = alive(b1=slow, b2=report(70, may_lack=True))
    assert replaced(state, equal) == ElectMaster("a", 2, frozenset({1}))
    shorter = alive(b1=slow, b2=report(69, may_lack=True))
    assert replaced(state, shorter) == ElectMaster("a", 1, frozenset({2}))


def test_a_set_that_never_held_a_byte_finds_a_master_after_all_machines_went_down() -> None:
    state = applied(members(1, 2, 3), ElectMaster("a", None))
    empty = {f"b{broker_id}": report(0, may_lack=True) for broker_id in (1, 2, 3)}
    assert replaced(state, alive(**empty)) == ElectMaster("a", 1, frozenset({2, 3}))
    assert replaced(state, alive(lacking=(1, 2, 3), **empty)) is None, "emptied stores are something else"


def test_two_die_within_a_moment_and_the_dying_one_was_elected() -> None:
    state = applied(members(1, 2, 3))
    first = replaced(state, alive(b2=report(100), b3=report(90)))
    assert first == ElectMaster("a", 2, frozenset({1, 3}))
    state.apply(first)
    assert replaced(state, alive(b3=report(90))) == ElectMaster("a", 3, frozenset({1, 2}))


def test_an_election_by_upstreams_rules_leaves_nobody_eligible_and_upstreams_brokers_are_not() -> None:
    state = applied(members(1, 2, 3))
    assert replaced(state, alive(b2=report(100, 0), b3=report(90, 0))) == ElectMaster("a", 2)
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    assert replaced(state, alive(b2=report(100, 0))) is None


def test_an_unclean_election_says_so_and_ends_all_eligibility() -> None:
    state = applied(members(1, eligible=(2,)), ElectMaster("a", None))
    decision = replace_lost_master(state, alive(b3=report(10)), broker_name="a", unclean=True)
    assert decision is not None and decision.events == (ElectMaster("a", 3),)
    assert decision.reason.endswith("unclean")


def test_a_master_that_cannot_lead_yields_to_one_that_can() -> None:
    state = applied(members(1, 2, 3))
    unfit = report(100, unfit="disk full")
    decision = replace_lost_master(state, alive(b1=unfit, b2=report(90)), broker_name="a", unclean=False)
    assert decision is not None and decision.events == (ElectMaster("a", 2, frozenset({1, 3})),)
    assert decision.reason == "could not lead"
    alone = alive(b1=unfit, b2=report(90, may_lack=True))
    assert replace_lost_master(state, alone, broker_name="a", unclean=False) is None
    both = alive(b1=unfit, b2=report(200, unfit="disk hangs"))
    assert replace_lost_master(state, both, broker_name="a", unclean=False) is None, "nobody is better"


def test_a_damaged_log_leads_before_one_that_cannot_and_after_one_that_is_sound() -> None:
    damaged = report(100, unfit="records of its log are damaged", could_lead=True)
    cannot = report(200, unfit="it could not begin as master")
    state = applied(members(1, 2, 3), ElectMaster("a", None))
    assert replaced(state, alive(b1=cannot, b2=damaged)) == ElectMaster("a", 2, frozenset({1, 3}))
    assert replaced(state, alive(b1=cannot, b2=damaged, b3=report(90))) == ElectMaster(
        "a", 3, frozenset({1, 2})
    )
    led = applied(members(1, 2, 3))
    assert replaced(led, alive(b1=cannot, b2=damaged)) == ElectMaster("a", 2, frozenset({1, 3}))
    assert replaced(led, alive(b1=damaged, b2=cannot)) is None, "nobody is better"
    assert replaced(led, alive(b1=damaged, b2=damaged)) is None
    assert replaced(led, alive(b1=damaged, b2=report(90))) == ElectMaster("a", 2, frozenset({1, 3}))


def test_one_that_cannot_lead_is_elected_only_when_no_other_can_be() -> None:
    state = applied(members(1, 2, 3), ElectMaster("a", None))
    assert replaced(state, alive(b1=report(100, unfit="disk full"), b2=report(90))) == ElectMaster(
        "a", 2, frozenset({1, 3})
    )
    assert replaced(state, alive(b1=report(100, unfit="disk full"))) == ElectMaster("a", 1, frozenset({2, 3}))


def test_an_async_learner_never_leads_not_even_first_or_designated_or_unclean() -> None:
    nobody = ReplicasState()
    for broker_id in (1, 2):
        nobody.apply(ApplyBrokerId("c", "a", broker_id, "h:1", f"h:1;{broker_id}"))
    live = alive(b1=report(0, is_learner=True), b2=report(0))

    def elected(
        state: ReplicasState, asked: int, *, designate: bool, unclean: bool = False
    ) -> tuple[Event, ...]:
        decision = elect_master(
            state, live, broker_name="a", broker_id=asked, designate=designate, unclean=unclean
        )
        return decision.events

    assert elected(nobody, 1, designate=False) == ()
    assert elected(nobody, 2, designate=False) == (ElectMaster("a", 2, frozenset()),)
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


def test_an_operator_designates_one_that_may_lack_something_only_once_nobody_better_lives() -> None:
    state, short = applied(members(1, eligible=(2,))), report(90, may_lack=True)

    def designated(live: Liveness, *, unclean: bool = False) -> Decision:
        return elect_master(state, live, broker_name="a", broker_id=2, designate=True, unclean=unclean)

    for live in (alive(b1=report(100), b2=short), alive(lacking=(2,), b1=report(100), b2=report(90))):
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


def test_before_those_that_live_have_told_a_new_leader_no_operator_elects_past_them() -> None:
    """Whoever has not told may be the one that lacks nothing, or a process that is gone and whose log is shorter now."""
    state, short = applied(members(1, 2), ElectMaster("a", None)), report(90, may_lack=True)

    def designated(
        said: LiveReport, *told: int, others: tuple[int, ...] = (1,), unclean: bool = False
    ) -> Decision:
        table = Heartbeats()
        reports = {2: said, **dict.fromkeys(others, report(100))}
        for broker_id in reports:
            table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, reports[broker_id]), NOW)
        for broker_id in told:
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
        "who lacks nothing, by its own word, is no worse than others"
    )
    assert designated(short, 2, others=()).events == elected
    assert designated(report(90), others=(3,)).events == elected, "3 may not be elected"
    assert designated(short, unclean=True).events == elected


def test_unclean_elections_take_one_that_may_lack_something_and_say_so() -> None:
    state = applied(members(1, 2), ElectMaster("a", None))
    decision = replace_lost_master(state, alive(b1=report(50, may_lack=True)), broker_name="a", unclean=True)
    assert decision is not None and decision.events == (ElectMaster("a", 1, frozenset({2})),)
    assert decision.reason == "no master, unclean"


def test_eligibility_survives_a_strike_and_ends_with_the_replica() -> None:
    state = applied(members(1, eligible=(2, 3)), ElectMaster("a", None))
    assert state.sync_states["a"].eligible == {2, 3}
    state.apply(CleanBrokerData("a", frozenset({2})))
    assert state.sync_states["a"].eligible == {3}


def test_events_without_eligible_replicas_have_upstreams_bytes() -> None:
    assert b"eligible" not in encode(members(1, 2)) + encode(ElectMaster("a", 1))
    assert b'"eligibleReplicas":[2,3]' in encode(members(1, eligible=(3, 2)))


def test_a_registration_that_is_late_deposes_nobody_and_moves_no_address() -> None:
    table = Heartbeats()
    key = ("c", "a", 1)
    table.heard(key, 7, Heartbeat("h1:1", 10_000, report(100)), NOW)
    assert not table.restarted(key, 5, NOW), "heard over a newer connection since"
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


def test_a_new_leader_waits_for_the_word_of_one_that_may_be_better() -> None:
    """Seeds 994013693870096 and 994013693870278 of the controllers' world: a heartbeat later no worse one was needed."""
    state = applied(members(1, 2), ElectMaster("a", None))
    table = Heartbeats()
    for broker_id in (1, 2):
        said = report(100, unfit="disk full") if broker_id == 1 else report(100)
        table.heard(("c", "a", broker_id), broker_id, Heartbeat("", 10_000, said), NOW)
    table.heard(("c", "a", 1), 1, Heartbeat("", 10_000, report(100, unfit="disk full")), NOW + 10)
    assert replaced(state, table.at(NOW + 10, NOW + 5)) is None, (
        "2 lives, and has not told this leader how it is"
    )
    table.heard(("c", "a", 2), 2, Heartbeat("", 10_000, report(100)), NOW + 20)
    assert replaced(state, table.at(NOW + 20, NOW + 5)) == ElectMaster("a", 2, frozenset({1}))


def test_a_new_leader_strikes_no_living_master_off_before_all_have_told_how_they_are() -> None:
    """Of two damaged logs none is better; and where the third cannot lead either, only its word settles who does."""
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


def test_who_has_become_a_learner_holds_nothing_that_another_may_be_forgotten_for() -> None:
    state = applied(members(1, eligible=(2, 3)))
    others = {"b1": report(9), "b2": report(9)}
    for learns, code in ((False, 0), (True, 2009)):
        live = alive(**others, b3=report(9, is_learner=learns))
        decision = clean_broker_data(state, live, broker_name="a", ids_to_clean="2", living_too=True)
        assert decision.code == code, decision.remark
