"""The role state machine, driven by literals."""

from __future__ import annotations

from typing import Any

import pytest

from broker.role.actions import (
    AlterCall,
    Applied,
    ApplyIdCall,
    ElectCall,
    Grant,
    MasterMoved,
    NextIdCall,
    PollCall,
    ProposalFailed,
    RegisterCall,
    Reply,
    SaveIdentity,
    SaveTemporary,
)
from broker.role.identity import (
    Identity,
    IdentityInvalid,
    TemporaryIdentity,
    decode_identity,
    decode_temporary,
)
from broker.role.membership import Replicas, Role
from broker.role.syncstatesetreport import Proposal
from remoting.codes import ResponseCode

WALL_MS = 1_700_000_000_000
POLL_MS = 5_000
TEMPORARY = TemporaryIdentity("DefaultCluster", "broker-a", 3, f"10.0.0.1:10911;{WALL_MS}")
IDENTITY = Identity("DefaultCluster", "broker-a", 1)


def replicas(**known: Any) -> Replicas:
    return Replicas(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        address="10.0.0.1:10911",
        poll_ms=POLL_MS,
        **known,
    )


def grant(
    epoch: int, master_id: int = 1, members: tuple[int, ...] = (1,), set_epoch: int = 1, address: str = ""
) -> Grant:
    return Grant(epoch, master_id, address or f"10.0.0.{master_id}:10911", frozenset(members), set_epoch)


def registered(found: Grant | None = None, now_ms: int = 0) -> Replicas:
    """Broker 1 after its registration."""
    broker = replicas(identity=IDENTITY)
    broker.replied(RegisterCall(1), Reply(0, found), now_ms, WALL_MS)
    return broker


def master(epoch: int = 4, members: tuple[int, ...] = (1,), set_epoch: int = 7) -> Replicas:
    given = grant(epoch, 1, members, set_epoch)
    broker = registered(given)
    broker.role_taken(given)
    return broker


# -- identity


def test_a_new_broker_draws_an_id_and_writes_each_file_before_it_tells_anybody() -> None:
    broker = replicas()
    assert broker.next_step(0) == NextIdCall()
    broker.replied(NextIdCall(), Reply(0, next_broker_id=3), 0, WALL_MS)
    assert broker.next_step(0) == SaveTemporary(TEMPORARY)
    broker.saved()
    assert broker.next_step(0) == ApplyIdCall(TEMPORARY)
    broker.replied(ApplyIdCall(TEMPORARY), Reply(0), 0, WALL_MS)
    assert broker.broker_id is None
    assert broker.next_step(0) == SaveIdentity(Identity("DefaultCluster", "broker-a", 3))
    broker.saved()
    assert broker.broker_id == 3
    assert broker.next_step(0) == RegisterCall(3)


def test_an_application_without_an_answer_is_repeated_with_the_same_id_and_check_code() -> None:
    broker = replicas(temporary=TEMPORARY)
    broker.not_replied(ApplyIdCall(TEMPORARY), 100, sent=True)
    assert broker.next_step(100) is None
    assert broker.next_step(broker.call_due_ms()) == ApplyIdCall(TEMPORARY)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_NOT_LEADER])
def test_an_application_refused_for_an_unclear_reason_is_repeated(code: int) -> None:
    broker = replicas(temporary=TEMPORARY)
    broker.replied(ApplyIdCall(TEMPORARY), Reply(code), 0, WALL_MS)
    assert broker.next_step(broker.call_due_ms()) == ApplyIdCall(TEMPORARY)


def test_an_id_that_another_broker_has_is_given_up_for_the_next_one() -> None:
    broker = replicas(temporary=TEMPORARY)
    broker.replied(ApplyIdCall(TEMPORARY), Reply(ResponseCode.CONTROLLER_BROKER_ID_INVALID), 0, WALL_MS)
    assert broker.next_step(broker.call_due_ms()) == NextIdCall()


def test_identity_files_have_upstreams_format() -> None:
    assert IDENTITY.encode() == b"DefaultCluster#broker-a#1"
    assert TEMPORARY.encode() == b"DefaultCluster#broker-a#3#10.0.0.1:10911;1700000000000"
    assert decode_identity("f", IDENTITY.encode(), "DefaultCluster", "broker-a") == IDENTITY
    assert decode_temporary("f", TEMPORARY.encode() + b"\n", "DefaultCluster", "broker-a") == TEMPORARY


@pytest.mark.parametrize(
    "data",
    [b"", b"a#b", b"DefaultCluster#broker-a#0", b"DefaultCluster#broker-a#x", b"Other#broker-a#1", b"\xff"],
)
def test_an_identity_that_is_damaged_or_anothers_stops_the_start(data: bytes) -> None:
    with pytest.raises(IdentityInvalid):
        decode_identity("brokerIdentity", data, "DefaultCluster", "broker-a")


