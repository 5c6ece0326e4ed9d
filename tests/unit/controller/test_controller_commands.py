"""Registration, SyncStateSet changes, reads and cleaning; one test a rule."""

from __future__ import annotations

import pytest

from controller import commands
from controller.commands import (
    alter_sync_state_set,
    apply_broker_id,
    clean_broker_data,
    next_broker_id,
    register_broker,
    replica_info,
    sync_state_data,
)
from controller.decision import Decision
from controller.electpolicy import LiveReport
from controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    UpdateBrokerAddress,
)
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.state import ReplicasState
from tests.unit.controller.brokersets import granted, state_of

NOW = 1_000_000


FENCED = (2003, 2006)


def alive(*broker_ids: int, members_min: int = 0, forgetful: frozenset[int] = frozenset()) -> Liveness:
    """These brokers are alive, the `forgetful` ones with possible data loss; all others closed their
    connection."""
    table = Heartbeats()
    for broker_id in range(1, 10):
        report = LiveReport(1, 0, 0, members_min, broker_id in forgetful)
        beat = Heartbeat(f"h{broker_id}:1", 10_000, report)
        table.heard(("c", "a", broker_id), broker_id, beat, NOW)
        if broker_id not in broker_ids:
            table.connection_closed(broker_id, NOW)
    return table.at(NOW, 0)


def three_brokers(members: frozenset[int] = frozenset({1, 2, 3})) -> ReplicasState:
    """Master 1 in epoch 1, set epoch 2."""
    events = [granted(1), granted(2), granted(3), ElectMaster("a", 1), AlterSyncStateSet("a", members)]
    return state_of(*events)


def alter(
    state: ReplicasState,
    live: Liveness,
    members: set[int],
    *,
    name: str = "a",
    master_id: int = 1,
    master_epoch: int = 1,
    set_epoch: int = 2,
    members_min: int = 0,
) -> Decision:
    return alter_sync_state_set(
        state,
        live,
        broker_name=name,
        master_id=master_id,
        master_epoch=master_epoch,
        members=frozenset(members),
        set_epoch=set_epoch,
        members_min=members_min,
    )


def test_the_master_of_the_current_epochs_changes_the_set() -> None:
    decision = alter(three_brokers(frozenset({1, 2})), alive(1, 2, 3), {1, 2, 3})
    assert decision.code == 0
    assert decision.events == (AlterSyncStateSet("a", frozenset({1, 2, 3})),)
    assert decision.header is not None
    assert decision.header.to_ext() == {"newSyncStateSetEpoch": "3"}
    assert decision.body == b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":3}'


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (2013, {"members": {1}, "name": "nope", "master_id": 9}),
        (2013, {"members": {1, 2, 3}, "master_id": 2, "master_epoch": 9, "set_epoch": 9}),
        (2002, {"members": {1, 2}, "master_id": 2, "master_epoch": 9, "set_epoch": 9}),
        (2000, {"members": {1, 2}, "master_epoch": 9, "set_epoch": 9}),
        (2001, {"members": {1, 9}, "set_epoch": 9}),
        (2003, {"members": {1, 2, 9}}),
        (2006, {"members": {1, 3, 9}}),
        (2013, {"members": {2}}),
        (2013, {"members": set()}),
    ],
)
def test_a_refused_change_has_the_code_of_the_first_check_that_fails(
    code: int, arguments: dict[str, object]
) -> None:
    decision = alter(three_brokers(), alive(1, 2), **arguments)  # type: ignore[arg-type]
    assert decision.code == code
    assert decision.events == (() if code not in FENCED else (AlterSyncStateSet("a", frozenset({1, 2, 3})),))
    assert decision.header is not None
    assert decision.header.to_ext() == {"newSyncStateSetEpoch": "0"}


def test_an_alter_rejected_for_a_dead_broker_is_fenced_by_a_new_set_epoch() -> None:
    state = three_brokers(frozenset({1, 2}))
    assert alter(state, alive(1, 2), {1, 2, 3}).body is None, "upstream's masters get upstream's response"
    refused = alter(state, alive(1, 2), {1, 2, 3}, members_min=1)
    assert refused.code == 2006 and refused.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}'
    for event in refused.events:
        state.apply(event)
    late = alter(state, alive(1, 2, 3), {1, 2, 3})
    assert (late.code, late.events) == (2001, ()), "an earlier attempt, at another leader"
    again = alter(state, alive(1, 2, 3), {1, 2, 3}, set_epoch=3)
    assert again.code == 0


