from __future__ import annotations

from controller.decision import Decision
from controller.elections import NOBODY, elect_master, replace_lost_master
from controller.electpolicy import LiveReport
from controller.events import AlterSyncStateSet, ElectMaster
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.state import ReplicasState
from tests.unit.controller.brokersets import granted, state_of

NOW = 1_000_000
GONE, UNHEARD = "gone", "unheard"


def three_brokers(*members: int) -> ReplicasState:
    """Master 1 in epoch 1, set epoch 2."""
    alter = AlterSyncStateSet("a", frozenset(members))
    return state_of(granted(1), granted(2), granted(3), ElectMaster("a", 1), alter)


def brokers(*, incomplete: tuple[int, ...] = (), **lives: int | str) -> Liveness:
    """b1=100: broker 1 is alive and its log ends at 100; "gone": its connection closed; "unheard": never
    heard."""
    table = Heartbeats()
    for name, life in lives.items():
        broker_id = int(name[1:])
        if life == UNHEARD:
            continue
        beat = Heartbeat("", 10_000, LiveReport(1, life if isinstance(life, int) else 0, 0))
        table.heard(("c", "a", broker_id), broker_id, beat, NOW)
        if life == GONE:
            table.connection_closed(broker_id, NOW)
    return table.at(NOW, NOW, frozenset(("c", "a", broker_id) for broker_id in incomplete))


def elect(
    state: ReplicasState, live: Liveness, broker_id: int, *, designate: bool = False, unclean: bool = False
) -> Decision:
    return elect_master(
        state, live, broker_name="a", broker_id=broker_id, designate=designate, unclean=unclean
    )


def replace(state: ReplicasState, live: Liveness, *, unclean: bool = False) -> Decision | None:
    return replace_lost_master(state, live, broker_name="a", unclean=unclean)


def ext(decision: Decision) -> dict[str, str]:
    assert decision.header is not None
    return decision.header.to_ext()


def test_no_master_is_elected_for_an_unknown_set() -> None:
    assert elect(state_of(), brokers(b1=0), 1).code == 2010
    assert replace(state_of(), brokers(b1=0)) is None


def test_the_first_election_elects_the_requesting_broker() -> None:
    decision = elect(state_of(granted(1), granted(2)), brokers(b1=100, b2=0), 2)
    assert decision.code == 0
    assert decision.events == (ElectMaster("a", 2),)
    assert ext(decision) == {
        "masterBrokerId": "2",
        "masterAddress": "h2:1",
        "masterEpoch": "1",
        "syncStateSetEpoch": "1",
    }
    assert decision.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{"1":"h1:1","2":"h2:1"},"brokerName":"a","cluster":"c"},'
        b'"syncStateSet":[2]}'
    )


def test_the_first_election_rejects_an_unknown_or_dead_broker() -> None:
    state = state_of(granted(1))
    for asked in (NOBODY, 1, 9):
        for designate in (False, True):
            decision = elect(state, brokers(b1=GONE, b9=0), asked, designate=designate, unclean=True)
            assert decision.code in (2004, 2012) and decision.events == ()


def test_an_election_returns_the_live_master() -> None:
    decision = elect(three_brokers(1, 2, 3), brokers(b1=0, b2=900), 2)
    assert (decision.code, decision.events) == (2011, ())
    assert ext(decision) == {
        "masterBrokerId": "1",
        "masterAddress": "h1:1",
        "masterEpoch": "1",
        "syncStateSetEpoch": "2",
    }
    assert decision.body == b'{"syncStateSet":[1,2,3]}'
    assert replace(three_brokers(1, 2, 3), brokers(b1=0, b2=900)) is None


def test_a_new_leader_does_not_depose_a_master_it_has_not_heard_yet() -> None:
    live = brokers(b1=UNHEARD, b2=0)
    assert elect(three_brokers(1, 2), live, 2).code == 2011
    assert elect(three_brokers(1, 2), live, NOBODY).code == 2011
    assert replace(three_brokers(1, 2), live) is None


def test_an_operator_may_designate_a_live_member() -> None:
    decision = elect(three_brokers(1, 2, 3), brokers(b1=0, b2=0), 2, designate=True)
    assert decision.events == (ElectMaster("a", 2),)
    assert ext(decision)["masterEpoch"] == "2"
    assert elect(three_brokers(1, 2), brokers(b1=0, b2=0), 1, designate=True).code == 2011


def test_an_operator_cannot_designate_a_dead_or_unknown_broker_or_a_non_member() -> None:
    for asked in (2, 3, 9, NOBODY):
        decision = elect(three_brokers(1, 2), brokers(b1=0, b2=GONE, b3=0), asked, designate=True)
        assert (decision.code, decision.events) == (2012, ())


def test_a_lost_master_is_replaced_by_the_best_member() -> None:
    decision = replace(three_brokers(1, 2, 3), brokers(b1=GONE, b2=50, b3=60))
    assert decision is not None
    assert decision.events == (ElectMaster("a", 3),)
    asked = elect(three_brokers(1, 2, 3), brokers(b1=GONE, b2=50, b3=60), 2)
    assert asked.events == (ElectMaster("a", 3),), "a request gives no precedence"


