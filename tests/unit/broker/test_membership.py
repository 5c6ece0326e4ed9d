"""A broker's role in its set, driven by literals. For SyncStateSet proposals see tests/unit/ha."""

from __future__ import annotations

import pytest

from broker.role.actions import (
    Action,
    ApplyIdCall,
    AskAll,
    BeginHeartbeats,
    ControllerReply,
    Disbelieved,
    Duplicate,
    ElectCall,
    Follow,
    Grant,
    Lead,
    MasterMoved,
    NextIdCall,
    NoteSetBack,
    PollCall,
    RegisterCall,
    RoleAnnounced,
    SaveIdentity,
    SaveTemporary,
    SetRead,
)
from broker.role.identity import (
    Identity,
    IdentityInvalid,
    TemporaryIdentity,
    decode_identity,
    decode_temporary,
)
from broker.role.membership import Membership, ReplicaRole
from mqruntime.core import NEVER_MS
from remoting.codes import ResponseCode

WALL_MS = 1_700_000_000_000
POLL_MS = 5_000
NONCE = "00000000deadbeef"
TEMPORARY = TemporaryIdentity("DefaultCluster", "broker-a", 3, f"10.0.0.1:10911;{WALL_MS};{NONCE}")
IDENTITY = Identity("DefaultCluster", "broker-a", 1)
UNKNOWN_ID = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def broker_with(identity: Identity | TemporaryIdentity | None = None) -> Membership:
    broker = Membership(cluster_name="DefaultCluster", broker_name="broker-a", poll_ms=POLL_MS, nonce=NONCE)
    broker.restore(identity)
    broker.reached_at("10.0.0.1:10911")
    return broker


def grant(
    epoch: int, master_id: int = 1, members: tuple[int, ...] = (1,), set_epoch: int = 1, address: str = ""
) -> Grant:
    return Grant(epoch, master_id, address or f"10.0.0.{master_id}:10911", frozenset(members), set_epoch)


def registered(found: Grant | None = None, now_ms: int = 0) -> tuple[Membership, list[Action]]:
    """Broker 1 after its registration, and its actions then."""
    broker = broker_with(IDENTITY)
    assert broker.tick(now_ms) == [RegisterCall(1)]
    begin, *actions = broker.replied(RegisterCall(1), ControllerReply(0, found), now_ms, WALL_MS)
    assert begin == BeginHeartbeats()
    return broker, actions


def master(epoch: int = 4, members: tuple[int, ...] = (1,), set_epoch: int = 7) -> Membership:
    given = grant(epoch, 1, members, set_epoch)
    broker, actions = registered(given)
    assert actions == [RoleAnnounced(given), Lead(given)]
    assert broker.role_taken(given, 0) == []
    return broker


def polling(broker: Membership, now_ms: int = 0) -> Membership:
    """The broker with a poll under way."""
    assert broker.poll_soon(now_ms) == [PollCall()]
    return broker


def answered(broker: Membership, found: Grant, now_ms: int = 0) -> list[Action]:
    """The broker's actions after a controller answered its query with `found`."""
    return broker.answered(ControllerReply(0, found, found.master_epoch), now_ms)


# -- identity


def test_a_new_broker_saves_each_identity_file_before_its_next_call() -> None:
    broker = broker_with()
    assert broker.tick(0) == [NextIdCall()]
    assert broker.replied(NextIdCall(), ControllerReply(0, next_broker_id=3), 0, WALL_MS) == [
        SaveTemporary(TEMPORARY)
    ]
    assert broker.saved(0) == [ApplyIdCall(TEMPORARY)]
    saving = [SaveIdentity(Identity("DefaultCluster", "broker-a", 3, TEMPORARY.check_code))]
    assert broker.replied(ApplyIdCall(TEMPORARY), ControllerReply(0), 0, WALL_MS) == saving
    assert broker.broker_id is None
    assert broker.saved(0) == [RegisterCall(3)]
    assert broker.broker_id == 3