def test_a_member_that_leaves_a_set_below_its_minimum_stays_eligible() -> None:
    state = three_brokers()

    def altered(members: set[int], members_min: int) -> frozenset[int]:
        set_epoch = state.sync_states["a"].set_epoch
        decision = alter(state, alive(1, 2, 3), members, set_epoch=set_epoch, members_min=members_min)
        assert decision.code == 0
        for event in decision.events:
            state.apply(event)
        return state.sync_states["a"].eligible

    assert altered({1, 2}, 2) == frozenset(), "1 and 2 continue without 3"
    assert altered({1}, 2) == {2}
    assert altered({1}, 2) == {2}, "the same members again"
    assert altered({1, 3}, 2) == frozenset()
    assert altered({1}, 0) == frozenset(), "upstream's masters acknowledge alone"
    assert altered({1, 2, 3}, 3) == frozenset()
    assert altered({1, 2}, 3) == {3}
    assert altered({1}, 3) == {2, 3}
    assert altered({1}, 1) == frozenset(), "from now on it acknowledges alone"


def test_an_unchanged_set_is_accepted_only_with_a_minimum() -> None:
    assert alter(three_brokers(), alive(1, 2, 3), {1, 2, 3}).code == 2013
    assert alter(three_brokers(), alive(1, 2, 3), {1, 2, 3}, members_min=1).code == 0


def test_a_removed_master_cannot_alter_the_set() -> None:
    state = state_of(granted(1), granted(2), ElectMaster("a", 1), ElectMaster("a", None))
    assert alter(state, alive(1, 2), {1, 2}, master_epoch=2, set_epoch=1).code == 2002


def test_the_next_broker_id_is_free_and_not_reserved() -> None:
    def shown(state: ReplicasState) -> str:
        decision = next_broker_id(state, cluster_name="c", broker_name="a")
        assert decision.events == () and decision.header is not None
        return decision.header.to_ext()["nextBrokerId"]

    assert shown(state_of()) == "1"
    assert shown(state_of(granted(1), granted(2))) == "3"
    assert shown(state_of(granted(1), granted(3))) == "4", "upstream's counter would name 3, which is taken"


def apply(
    state: ReplicasState, broker_id: int, check_code: str = "h9:1;9", *, cluster: str = "c", name: str = "a"
) -> Decision:
    return apply_broker_id(
        state, cluster_name=cluster, broker_name=name, broker_id=broker_id, check_code=check_code
    )


def test_a_broker_id_is_granted_to_the_first_applicant_and_again_to_the_same() -> None:
    state = state_of(granted(1))
    assert apply(state, 2).events == (ApplyBrokerId("c", "a", 2, "h9:1", "h9:1;9"),)
    assert apply(state, 1).code == 2014
    again = apply(state, 1, "h1:1;7")
    assert (again.code, again.events) == (0, ())


def test_a_new_set_begins_with_id_one() -> None:
    assert apply(state_of(), 2).code == 2014
    assert apply(state_of(), 1).code == 0


def test_one_check_code_gets_one_id_only() -> None:
    assert apply(state_of(granted(1)), 2, "h1:1;7").code == 2014


@pytest.mark.parametrize("broker_id", [0, -1])
def test_reserved_broker_ids_are_not_granted(broker_id: int) -> None:
    assert apply(state_of(granted(1)), broker_id).code == 2014


@pytest.mark.parametrize("name", ["", "a\x00b", "a\nb", "n" * 256])
def test_invalid_names_are_rejected(name: str) -> None:
    assert apply(state_of(), 1, name=name).code == 1
    assert apply(state_of(), 1, cluster=name).code == 1


def test_an_id_is_refused_to_a_broker_of_another_cluster() -> None:
    state = state_of(granted(1))
    asked = next_broker_id(state, cluster_name="other", broker_name="a")
    for decision in (asked, apply(state, 2, cluster="other")):
        assert (decision.code, decision.events) == (2005, ())
        assert decision.remark is not None and "is of cluster c, not other" in decision.remark


def register(
    state: ReplicasState, live: Liveness, broker_id: int, address: str, cluster: str = "c"
) -> Decision:
    return register_broker(
        state, live, cluster_name=cluster, broker_name="a", broker_id=broker_id, address=address
    )


def test_a_registering_slave_gets_the_live_master_with_any_cluster_name() -> None:
    decision = register(three_brokers(), alive(1), 2, "h2:1", cluster="wrong")
    assert decision.events == ()
    assert decision.header is not None
    assert decision.header.to_ext() == {
        "clusterName": "wrong",
        "brokerName": "a",
        "masterBrokerId": "1",
        "masterAddress": "h1:1",
        "masterEpoch": "1",
        "syncStateSetEpoch": "2",
    }
    assert decision.body == b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":2}'