# -- finding a master


def test_without_a_master_a_registered_broker_asks_for_an_election() -> None:
    broker = registered()
    assert broker.next_step(0) == ElectCall(1)
    broker.replied(ElectCall(1), Reply(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED), 0, WALL_MS)
    assert broker.next_step(0) is None
    due_ms = broker.call_due_ms()
    assert 0 < due_ms <= 1_000
    assert broker.next_step(due_ms) == ElectCall(1)


def test_an_election_that_finds_the_master_still_there_counts_as_won() -> None:
    broker = registered()
    found = grant(2, master_id=2)
    broker.replied(ElectCall(1), Reply(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, found), 0, WALL_MS)
    assert broker.next_role(0) == found


def test_a_running_broker_polls_in_its_period_and_at_once_when_it_has_reason_to() -> None:
    broker = master()
    assert broker.next_step(0) is None
    assert broker.call_due_ms() == POLL_MS
    broker.poll_soon()
    assert broker.next_step(1) == PollCall()


def test_a_set_that_the_controllers_forgot_is_registered_again() -> None:
    broker = master()
    code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    broker.replied(PollCall(), Reply(code), 10, WALL_MS)
    assert broker.next_step(broker.call_due_ms()) == RegisterCall(1)


# -- roles


def test_a_role_counts_as_taken_only_after_the_change_succeeded() -> None:
    given = grant(4)
    broker = registered(given)
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (Role.NONE, 0, False)
    assert broker.next_role(0) == given
    broker.role_taken(given)
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (Role.MASTER, 4, True)
    assert broker.next_role(0) is None


def test_a_role_change_that_broke_off_is_repeated_and_nothing_is_served_meanwhile() -> None:
    given = grant(5, master_id=2)
    broker = master()
    broker.announced(given, 0)
    broker.role_failed(0)
    assert broker.role is Role.NONE
    assert not broker.accepts_sends
    assert broker.next_role(0) is None
    assert broker.next_role(broker.role_due_ms()) == given


def test_a_role_that_the_log_refused_is_never_tried_again_but_a_newer_one_is() -> None:
    broker = registered(grant(2))
    broker.role_refused(grant(2))
    broker.announced(grant(2), 0)
    assert broker.next_role(0) is None
    assert broker.role is Role.NONE
    broker.announced(grant(3), 0)
    assert broker.next_role(0) == grant(3)


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_epoch_that_is_not_newer_changes_nothing(epoch: int) -> None:
    broker = master(epoch=4)
    assert broker.announced(grant(epoch, master_id=2), 0) == []
    assert broker.next_role(0) is None
    assert broker.accepts_sends


def test_a_master_stops_accepting_as_soon_as_it_hears_of_a_newer_epoch() -> None:
    broker = master(epoch=4)
    broker.announced(grant(5, master_id=2), 0)
    assert not broker.accepts_sends
    assert broker.role is Role.MASTER, "it is still the master of its own log until the change"


def test_a_master_stops_accepting_when_the_controllers_have_deposed_it_without_a_successor() -> None:
    broker = master(epoch=4)
    broker.replied(PollCall(), Reply(0, None, master_epoch=5), 0, WALL_MS)
    assert not broker.accepts_sends
    assert broker.next_step(0) == ElectCall(1)
    again = grant(6)
    broker.replied(ElectCall(1), Reply(0, again), 0, WALL_MS)
    broker.role_taken(again)
    assert broker.accepts_sends


def test_the_newest_of_several_announced_roles_is_taken() -> None:
    broker = registered(grant(2))
    broker.announced(grant(4, master_id=3), 0)
    broker.announced(grant(3, master_id=2), 0)
    assert broker.next_role(0) == grant(4, master_id=3)
    broker.role_taken(grant(4, master_id=3))
    assert broker.next_role(0) is None


def test_a_role_announced_during_a_change_follows_it() -> None:
    broker = registered(grant(2))
    changing = broker.next_role(0)
    assert changing is not None
    broker.announced(grant(3, master_id=2), 0)
    broker.role_taken(changing)
    assert not broker.accepts_sends
    assert broker.next_role(0) == grant(3, master_id=2)


def test_an_announcement_before_the_id_is_durable_is_left_to_the_registration() -> None:
    broker = replicas(temporary=TEMPORARY)
    broker.announced(grant(1, master_id=3), 0)
    assert broker.next_role(0) is None


def test_a_slave_follows_its_master_to_a_new_address() -> None:
    broker = registered(grant(4, master_id=2))
    broker.role_taken(grant(4, master_id=2))
    moved = grant(4, master_id=2, address="10.0.0.9:10911")
    reply = Reply(0, moved, master_epoch=4)
    assert broker.replied(PollCall(), reply, 0, WALL_MS) == [MasterMoved("10.0.0.9:10911")]
    assert broker.replied(PollCall(), reply, 0, WALL_MS) == []


