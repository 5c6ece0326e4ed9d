"""A broker's place in its set, driven by literals. Its SyncStateSet proposals: tests/unit/ha/test_syncstateset_proposals.py."""

from __future__ import annotations

import pytest

from broker.role.actions import (
    Action,
    ApplyIdCall,
    BeginHeartbeats,
    ElectCall,
    Follow,
    Grant,
    Lead,
    MasterMoved,
    NextIdCall,
    PollCall,
    RegisterCall,
    Reply,
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
from broker.role.membership import Membership, Role
from mqruntime.core import NEVER_MS
from remoting.codes import ResponseCode

WALL_MS = 1_700_000_000_000
POLL_MS = 5_000
TEMPORARY = TemporaryIdentity("DefaultCluster", "broker-a", 3, f"10.0.0.1:10911;{WALL_MS}")
IDENTITY = Identity("DefaultCluster", "broker-a", 1)
UNKNOWN_ID = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def broker_with(identity: Identity | TemporaryIdentity | None = None) -> Membership:
    broker = Membership(cluster_name="DefaultCluster", broker_name="broker-a", poll_ms=POLL_MS)
    broker.restore(identity)
    broker.reached_at("10.0.0.1:10911")
    return broker


def grant(
    epoch: int, master_id: int = 1, members: tuple[int, ...] = (1,), set_epoch: int = 1, address: str = ""
) -> Grant:
    return Grant(epoch, master_id, address or f"10.0.0.{master_id}:10911", frozenset(members), set_epoch)


def registered(found: Grant | None = None, now_ms: int = 0) -> tuple[Membership, list[Action]]:
    """Broker 1 after its registration, and what it does then."""
    broker = broker_with(IDENTITY)
    assert broker.tick(now_ms) == [RegisterCall(1)]
    begin, *actions = broker.replied(RegisterCall(1), Reply(0, found), now_ms, WALL_MS)
    assert begin == BeginHeartbeats()
    return broker, actions


def master(epoch: int = 4, members: tuple[int, ...] = (1,), set_epoch: int = 7) -> Membership:
    given = grant(epoch, 1, members, set_epoch)
    broker, actions = registered(given)
    assert actions == [RoleAnnounced(given), Lead(given)]
    assert broker.role_taken(given, 0) == []
    return broker


def polling(broker: Membership, now_ms: int = 0) -> Membership:
    """With a poll under way."""
    assert broker.poll_soon(now_ms) == [PollCall()]
    return broker


# -- identity


def test_a_new_broker_draws_an_id_and_writes_each_file_before_it_tells_anybody() -> None:
    broker = broker_with()
    assert broker.tick(0) == [NextIdCall()]
    assert broker.replied(NextIdCall(), Reply(0, next_broker_id=3), 0, WALL_MS) == [SaveTemporary(TEMPORARY)]
    assert broker.saved(0) == [ApplyIdCall(TEMPORARY)]
    saving = [SaveIdentity(Identity("DefaultCluster", "broker-a", 3, TEMPORARY.check_code))]
    assert broker.replied(ApplyIdCall(TEMPORARY), Reply(0), 0, WALL_MS) == saving
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
    assert broker.replied(ApplyIdCall(TEMPORARY), Reply(code), 0, WALL_MS) == []
    assert broker.tick(broker.next_tick_ms) == [ApplyIdCall(TEMPORARY)]


def test_an_id_that_another_broker_has_is_given_up_for_the_next_one() -> None:
    broker = broker_with(TEMPORARY)
    broker.tick(0)
    broker.replied(ApplyIdCall(TEMPORARY), Reply(ResponseCode.CONTROLLER_BROKER_ID_INVALID), 0, WALL_MS)
    assert broker.tick(broker.next_tick_ms) == [NextIdCall()]


def test_one_call_is_under_way_at_a_time() -> None:
    broker = broker_with(IDENTITY)
    assert broker.tick(0) == [RegisterCall(1)]
    assert broker.tick(10_000) == broker.poll_soon(10_000) == []
    assert broker.next_tick_ms == NEVER_MS


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
    broker, actions = registered()
    assert actions == [ElectCall(1)]
    refused = Reply(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    assert broker.replied(ElectCall(1), refused, 0, WALL_MS) == []
    due_ms = broker.next_tick_ms
    assert 0 < due_ms <= 1_000
    assert broker.tick(due_ms) == [ElectCall(1)]


def test_an_election_that_finds_the_master_still_there_counts_as_won() -> None:
    broker, _ = registered()
    found = grant(2, master_id=2)
    reply = Reply(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, found)
    assert broker.replied(ElectCall(1), reply, 0, WALL_MS) == [RoleAnnounced(found), Follow(found, 1)]


def test_a_running_broker_polls_in_its_period_and_at_once_when_it_has_reason_to() -> None:
    broker = master()
    assert broker.tick(0) == []
    assert broker.next_tick_ms == POLL_MS
    assert broker.poll_soon(1) == [PollCall()]


def test_a_set_that_the_controllers_forgot_is_registered_again() -> None:
    broker = polling(master())
    code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    assert broker.replied(PollCall(), Reply(code), 10, WALL_MS) == []
    assert broker.tick(broker.next_tick_ms) == [RegisterCall(1)]
    later_ms = 10 + POLL_MS
    assert broker.replied(RegisterCall(1), Reply(UNKNOWN_ID), later_ms, WALL_MS) == [PollCall()]
    assert broker.replied(PollCall(), Reply(code), later_ms, WALL_MS) == [], (
        "that set begins without this log"
    )
    assert broker.next_tick_ms == later_ms + POLL_MS
    assert broker.tick(broker.next_tick_ms) == [RegisterCall(1)]


def slave_granted(check_code: str) -> Membership:
    """Broker 1, that follows 2 and has its id by `check_code`."""
    broker = broker_with(Identity("DefaultCluster", "broker-a", 1, check_code))
    given = grant(4, master_id=2)
    broker.tick(0)
    broker.replied(RegisterCall(1), Reply(0, given), 0, WALL_MS)
    broker.role_taken(given, 0)
    return broker


@pytest.mark.parametrize("known_code", ["10.0.0.9:10911;7", ""])
def test_who_was_forgotten_while_it_lives_asks_for_its_id_again_and_stays_slave(known_code: str) -> None:
    broker = polling(slave_granted(known_code))
    code = known_code or f"10.0.0.1:10911;{WALL_MS}"
    asked = TemporaryIdentity("DefaultCluster", "broker-a", 1, code)
    assert broker.replied(PollCall(), Reply(UNKNOWN_ID), 0, WALL_MS) == [SaveTemporary(asked)]
    assert broker.saved(0) == [ApplyIdCall(asked)]
    again = SaveIdentity(Identity("DefaultCluster", "broker-a", 1, code))
    assert broker.replied(ApplyIdCall(asked), Reply(0), 0, WALL_MS) == [again]
    assert broker.saved(0) == [RegisterCall(1)]
    assert broker.replied(RegisterCall(1), Reply(0, grant(4, master_id=2)), 0, WALL_MS) == [BeginHeartbeats()]
    assert (broker.role, broker.broker_id, broker.check_code) == (Role.SLAVE, 1, code)


def test_who_was_forgotten_while_it_was_down_asks_for_its_id_again_if_its_set_goes_on() -> None:
    broker = broker_with(Identity("DefaultCluster", "broker-a", 1, "x;7"))
    assert broker.tick(0) == [RegisterCall(1)]
    assert broker.replied(RegisterCall(1), Reply(UNKNOWN_ID), 0, WALL_MS) == [PollCall()]
    assert broker.not_replied(0) == []
    assert broker.tick(broker.next_tick_ms) == [PollCall()]
    asked = TemporaryIdentity("DefaultCluster", "broker-a", 1, "x;7")
    assert broker.replied(PollCall(), Reply(UNKNOWN_ID), 500, WALL_MS) == [SaveTemporary(asked)]


def test_where_controllers_cannot_tell_whose_set_it_is_nothing_is_applied_for() -> None:
    broker = broker_with(Identity("DefaultCluster", "broker-a", 1, "x;7"))
    broker.tick(0)
    broker.replied(RegisterCall(1), Reply(UNKNOWN_ID), 0, WALL_MS)
    assert broker.replied(PollCall(), Reply(0, grant(4, 2)), 0, WALL_MS) == []
    assert broker.tick(broker.next_tick_ms) == [RegisterCall(1)]


def test_an_id_that_is_anothers_by_now_is_not_taken_from_it_nor_another_one_for_this_log() -> None:
    broker = polling(slave_granted("x;7"))
    broker.replied(PollCall(), Reply(UNKNOWN_ID), 0, WALL_MS)
    broker.saved(0)
    asked = TemporaryIdentity("DefaultCluster", "broker-a", 1, "x;7")
    taken = Reply(ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    assert broker.replied(ApplyIdCall(asked), taken, 0, WALL_MS) == []
    assert broker.next_tick_ms == POLL_MS
    assert broker.tick(POLL_MS) == [RegisterCall(1)]


# -- roles


def test_a_role_counts_as_taken_only_after_the_change_succeeded() -> None:
    given = grant(4)
    broker, actions = registered(given)
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (Role.NONE, 0, False)
    assert actions == [RoleAnnounced(given), Lead(given)]
    assert broker.role_taken(given, 0) == []
    assert (broker.role, broker.master_epoch, broker.accepts_sends) == (Role.MASTER, 4, True)
    assert (broker.role_id, broker.broker_id) == (0, 1)


def test_a_role_change_that_broke_off_is_repeated_and_nothing_is_served_meanwhile() -> None:
    given = grant(5, master_id=2)
    broker = master()
    assert broker.announced(given, 0) == [RoleAnnounced(given), Follow(given, 1)]
    assert broker.role_failed(0) == []
    assert (broker.role, broker.role_id) == (Role.NONE, None)
    assert not broker.accepts_sends
    assert broker.tick(broker.next_tick_ms - 1) == []
    assert broker.tick(broker.next_tick_ms) == [Follow(given, 1)]


def test_a_role_that_the_log_refused_is_never_tried_again_but_a_newer_one_is() -> None:
    broker, _ = registered(grant(2))
    assert broker.role_refused(grant(2), 0) == []
    assert broker.announced(grant(2), 0) == []
    assert broker.role is Role.NONE
    assert broker.announced(grant(3), 0) == [RoleAnnounced(grant(3)), Lead(grant(3))]


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_epoch_that_is_not_newer_changes_nothing(epoch: int) -> None:
    broker = master(epoch=4)
    assert broker.announced(grant(epoch, master_id=2), 0) == []
    assert broker.accepts_sends


def test_a_master_stops_accepting_as_soon_as_it_hears_of_a_newer_epoch() -> None:
    broker = master(epoch=4)
    broker.announced(grant(5, master_id=2), 0)
    assert not broker.accepts_sends
    assert broker.role is Role.MASTER, "it is still the master of its own log until the change"


def test_a_broker_that_stops_accepts_nothing_and_keeps_its_role_for_those_that_it_leaves() -> None:
    broker = master()
    broker.stop()
    assert (broker.accepts_sends, broker.stopping, broker.role_id) == (False, True, 0)


def test_a_master_stops_accepting_when_the_controllers_have_deposed_it_without_a_successor() -> None:
    broker = polling(master(epoch=4))
    assert broker.replied(PollCall(), Reply(0, None, master_epoch=5), 0, WALL_MS) == [ElectCall(1)]
    assert not broker.accepts_sends
    again = grant(6)
    assert broker.replied(ElectCall(1), Reply(0, again), 0, WALL_MS) == [RoleAnnounced(again), Lead(again)]
    broker.role_taken(again, 0)
    assert broker.accepts_sends


def test_the_newest_of_several_announced_roles_is_taken() -> None:
    broker, _ = registered(grant(2))
    assert broker.announced(grant(4, master_id=3), 0) == [RoleAnnounced(grant(4, master_id=3))]
    assert broker.announced(grant(3, master_id=2), 0) == []
    assert broker.role_taken(grant(2), 0) == [Follow(grant(4, master_id=3), 1)]
    assert broker.role_taken(grant(4, master_id=3), 0) == []


def test_a_role_announced_during_a_change_follows_it() -> None:
    broker, _ = registered(grant(2))
    broker.announced(grant(3, master_id=2), 0)
    assert broker.role_taken(grant(2), 0) == [Follow(grant(3, master_id=2), 1)]
    assert not broker.accepts_sends


def test_an_announcement_before_the_id_is_durable_is_left_to_the_registration() -> None:
    broker = broker_with(TEMPORARY)
    assert broker.announced(grant(1, master_id=3), 0) == []


def test_what_was_granted_to_the_process_before_is_not_taken() -> None:
    """Its log may have been longer; a late announcement of that epoch would have this one lead with what is left."""
    broker, actions = registered()
    assert actions == [ElectCall(1)]
    assert broker.announced(grant(2), 1) == [], "it asks for an election now"
    broker.replied(ElectCall(1), Reply(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED), 2, 0)
    assert broker.announced(grant(2), 3) == [PollCall()]
    broker.replied(PollCall(), Reply(ResponseCode.SUCCESS, None, 3), 4, 0)
    assert broker.announced(grant(2), 5) == [] and broker.role is Role.NONE
    assert broker.announced(grant(4), 6) == [RoleAnnounced(grant(4)), Lead(grant(4))]


def test_an_async_learner_asks_for_no_election() -> None:
    broker = Membership(
        cluster_name="DefaultCluster", broker_name="broker-a", poll_ms=POLL_MS, is_async_learner=True
    )
    broker.restore(IDENTITY)
    broker.reached_at("10.0.0.1:10911")
    assert broker.tick(0) == [RegisterCall(1)]
    assert broker.replied(RegisterCall(1), Reply(ResponseCode.SUCCESS), 0, 0) == [BeginHeartbeats()]
    assert broker.tick(5_000) == [PollCall()]
    assert broker.replied(PollCall(), Reply(ResponseCode.SUCCESS, None, 3), 5_001, 0) == []
    assert broker.tick(5_600) == []


def test_a_slave_follows_its_master_to_a_new_address() -> None:
    broker, _ = registered(grant(4, master_id=2))
    broker.role_taken(grant(4, master_id=2), 0)
    moved = grant(4, master_id=2, address="10.0.0.9:10911")
    reply = Reply(0, moved, master_epoch=4)
    assert polling(broker).replied(PollCall(), reply, 0, WALL_MS) == [MasterMoved("10.0.0.9:10911", 4)]
    assert broker.master_address == "10.0.0.9:10911"
    assert polling(broker).replied(PollCall(), reply, 0, WALL_MS) == []


def test_a_master_hears_of_the_set_that_the_controllers_have() -> None:
    broker = polling(master(epoch=4))
    reply = Reply(0, grant(4, 1, (1, 2), 8), master_epoch=4)
    assert broker.replied(PollCall(), reply, 0, WALL_MS) == [SetRead(frozenset({1, 2}), 8)]
    assert broker.announced(grant(4, 1, (1, 2, 3), 9), 0) == [SetRead(frozenset({1, 2, 3}), 9)]


def test_a_member_of_a_pair_takes_the_role_of_its_configuration_and_calls_no_controller() -> None:
    for broker_id, leads in ((0, True), (3, False)):
        us = Membership(cluster_name="c", broker_name="b", poll_ms=1_000)
        us.appointed(broker_id, leads=leads)
        [change] = us.tick(0)
        assert isinstance(change, Lead if leads else Follow)
        assert us.role_failed(0) == [] and us.role_id is None
        assert us.tick(5_000) == [change]
        assert us.role_taken(change.grant, 5_000) == []
        assert (us.role_id, us.accepts_sends, us.is_slave) == (broker_id, leads, not leads)
        assert us.next_tick_ms == NEVER_MS and us.tick(1 << 40) == []


def test_a_slave_of_a_pair_learns_its_master_from_name_servers() -> None:
    us = Membership(cluster_name="c", broker_name="b", poll_ms=1_000)
    us.appointed(1, leads=False)
    assert not us.pair_led_at("h:1")  # it has no role yet
    [change] = us.tick(0)
    us.role_taken(change.grant, 0)
    assert us.master_address is None
    assert us.pair_led_at("h:1") and not us.pair_led_at("h:1") and us.master_address == "h:1"