def test_a_registering_broker_does_not_get_a_dead_master() -> None:
    decision = register(three_brokers(), alive(2), 2, "h2:1")
    assert decision.header is not None
    assert decision.header.to_ext() == {"clusterName": "c", "brokerName": "a"}


def test_a_broker_may_register_with_another_address() -> None:
    assert register(three_brokers(), alive(1), 2, "new:1").events == (
        UpdateBrokerAddress("c", "a", 2, "new:1"),
    )


def test_a_master_that_registers_again_must_be_elected_again() -> None:
    decision = register(three_brokers(), alive(1, 2), 1, "h1:1")
    assert decision.code == 0
    assert decision.events == (ElectMaster("a", None),)
    assert decision.header is not None
    assert "masterBrokerId" not in decision.header.to_ext()


def test_only_a_granted_id_can_be_registered() -> None:
    assert register(three_brokers(), alive(), 4, "h4:1").code == 2010
    assert register(state_of(), alive(), 1, "h1:1").code == 2010


def test_a_broker_whose_id_was_granted_to_another_is_not_registered() -> None:
    def asked(check_code: str) -> Decision:
        return register_broker(
            three_brokers(), alive(1), cluster_name="c", broker_name="a", broker_id=2, address="h2:1",
            check_code=check_code,
        )  # fmt: skip

    code = three_brokers().replicas["a"].by_id[2].check_code
    assert asked(code).code == 0
    refused = asked(code + "1")
    assert (refused.code, refused.events) == (2010, ())
    assert "empty its store" in (refused.remark or "")


def test_replica_info_distinguishes_a_cleaned_broker_from_an_unknown_one() -> None:
    state = three_brokers()

    def asked(broker_id: int, check_code: str | None = None) -> int:
        return replica_info(state, broker_name="a", asked_by=broker_id, check_code=check_code).code

    code = state.replicas["a"].by_id[2].check_code
    assert (asked(2), asked(2, code)) == (0, 0)
    assert (asked(4), asked(4, "h4:1;1"), asked(2, "h9:1;1")) == (2008, 2008, 2008), (
        "the code of an earlier set of this name"
    )
    state.apply(CleanBrokerData("a", frozenset({2})))
    assert (asked(2), asked(2, code)) == (2008, 2010)
    state.apply(ApplyBrokerId("c", "a", 2, "h9:1", "h9:1;1"))
    assert (asked(2, code), asked(2, "h9:1;1")) == (2010, 0)
    state.apply(CleanBrokerData("a", None))
    state.apply(ApplyBrokerId("c", "a", 1, "h1:1", "h1:1;2"))
    assert asked(2, code) == 2008


def test_replica_info_reports_the_recorded_master_also_when_it_is_dead() -> None:
    decision = replica_info(three_brokers(), broker_name="a")
    assert decision.header is not None
    assert decision.header.to_ext() == {"masterBrokerId": "1", "masterAddress": "h1:1", "masterEpoch": "1"}
    assert decision.body == b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":2}'
    no_master = replica_info(
        state_of(granted(1), ElectMaster("a", 1), ElectMaster("a", None)), broker_name="a"
    )
    assert no_master.header is not None
    assert no_master.header.to_ext() == {"masterEpoch": "2"}
    assert replica_info(state_of(), broker_name="a").code == 2008


def test_sync_state_data_shows_every_replica_and_leaves_unknown_sets_out() -> None:
    decision = sync_state_data(three_brokers(frozenset({1})), alive(1), broker_names=["a", "nope"])
    assert decision.body is not None
    assert decision.body == (
        b'{"replicasInfoTable":{"a":{"inSyncReplicas":'
        b'[{"alive":true,"brokerAddress":"h1:1","brokerId":1,"brokerName":"a"}],'
        b'"masterAddress":"h1:1","masterBrokerId":1,"masterEpoch":1,"notInSyncReplicas":'
        b'[{"alive":false,"brokerAddress":"h2:1","brokerId":2,"brokerName":"a"},'
        b'{"alive":false,"brokerAddress":"h3:1","brokerId":3,"brokerName":"a"}],"syncStateSetEpoch":2}}}'
    )
    assert sync_state_data(three_brokers(), alive(), broker_names=[]).code == 1


def clean(state: ReplicasState, live: Liveness, ids: str | None, *, living: bool = False) -> Decision:
    return clean_broker_data(state, live, broker_name="a", ids_to_clean=ids, living_too=living)