def test_an_application_without_an_answer_is_repeated_with_the_same_id_and_check_code() -> None:
    broker = broker_with(TEMPORARY)
    assert broker.tick(0) == [ApplyIdCall(TEMPORARY)]
    assert broker.not_replied(100) == []
    assert broker.tick(broker.next_tick_ms - 1) == []
    assert broker.tick(broker.next_tick_ms) == [ApplyIdCall(TEMPORARY)]


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_NOT_LEADER])
def test_an_application_refused_for_an_unclear_reason_is_repeated(code: int) -> None:
    broker = broker_with(TEMPORARY)
    broker.tick(0)
    assert broker.replied(ApplyIdCall(TEMPORARY), ControllerReply(code), 0, WALL_MS) == []
    assert broker.tick(broker.next_tick_ms) == [ApplyIdCall(TEMPORARY)]


def test_an_id_taken_by_another_broker_is_replaced_by_the_next_one() -> None:
    broker = broker_with(TEMPORARY)
    broker.tick(0)
    broker.replied(
        ApplyIdCall(TEMPORARY), ControllerReply(ResponseCode.CONTROLLER_BROKER_ID_INVALID), 0, WALL_MS
    )
    assert broker.tick(broker.next_tick_ms) == [NextIdCall()]


def test_one_call_is_under_way_at_a_time() -> None:
    broker = broker_with(IDENTITY)
    assert broker.tick(0) == [RegisterCall(1)]
    assert broker.tick(10_000) == broker.poll_soon(10_000) == []
    assert broker.next_tick_ms == NEVER_MS


def test_identity_files_have_upstreams_format() -> None:
    assert IDENTITY.encode() == b"DefaultCluster#broker-a#1"
    assert TEMPORARY.encode() == f"DefaultCluster#broker-a#3#10.0.0.1:10911;1700000000000;{NONCE}".encode()
    assert decode_identity("f", IDENTITY.encode(), "DefaultCluster", "broker-a") == IDENTITY
    assert decode_temporary("f", TEMPORARY.encode() + b"\n", "DefaultCluster", "broker-a") == TEMPORARY


@pytest.mark.parametrize(
    "data",
    [b"", b"a#b", b"DefaultCluster#broker-a#0", b"DefaultCluster#broker-a#x", b"Other#broker-a#1", b"\xff"],
)
def test_a_damaged_or_foreign_identity_stops_the_start(data: bytes) -> None:
    with pytest.raises(IdentityInvalid):
        decode_identity("brokerIdentity", data, "DefaultCluster", "broker-a")


# -- finding a master