def test_brokers_outside_the_set_are_elected_only_in_unclean_elections() -> None:
    live = brokers(b1=GONE, b2=50, b3=900)
    clean = replace(three_brokers(1, 2), live, unclean=True)
    assert clean is not None and clean.events == (ElectMaster("a", 2),), "a member goes first"
    unclean = replace(three_brokers(1), live, unclean=True)
    assert unclean is not None and unclean.events == (ElectMaster("a", 3),)
    designated = elect(three_brokers(1), live, 2, designate=True, unclean=True)
    assert designated.events == (ElectMaster("a", 2),)


def test_a_lost_master_without_successor_is_removed_once_and_the_set_is_kept() -> None:
    state = three_brokers(1, 2)
    live = brokers(b1=GONE, b2=GONE, b3=0)
    decision = replace(state, live)
    assert decision is not None
    assert (decision.code, decision.events) == (2004, (ElectMaster("a", None),))
    state.apply(decision.events[0])
    assert state.sync_states["a"].members == {1, 2}
    assert replace(state, live) is None
    assert state.sync_states["a"].master_epoch == 2


def test_a_request_never_removes_a_lost_master() -> None:
    for asked, code in ((NOBODY, 2004), (3, 2012)):
        decision = elect(three_brokers(1, 2), brokers(b1=GONE, b2=GONE, b3=0), asked)
        assert (decision.code, decision.events) == (code, ())


def test_a_removed_master_is_elected_again_in_a_new_epoch_when_it_returns() -> None:
    state = three_brokers(1)
    state.apply(ElectMaster("a", None))
    decision = replace(state, brokers(b1=70, b2=900))
    assert decision is not None
    assert decision.events == (ElectMaster("a", 1),)
    assert ext(decision)["masterEpoch"] == "3"
    assert elect(state, brokers(b1=70, b2=900), 2).events == (ElectMaster("a", 1),)


def test_every_election_has_a_reason() -> None:
    fresh = state_of(granted(1), granted(2))
    assert elect(fresh, brokers(b1=100), 1).reason == "first election"
    state = three_brokers(1, 2)
    lost = replace(state, brokers(b1=GONE, b2=100))
    assert lost is not None and lost.reason == "connection lost"
    assert elect(state, brokers(b1=GONE, b2=100), 2).reason == "connection lost", "asked by a broker"
    assert elect(state, brokers(b1=100, b2=100), 2, designate=True).reason == "operator asked"
    no_master = replace(state, brokers(b1=GONE))
    assert no_master is not None
    assert (no_master.events, no_master.reason) == ((ElectMaster("a", None),), "connection lost")
    unclean = replace(state, brokers(b1=GONE, b3=100), unclean=True)
    assert unclean is not None and unclean.reason == "connection lost, unclean"
    state.apply(ElectMaster("a", None))
    again = replace(state, brokers(b2=100))
    assert again is not None and again.reason == "no master"


def test_a_member_missing_data_is_not_elected_while_others_may_have_it() -> None:
    state = three_brokers(1, 2, 3)
    decision = replace(state, brokers(b1=GONE, b2=UNHEARD, b3=0, incomplete=(3,)))
    assert decision is not None and decision.events == (ElectMaster("a", None),), (
        "the lost master is removed once"
    )
    state.apply(ElectMaster("a", None))
    alone = brokers(b1=GONE, b2=UNHEARD, b3=500, incomplete=(3,))
    assert replace(state, alone) is None or replace(state, alone).events == ()  # type: ignore[union-attr]
    assert elect(state, alone, 3).code == 2012, "also when it asks itself"
    decision = replace(state, brokers(b1=GONE, b2=100, b3=500, incomplete=(3,)))
    assert decision is not None and decision.events == (ElectMaster("a", 2),)


def test_the_longest_log_is_elected_when_all_members_are_missing_data() -> None:
    state = three_brokers(1, 2)
    state.apply(ElectMaster("a", None))
    assert replace(state, brokers(b1=UNHEARD, b2=100, b3=900, incomplete=(2,))) is None
    decision = replace(state, brokers(b1=80, b2=100, b3=900, incomplete=(1, 2)))
    assert decision is not None and decision.events == (ElectMaster("a", 2),)


def test_an_emptied_log_is_not_elected_without_an_operator() -> None:
    state = three_brokers(1, 2)
    state.apply(ElectMaster("a", None))
    assert replace(state, brokers(b1=0, b2=0, incomplete=(1, 2))) is None
    decision = replace(state, brokers(b1=0, b2=0))
    assert decision is not None and decision.events == (ElectMaster("a", 1),), "nothing was confirmed"


def test_an_operator_may_elect_a_member_missing_data() -> None:
    state = three_brokers(1, 2, 3)
    state.apply(ElectMaster("a", None))
    live = brokers(b1=GONE, b2=GONE, b3=0, incomplete=(3,))
    assert elect(state, live, 3, designate=True).events == (ElectMaster("a", 3),)


def test_an_unclean_election_prefers_a_broker_with_a_log() -> None:
    state = three_brokers(1, 2)
    state.apply(ElectMaster("a", None))
    decision = replace(state, brokers(b1=0, b2=GONE, b3=70, incomplete=(1,)), unclean=True)
    assert decision is not None and decision.events == (ElectMaster("a", 3),), (
        "outside the set, but with a log"
    )
    decision = replace(state, brokers(b1=0, b2=GONE, b3=GONE, incomplete=(1,)), unclean=True)
    assert decision is not None and decision.events == (ElectMaster("a", 1),)