def test_dead_brokers_are_cleaned_and_live_ones_only_on_demand() -> None:
    rest = AlterSyncStateSet("a", frozenset({1}))
    assert clean(three_brokers(), alive(1), "2;3").events == (rest, CleanBrokerData("a", frozenset({2, 3})))
    assert clean(three_brokers(), alive(1, 3), "2;3").code == 2009
    forced = clean(three_brokers(), alive(1, 2, 3), "2;3", living=True)
    assert forced.events[-1] == CleanBrokerData("a", frozenset({2, 3})), "upstream drops the whole set here"


def test_a_whole_set_is_cleaned_without_a_live_master_or_on_demand() -> None:
    assert clean(three_brokers(), alive(), None).code == 2009
    assert clean(three_brokers(), alive(), None, living=True).events == (CleanBrokerData("a", None),)
    assert clean(state_of(granted(1)), alive(), "").events == (CleanBrokerData("a", None),)
    assert clean(three_brokers(), alive(), "1;2;3").events == (CleanBrokerData("a", None),)


def test_cleaning_never_leaves_a_set_without_its_master_or_members() -> None:
    assert clean(three_brokers(), alive(2), "1").code == 2009
    assert clean(three_brokers(), alive(2), "1", living=True).code == 2009
    masterless = state_of(granted(1), granted(2), ElectMaster("a", 1), ElectMaster("a", None))
    assert clean(masterless, alive(2), "1").code == 2009
    never_elected = state_of(granted(1), granted(2))
    assert clean(never_elected, alive(1), "2").code == 2009


def test_the_only_broker_with_acknowledged_data_is_not_cleaned() -> None:
    without_master = three_brokers(frozenset({1, 2}))
    without_master.apply(ElectMaster("a", None))
    refused = clean(without_master, alive(), "1")
    assert refused.code == 2009
    assert "[1] of a may alone hold all that was acknowledged, for none of [2] lives" in (
        refused.remark or ""
    )
    assert clean(without_master, alive(2, forgetful=frozenset({2})), "1").code == 2009
    rest = AlterSyncStateSet("a", frozenset({2}))
    assert clean(without_master, alive(2), "1").events == (rest, CleanBrokerData("a", frozenset({1})))
    assert clean(without_master, alive(), "3").events == (CleanBrokerData("a", frozenset({3})),), (
        "holds nothing"
    )


def test_an_eligible_broker_of_a_set_below_its_minimum_is_not_cleaned() -> None:
    state = three_brokers(frozenset({1, 2}))
    state.apply(AlterSyncStateSet("a", frozenset({1}), frozenset({2})))
    refused = clean(state, alive(1, members_min=2), "2")
    assert refused.code == 2009
    assert "only [1] would hold what was acknowledged, and minInSyncReplicas is 2" in (refused.remark or "")
    assert clean(state, alive(1, 2, members_min=2), "2", living=True).code == 2009
    assert clean(state, alive(1, members_min=1), "2").code == 0
    enough = three_brokers(frozenset({1, 3}))
    assert clean(enough, alive(1, 3, members_min=2), "2").code == 0


@pytest.mark.parametrize("ids", ["x", "1;x", "1.0", "-1", ";", "\u0661", "1" * 20])
def test_cleaning_rejects_ids_that_are_no_numbers(ids: str) -> None:
    assert clean(three_brokers(), alive(), ids).code == 2009


def test_cleaning_ignores_unregistered_ids_of_a_known_set() -> None:
    assert clean(three_brokers(), alive(), "9") == Decision()
    assert clean(state_of(), alive(), "9").code == 2009


def test_the_number_of_sets_and_ids_and_the_length_of_names_have_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "SETS_MAX", 1)
    monkeypatch.setattr(commands, "MEMBERS_MAX", 2)
    state = state_of(granted(1))

    def applying(name: str, broker_id: int, check_code: str = "h:1;9") -> Decision:
        return apply_broker_id(
            state, cluster_name="c", broker_name=name, broker_id=broker_id, check_code=check_code
        )

    assert "1 broker sets are registered" in (applying("made-up", 1).remark or "")
    assert "255 characters" in (applying("a", 2, "c" * 256).remark or "")
    decision = applying("a", 2)
    assert decision.code == 0 and decision.events
    state.apply(decision.events[0])
    assert "2 ids are granted" in (applying("a", 3, "h:1;10").remark or "")
    assert applying("a", 2).code == 0
    late = register_broker(state, alive(), cluster_name="c", broker_name="a", broker_id=1, address="h" * 256)
    assert not late.events and "255 characters" in (late.remark or "")