def test_without_a_master_a_registered_broker_asks_for_an_election() -> None:
    broker, actions = registered()
    assert actions == [ElectCall(1)]
    refused = ControllerReply(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    assert broker.replied(ElectCall(1), refused, 0, WALL_MS) == []
    due_ms = broker.next_tick_ms
    assert 0 < due_ms <= 1_000
    assert broker.tick(due_ms) == [ElectCall(1)]


def test_an_election_answered_with_master_still_exist_grants_its_role() -> None:
    broker, _ = registered()
    found = grant(2, master_id=2)
    reply = ControllerReply(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, found)
    assert broker.replied(ElectCall(1), reply, 0, WALL_MS) == [RoleAnnounced(found), Follow(found, 1)]


def test_a_running_broker_polls_periodically_and_on_demand() -> None:
    broker = master()
    assert broker.tick(0) == []
    assert broker.next_tick_ms == POLL_MS
    assert broker.poll_soon(1) == [PollCall()]


def test_a_broker_whose_set_is_unknown_to_the_controllers_keeps_registering() -> None:
    broker = polling(master())
    code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    assert broker.replied(PollCall(), ControllerReply(code), 10, WALL_MS) == []
    assert broker.tick(broker.next_tick_ms) == [RegisterCall(1)]
    later_ms = 10 + POLL_MS
    assert broker.replied(RegisterCall(1), ControllerReply(UNKNOWN_ID), later_ms, WALL_MS) == [PollCall()]
    assert broker.replied(PollCall(), ControllerReply(code), later_ms, WALL_MS) == [], (
        "the recreated set begins without this log"
    )
    assert broker.next_tick_ms == later_ms + POLL_MS
    assert broker.tick(broker.next_tick_ms) == [RegisterCall(1)]


def slave_granted(check_code: str) -> Membership:
    """Broker 1, which follows broker 2 and got its id with `check_code`."""
    broker = broker_with(Identity("DefaultCluster", "broker-a", 1, check_code))
    given = grant(4, master_id=2)
    broker.tick(0)
    broker.replied(RegisterCall(1), ControllerReply(0, given), 0, WALL_MS)
    broker.role_taken(given, 0)
    return broker


@pytest.mark.parametrize("known_code", ["10.0.0.9:10911;7", ""])
def test_a_live_slave_removed_from_the_controllers_applies_for_its_id_and_stays_slave(
    known_code: str,
) -> None:
    broker = polling(slave_granted(known_code))
    code = known_code or f"10.0.0.1:10911;{WALL_MS};{NONCE}"
    asked = TemporaryIdentity("DefaultCluster", "broker-a", 1, code)
    assert broker.replied(PollCall(), ControllerReply(UNKNOWN_ID), 0, WALL_MS) == [SaveTemporary(asked)]
    assert broker.saved(0) == [ApplyIdCall(asked)]
    again = SaveIdentity(Identity("DefaultCluster", "broker-a", 1, code))
    assert broker.replied(ApplyIdCall(asked), ControllerReply(0), 0, WALL_MS) == [again]
    assert broker.saved(0) == [RegisterCall(1)]
    assert broker.replied(RegisterCall(1), ControllerReply(0, grant(4, master_id=2)), 0, WALL_MS) == [
        BeginHeartbeats()
    ]
    assert (broker.role, broker.broker_id, broker.check_code) == (ReplicaRole.SLAVE, 1, code)


def test_a_broker_removed_while_it_was_down_applies_for_its_id_if_its_set_exists() -> None:
    broker = broker_with(Identity("DefaultCluster", "broker-a", 1, "x;7"))
    assert broker.tick(0) == [RegisterCall(1)]
    assert broker.replied(RegisterCall(1), ControllerReply(UNKNOWN_ID), 0, WALL_MS) == [PollCall()]
    assert broker.not_replied(0) == []
    assert broker.tick(broker.next_tick_ms) == [PollCall()]
    asked = TemporaryIdentity("DefaultCluster", "broker-a", 1, "x;7")
    assert broker.replied(PollCall(), ControllerReply(UNKNOWN_ID), 500, WALL_MS) == [SaveTemporary(asked)]


def test_a_broker_applies_for_no_id_if_its_poll_does_not_report_it_as_unknown() -> None:
    broker = broker_with(Identity("DefaultCluster", "broker-a", 1, "x;7"))
    broker.tick(0)
    broker.replied(RegisterCall(1), ControllerReply(UNKNOWN_ID), 0, WALL_MS)
    assert broker.replied(PollCall(), ControllerReply(0, grant(4, 2)), 0, WALL_MS) == []
    assert broker.tick(broker.next_tick_ms) == [RegisterCall(1)]


def test_a_removed_broker_whose_id_was_reassigned_applies_for_no_other_id() -> None:
    broker = polling(slave_granted("x;7"))
    broker.replied(PollCall(), ControllerReply(UNKNOWN_ID), 0, WALL_MS)
    broker.saved(0)
    asked = TemporaryIdentity("DefaultCluster", "broker-a", 1, "x;7")
    taken = ControllerReply(ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    assert broker.replied(ApplyIdCall(asked), taken, 0, WALL_MS) == []
    assert broker.next_tick_ms == POLL_MS
    assert broker.tick(POLL_MS) == [RegisterCall(1)]


# -- roles


def test_a_role_counts_as_taken_only_after_the_change_succeeded() -> None:
    given = grant(4)
    broker, actions = registered(given)
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (ReplicaRole.NONE, 0, False)
    assert actions == [RoleAnnounced(given), Lead(given)]
    assert broker.role_taken(given, 0) == []
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (ReplicaRole.MASTER, 4, True)
    assert (broker.role_id, broker.broker_id) == (0, 1)


def test_a_failed_role_change_is_repeated_and_no_send_is_accepted_meanwhile() -> None:
    given = grant(5, master_id=2)
    broker = master()
    assert answered(broker, given) == [RoleAnnounced(given), Follow(given, 1)]
    assert broker.role_failed(0) == []
    assert (broker.role, broker.role_id) == (ReplicaRole.NONE, None)
    assert not broker.accepts_sends
    assert broker.tick(broker.next_tick_ms - 1) == []
    assert broker.tick(broker.next_tick_ms) == [Follow(given, 1)]


def test_a_role_refused_by_the_log_is_never_retried_but_a_newer_one_is_taken() -> None:
    broker, _ = registered(grant(2))
    assert broker.role_refused(grant(2), 0) == []
    assert answered(broker, grant(2), 0) == []
    assert broker.role is ReplicaRole.NONE
    assert answered(broker, grant(3), 0) == [RoleAnnounced(grant(3)), Lead(grant(3))]


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_epoch_that_is_not_newer_changes_nothing(epoch: int) -> None:
    broker = master(epoch=4)
    assert answered(broker, grant(epoch, master_id=2), 0) == []
    assert broker.accepts_sends


def test_a_master_stops_accepting_sends_as_soon_as_a_newer_epoch_is_announced() -> None:
    broker = master(epoch=4)
    answered(broker, grant(5, master_id=2), 0)
    assert not broker.accepts_sends
    assert broker.role is ReplicaRole.MASTER, "it stays the master of its own log until the change"


def test_a_stopping_broker_accepts_no_sends_and_keeps_its_role() -> None:
    broker = master()
    broker.stop()
    assert (broker.accepts_sends, broker.stopping, broker.role_id) == (False, True, 0)


def test_a_master_deposed_without_a_successor_stops_accepting_sends() -> None:
    broker = polling(master(epoch=4))
    assert broker.replied(PollCall(), ControllerReply(0, None, master_epoch=5), 0, WALL_MS) == [ElectCall(1)]
    assert not broker.accepts_sends
    again = grant(6)
    assert broker.replied(ElectCall(1), ControllerReply(0, again), 0, WALL_MS) == [
        RoleAnnounced(again),
        Lead(again),
    ]
    broker.role_taken(again, 0)
    assert broker.accepts_sends


def test_the_newest_of_several_announced_roles_is_taken() -> None:
    broker, _ = registered(grant(2))
    assert answered(broker, grant(4, master_id=3), 0) == [RoleAnnounced(grant(4, master_id=3))]
    assert answered(broker, grant(3, master_id=2), 0) == []
    assert broker.role_taken(grant(2), 0) == [Follow(grant(4, master_id=3), 1)]
    assert broker.role_taken(grant(4, master_id=3), 0) == []


def test_a_role_announced_during_a_change_is_taken_after_it() -> None:
    broker, _ = registered(grant(2))
    answered(broker, grant(3, master_id=2), 0)
    assert broker.role_taken(grant(2), 0) == [Follow(grant(3, master_id=2), 1)]
    assert not broker.accepts_sends


# -- notifications (1008), which any host can send


FORGED = {
    "another master": grant(5, master_id=2),
    "itself, the next epoch": grant(5),
    "itself, a far epoch": grant(900),
    "its own epoch, a smaller set": grant(4, 1, (1,), 8),
    "its own epoch, a later set": grant(4, 1, (1,), 1_000),
}


@pytest.mark.parametrize("received", FORGED.values(), ids=FORGED)
def test_a_notification_only_triggers_a_query_of_the_controllers(received: Grant) -> None:
    broker = master(epoch=4, members=(1, 2), set_epoch=7)
    assert broker.notified(received, 0) == [AskAll()]
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (ReplicaRole.MASTER, 4, True)
    assert answered(broker, grant(4, 1, (1, 2), 7), 1) == [SetRead(frozenset({1, 2}), 7)]
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (ReplicaRole.MASTER, 4, True)


def test_an_answer_of_controllers_is_applied_while_another_call_is_under_way() -> None:
    broker = polling(master(epoch=4))
    assert broker.notified(grant(5, master_id=2), 0) == [AskAll()]
    received = grant(6, master_id=3)
    assert answered(broker, received, 1) == [RoleAnnounced(received), Follow(received, 1)]


def test_notifications_cause_at_most_ten_queries_a_second_and_none_is_lost() -> None:
    broker = master(epoch=4)
    asked = [now_ms for now_ms in range(1_000) if broker.notified(grant(5), now_ms)]
    assert asked == [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]
    assert broker.tick(999) == [] and broker.next_tick_ms == 1_000
    assert broker.tick(1_000) == [AskAll()], "the last notification came after the last query"
    assert broker.tick(1_100) == []


def test_a_notification_without_news_causes_no_query() -> None:
    broker, _ = registered(grant(4, master_id=2))
    broker.role_taken(grant(4, master_id=2), 0)
    assert broker.notified(grant(4, master_id=2), 0) == broker.notified(grant(3, master_id=3), 0) == []
    assert broker.notified(grant(4, master_id=2, address="10.0.0.9:10911"), 0) == [AskAll()]


def test_an_unanswered_query_is_followed_by_a_poll() -> None:
    broker = master(epoch=4)
    assert broker.notified(grant(5), 0) == [AskAll()]
    assert broker.unanswered(1_000) == [PollCall()]


def test_an_answer_without_a_master_triggers_a_poll() -> None:
    assert master(epoch=4).answered(ControllerReply(0, None, 5), 0) == [PollCall()]
    assert master(epoch=4).answered(ControllerReply(0, None, 3), 0) == []
    assert master(epoch=4).answered(ControllerReply(UNKNOWN_ID), 0) == [PollCall()]


def test_an_answer_to_a_query_does_not_prove_that_the_master_has_no_successor() -> None:
    """The answer may come from a former leader that has not noticed its replacement."""
    broker = master(epoch=4)
    assert answered(broker, grant(4), 0) == [SetRead(frozenset({1}), 1)]
    assert broker.may_have_a_successor(0)
    polling(broker).replied(PollCall(), ControllerReply(0, grant(4), 4), 0, WALL_MS)
    assert not broker.may_have_a_successor(0)


FAR = 2**31 - 1


def test_a_notification_of_an_impossible_epoch_is_refused() -> None:
    broker = master(epoch=4)
    [refused] = broker.notified(grant(FAR), 0)
    assert isinstance(refused, Disbelieved) and refused.source == "notification"
    assert refused.why == "epoch 2147483647 is above 1073741824, where no cluster gets"
    [refused] = broker.notified(grant(4, set_epoch=FAR), 0)
    assert isinstance(refused, Disbelieved)
    assert broker.tick(200) == [], "no controller is asked"


@pytest.mark.parametrize(
    "received",
    [grant(FAR), grant(4 + 2**20 + 1), grant(5, set_epoch=FAR), grant(4, set_epoch=7 + 2**20 + 1)],
    ids=["the last epoch", "a jump", "the last epoch of a set", "a jump of a set"],
)
def test_an_answer_with_an_impossible_epoch_is_refused(received: Grant) -> None:
    broker = master(epoch=4, set_epoch=7)
    [refused] = answered(broker, received, 0)
    assert isinstance(refused, Disbelieved) and refused.source == "answer"
    [refused] = polling(broker).replied(
        PollCall(), ControllerReply(0, received, received.master_epoch), 0, WALL_MS
    )
    assert isinstance(refused, Disbelieved)
    assert broker.accepts_sends and broker.master_epoch == 4
    assert broker.tick(300) == [PollCall()], "the controllers are asked again"
    [refused] = broker.replied(PollCall(), ControllerReply(0, None, FAR), 300, WALL_MS)
    assert isinstance(refused, Disbelieved) and broker.accepts_sends


@pytest.mark.parametrize("step", [2**20, 2**20 + 1])
def test_a_restarted_broker_refuses_epochs_too_far_beyond_its_log(step: int) -> None:
    broker = Membership(cluster_name="DefaultCluster", broker_name="broker-a", poll_ms=POLL_MS, nonce=NONCE)
    broker.restore(IDENTITY, log_epoch=40)
    broker.reached_at("10.0.0.1:10911")
    broker.tick(0)
    actions = broker.replied(RegisterCall(1), ControllerReply(0, grant(40 + step, master_id=2)), 0, WALL_MS)
    assert isinstance(actions[0], BeginHeartbeats if step == 2**20 else Disbelieved)


def test_a_broker_without_a_log_accepts_a_high_epoch() -> None:
    assert registered(grant(2**30, master_id=2))[0].tick(0) == []


def test_a_notification_before_registration_is_ignored() -> None:
    broker = broker_with(TEMPORARY)
    assert broker.notified(grant(1, master_id=3), 0) == []
    broker = broker_with(IDENTITY)
    assert broker.tick(0) == [RegisterCall(1)]
    assert broker.notified(grant(1, master_id=3), 0) == [] and broker.next_tick_ms == NEVER_MS


def test_a_grant_to_the_previous_process_is_ignored() -> None:
    """The log of that process may have been longer, so a late announcement must not make this one master."""
    broker, actions = registered()
    assert actions == [ElectCall(1)]
    assert broker.notified(grant(2), 1) == [], "an election call is under way"
    failed = ControllerReply(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    assert broker.replied(ElectCall(1), failed, 2, 0) == [PollCall()]
    assert answered(broker, grant(2), 3) == [], "the answer may come from another controller"
    broker.replied(PollCall(), ControllerReply(ResponseCode.SUCCESS, None, 3), 4, 0)
    assert answered(broker, grant(2), 5) == [] and broker.role is ReplicaRole.NONE
    assert answered(broker, grant(4), 6) == [RoleAnnounced(grant(4)), Lead(grant(4))]


def test_an_async_learner_asks_for_no_election() -> None:
    broker = Membership(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        poll_ms=POLL_MS,
        nonce=NONCE,
        is_async_learner=True,
    )
    broker.restore(IDENTITY)
    broker.reached_at("10.0.0.1:10911")
    assert broker.tick(0) == [RegisterCall(1)]
    assert broker.replied(RegisterCall(1), ControllerReply(ResponseCode.SUCCESS), 0, 0) == [BeginHeartbeats()]
    assert broker.tick(5_000) == [PollCall()]
    assert broker.replied(PollCall(), ControllerReply(ResponseCode.SUCCESS, None, 3), 5_001, 0) == []
    assert broker.tick(5_600) == []


def test_a_slave_follows_its_master_to_a_new_address() -> None:
    broker, _ = registered(grant(4, master_id=2))
    broker.role_taken(grant(4, master_id=2), 0)
    moved = grant(4, master_id=2, address="10.0.0.9:10911")
    reply = ControllerReply(0, moved, master_epoch=4)
    assert polling(broker).replied(PollCall(), reply, 0, WALL_MS) == [MasterMoved("10.0.0.9:10911", 4)]
    assert broker.master_address == "10.0.0.9:10911"
    assert polling(broker).replied(PollCall(), reply, 0, WALL_MS) == []


def test_a_master_reads_the_set_from_polls_and_answers_of_controllers() -> None:
    broker = polling(master(epoch=4))
    reply = ControllerReply(0, grant(4, 1, (1, 2), 8), master_epoch=4)
    assert broker.replied(PollCall(), reply, 0, WALL_MS) == [SetRead(frozenset({1, 2}), 8)]
    assert answered(broker, grant(4, 1, (1, 2, 3), 9), 0) == [SetRead(frozenset({1, 2, 3}), 9)]


def test_a_member_of_a_pair_takes_the_role_of_its_configuration_and_calls_no_controller() -> None:
    for broker_id, leads in ((0, True), (3, False)):
        us = Membership(cluster_name="c", broker_name="b", poll_ms=1_000, nonce=NONCE)
        us.appointed(broker_id, leads=leads)
        [change] = us.tick(0)
        assert isinstance(change, Lead if leads else Follow)
        assert us.role_failed(0) == [] and us.role_id is None
        assert us.tick(5_000) == [change]
        assert us.role_taken(change.grant, 5_000) == []
        assert (us.role_id, us.accepts_sends, us.is_slave) == (broker_id, leads, not leads)
        assert us.next_tick_ms == NEVER_MS and us.tick(1 << 40) == []
        for epoch in (1, 2, FAR):
            assert us.notified(grant(epoch, master_id=2), 5_000) == [] and us.next_tick_ms == NEVER_MS
        assert (us.role_id, us.accepts_sends) == (broker_id, leads)


def test_a_member_of_a_raft_group_takes_roles_only_from_its_group() -> None:
    us = Membership(cluster_name="c", broker_name="b", poll_ms=1_000, nonce=NONCE)
    us.member_of_group(1)
    assert us.granted_by_group(grant(3), 0) == [RoleAnnounced(grant(3)), Lead(grant(3))]
    us.role_taken(grant(3), 0)
    for epoch in (3, 4, FAR):
        assert us.notified(grant(epoch, master_id=2), 1) == [] and us.accepts_sends
    us.deposed()
    assert not us.accepts_sends
    assert us.granted_by_group(grant(4, master_id=2), 2) == [
        RoleAnnounced(grant(4, master_id=2)),
        Follow(grant(4, master_id=2), 1),
    ]


def test_a_slave_of_a_pair_learns_its_master_from_name_servers() -> None:
    us = Membership(cluster_name="c", broker_name="b", poll_ms=1_000, nonce=NONCE)
    us.appointed(1, leads=False)
    assert not us.pair_led_at("h:1")  # the broker has no role yet
    [change] = us.tick(0)
    us.role_taken(change.grant, 0)
    assert us.master_address is None
    assert us.pair_led_at("h:1") and not us.pair_led_at("h:1") and us.master_address == "h:1"


def test_a_disk_that_was_set_back_is_recorded_before_the_broker_registers() -> None:
    broker = broker_with(IDENTITY)
    broker.tick(0)
    old = ControllerReply(ResponseCode.CONTROLLER_INVALID_REQUEST, known_start_number=40)
    assert broker.replied(RegisterCall(1), old, 0, WALL_MS) == [NoteSetBack(40)]
    assert not broker.registered and broker.next_tick_ms == NEVER_MS
    assert broker.saved(0) == [RegisterCall(1)]
    assert broker.replied(RegisterCall(1), ControllerReply(0), 0, WALL_MS)[0] == BeginHeartbeats()


def test_a_copy_of_a_live_broker_retries_registration_periodically() -> None:
    broker = broker_with(IDENTITY)
    broker.tick(0)
    copy = ControllerReply(ResponseCode.CONTROLLER_BROKER_ID_INVALID, other_address="h9:1")
    assert broker.replied(RegisterCall(1), copy, 0, WALL_MS) == [Duplicate("h9:1", registered=True)]
    assert not broker.registered and broker.next_tick_ms == POLL_MS
    assert broker.tick(POLL_MS) == [RegisterCall(1)]