# -- the SyncStateSet


def alter(broker: Replicas, members: tuple[int, ...], now_ms: int = 0) -> AlterCall:
    broker.report.want(frozenset(members))
    step = broker.next_step(now_ms)
    assert isinstance(step, AlterCall), step
    return step


def test_a_wanted_set_is_proposed_at_once_on_the_set_that_is_known() -> None:
    call = alter(master(epoch=4, members=(1,), set_epoch=7), (1, 2))
    assert call == AlterCall(Proposal(frozenset({1, 2}), 7, 4), again=False)


def test_an_accepted_proposal_is_applied_and_nothing_more_is_asked() -> None:
    broker = master()
    call = alter(broker, (1, 2))
    accepted = Reply(0, sync_state_set=frozenset({1, 2}), sync_state_set_epoch=8)
    assert broker.replied(call, accepted, 0, WALL_MS) == [Applied(frozenset({1, 2}), 8)]
    assert broker.next_step(0) is None


def test_a_refused_proposal_is_over_and_tried_again_later() -> None:
    broker = master()
    call = alter(broker, (1, 2))
    refused = Reply(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)
    assert broker.replied(call, refused, 0, WALL_MS) == [ProposalFailed()]
    assert broker.next_step(0) is None
    assert broker.next_step(broker.call_due_ms()) == call


def test_a_proposal_that_was_certainly_not_sent_is_over() -> None:
    broker = master()
    assert broker.not_replied(alter(broker, (1, 2)), 0, sent=False) == [ProposalFailed()]


def test_a_proposal_with_unknown_outcome_is_read_and_then_sent_again_unchanged() -> None:
    broker = master(epoch=4, members=(1,), set_epoch=7)
    call = alter(broker, (1, 2))
    assert broker.not_replied(call, 0, sent=True) == [], "the union stays"
    broker.report.want(frozenset({1, 3}))
    now_ms = broker.call_due_ms()
    assert broker.next_step(now_ms) == PollCall()
    same = Reply(0, grant(4, 1, (1,), 7), master_epoch=4)
    assert broker.replied(PollCall(), same, now_ms, WALL_MS) == []
    assert broker.next_step(now_ms) == AlterCall(call.proposal, again=True)


def test_an_unknown_outcome_is_settled_by_a_newer_set() -> None:
    broker = master(epoch=4, members=(1,), set_epoch=7)
    broker.not_replied(alter(broker, (1, 2)), 0, sent=True)
    newer = Reply(0, grant(4, 1, (1, 2), 8), master_epoch=4)
    assert broker.replied(PollCall(), newer, 300, WALL_MS) == [Applied(frozenset({1, 2}), 8)]
    assert not broker.report.unsettled


def test_an_unknown_outcome_is_settled_by_a_refusal_of_the_same_proposal() -> None:
    broker = master()
    call = alter(broker, (1, 2))
    broker.not_replied(call, 0, sent=True)
    refused = Reply(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)
    assert broker.replied(AlterCall(call.proposal, True), refused, 300, WALL_MS) == [ProposalFailed()]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    ],
)
def test_an_answer_that_leaves_the_outcome_open_keeps_the_union_until_a_read(code: int) -> None:
    broker = master()
    assert broker.replied(alter(broker, (1, 2)), Reply(code), 0, WALL_MS) == []
    assert broker.next_step(0) == PollCall()


def test_one_proposal_is_under_way_at_a_time() -> None:
    broker = master()
    call = alter(broker, (1, 2))
    broker.not_replied(call, 0, sent=True)
    broker.report.want(frozenset({1, 2, 3}))
    broker.replied(PollCall(), Reply(0, grant(4, 1, (1,), 7), master_epoch=4), 300, WALL_MS)
    again = broker.next_step(broker.call_due_ms())
    assert isinstance(again, AlterCall)
    assert again.proposal == call.proposal


def test_a_master_that_knows_of_a_newer_epoch_proposes_nothing() -> None:
    broker = master()
    broker.announced(grant(5, master_id=2), 0)
    broker.report.want(frozenset({1, 2}))
    assert broker.next_step(0) is None


def test_a_new_mastership_starts_without_the_former_ones_proposals() -> None:
    broker = master()
    broker.not_replied(alter(broker, (1, 2)), 0, sent=True)
    again = grant(5, 1, (1,), 9)
    broker.announced(again, 0)
    broker.role_taken(again)
    assert not broker.report.unsettled


def test_a_proposal_that_no_longer_fits_is_not_repeated_by_itself() -> None:
    broker = master()
    alter(broker, (1, 2))
    broker.not_proposed(0)
    assert broker.next_step(broker.call_due_ms()) != ProposalFailed()
    assert broker.call_due_ms() == POLL_MS
