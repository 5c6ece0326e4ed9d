"""The SyncStateSet and the confirm offset. R, S, C and F numbers: the races and invariants each test is for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha import confirm
from ha.errors import AlterInFlight
from ha.syncstateset import Limits, SyncStateSet

LIMITS = Limits(
    not_caught_up_ms_max=15_000, disconnected_ms_max=1_000, join_lag_ms_max=1_000, join_ms_max=5_000
)


def ids(*members: int) -> frozenset[int]:
    return frozenset(members)


def master(
    *members: int, log_end: int = 1000, confirm_offset: int = 0, epoch_start: int = 500
) -> SyncStateSet:
    """Broker 1's mastership, begun at time 0 with set epoch 7."""
    return SyncStateSet(
        own_id=1,
        members=ids(*members),
        set_epoch=7,
        epoch_start=epoch_start,
        log_end=log_end,
        confirm_offset=confirm_offset,
        limits=LIMITS,
        now_ms=0,
    )


def attach(sss: SyncStateSet, broker_id: int, ack: int, now_ms: int = 0, *, learner: bool = False) -> None:
    sss.connected(broker_id, is_async_learner=learner)
    sss.acked(broker_id, ack, now_ms, now_ms)


def expanded(*slaves: int) -> SyncStateSet:
    """Broker 1 and these slaves in the set, all at 1000."""
    sss = master(1)
    for broker_id in slaves:
        attach(sss, broker_id, 1000)
    assert sss.propose(ids(1, *slaves)) and sss.applied(ids(1, *slaves), 8)
    return sss


# -- the confirm offset


def test_alone_the_master_confirms_its_own_end() -> None:
    sss = master(1)
    assert sss.confirm_offset == 1000
    sss.log_grew(1100)
    assert sss.confirm_offset == 1100


def test_the_slowest_member_decides() -> None:
    sss = expanded(2, 3)
    sss.log_grew(2000)
    sss.acked(2, 2000, 5, 5)
    assert sss.confirm_offset == 1000
    sss.acked(3, 1500, None, 6)
    assert sss.confirm_offset == 1500


def test_a_member_whose_ack_is_unknown_stops_the_confirm_offset_r8_c3() -> None:
    sss = expanded(2, 3)
    sss.log_grew(2000)
    sss.connected(3, is_async_learner=False)
    sss.acked(2, 2000, 5, 5)
    assert sss.confirm_offset == 1000
    sss.acked(3, 2000, 6, 6)
    assert sss.confirm_offset == 2000


def test_a_member_never_seen_stops_it_too() -> None:
    sss = master(1, 2, 3, confirm_offset=800)
    attach(sss, 2, 1000)
    assert sss.confirm_offset == 800


def test_a_second_connection_of_one_slave_does_not_count_twice_r11_c4() -> None:
    sss = expanded(2, 3)
    sss.log_grew(2000)
    attach(sss, 2, 2000)
    attach(sss, 2, 2000)
    assert sss.confirm_offset == 1000


def test_learners_and_strangers_do_not_count_r10_s6() -> None:
    sss = expanded(2)
    sss.log_grew(2000)
    sss.connected(9, is_async_learner=False)
    sss.acked(9, 500, None, 0)
    attach(sss, 8, 2000, learner=True)
    sss.acked(2, 1800, None, 1)
    assert sss.confirm_offset == 1800
    assert sss.union() == ids(1, 2)
    wanted = sss.wanted(1)
    assert wanted is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([2, 3]), st.integers(0, 400), st.sampled_from(["acked", "gone", "grew", "set"])
        )
    )
)
def test_whatever_happens_the_confirm_offset_never_falls_r9_c2(steps: list[tuple[int, int, str]]) -> None:
    sss, end, now_ms, set_epoch = master(1), 1000, 0, 7
    held = {2: 0, 3: 0}
    before = sss.confirm_offset
    for broker_id, value, kind in steps:
        now_ms += 400
        if kind == "grew":
            end += value
            sss.log_grew(end)
        elif kind == "acked":
            if not held[broker_id]:
                sss.connected(broker_id, is_async_learner=False)
            held[broker_id] = min(end, max(held[broker_id], end - value))
            sss.acked(broker_id, held[broker_id], now_ms if held[broker_id] == end else None, now_ms)
        elif kind == "gone" and held[broker_id]:
            sss.disconnected(broker_id, now_ms)
            held[broker_id] = 0
        elif kind == "set" and (wanted := sss.wanted(now_ms)) is not None and sss.propose(wanted.members):
            for member in wanted.members - sss.applied_members:
                assert held[member] >= sss.confirm_offset  # R6, C1
            if value % 3:
                set_epoch += 1
                sss.applied(wanted.members, set_epoch)
            else:
                sss.proposal_failed(definite=value % 2 == 0)
        assert sss.confirm_offset >= before
        before = sss.confirm_offset
        assert before <= end
        assert all(held[member] >= before or not held[member] for member in sss.union() - {1})


# -- what may be answered


def test_sends_are_answered_up_to_the_confirm_offset_while_enough_members_are_applied() -> None:
    sss = expanded(2)
    assert (sss.acked_end(1), sss.acked_end(2), sss.acked_end(3)) == (1000, 1000, 0)


def test_after_a_shrink_below_the_minimum_waiting_sends_are_not_answered_ok_f6() -> None:
    sss = expanded(2)
    sss.log_grew(1200)
    assert sss.acked_end(2) == 1000
    assert sss.propose(ids(1)) and sss.applied(ids(1), 9)
    assert sss.confirm_offset == 1200
    assert sss.acked_end(1) == 1200
    assert sss.acked_end(2) == 0


def test_they_are_answered_once_the_set_is_large_enough_again() -> None:
    sss = expanded(2)
    sss.log_grew(1200)
    assert sss.propose(ids(1)) and sss.applied(ids(1), 9)
    sss.acked(2, 1200, 50, 50)
    assert sss.propose(ids(1, 2)) and sss.acked_end(2) == 0
    assert sss.applied(ids(1, 2), 10)
    assert sss.acked_end(2) == 1200


def test_confirm_offset_and_acked_end_as_functions() -> None:
    assert confirm.confirm_offset(5, [9, 7, 8]) == 7
    assert confirm.confirm_offset(5, [9, None, 8]) == 5
    assert confirm.confirm_offset(5, [3]) == 5
    assert confirm.confirm_offset(5, []) == 5
    assert confirm.acked_end(7, 2, 2) == 7
    assert confirm.acked_end(7, 1, 2) == 0


# -- entering


def test_a_level_slave_is_wanted_and_counted_from_then_on_r6() -> None:
    sss = master(1)
    attach(sss, 2, 1000)
    wanted = sss.wanted(0)
    assert wanted is not None and wanted.members == ids(1, 2) and "expand 2" in wanted.reason
    sss.log_grew(1100)
    assert sss.confirm_offset == 1000
    assert sss.propose(ids(1, 2)) and sss.confirm_offset == 1000
    sss.acked(2, 1100, 3, 3)
    assert sss.confirm_offset == 1100


def test_under_constant_writes_a_slave_close_behind_is_waited_for_and_then_wanted_r22() -> None:
    sss = master(1)
    sss.connected(2, is_async_learner=False)
    sss.log_grew(2000)
    sss.acked(2, 1900, 90, 100)  # had all of the log 10 ms ago
    assert sss.wanted(100) is None
    sss.log_grew(2500)
    assert sss.confirm_offset == 2000
    sss.acked(2, 2100, 100, 110)
    wanted = sss.wanted(110)
    assert wanted is not None and wanted.members == ids(1, 2)


def test_a_joiner_that_does_not_catch_up_is_given_up() -> None:
    sss = master(1)
    sss.connected(2, is_async_learner=False)
    sss.log_grew(2000)
    sss.acked(2, 1900, 90, 100)
    sss.log_grew(3000)
    assert sss.confirm_offset == 2000
    assert sss.wanted(5_101) is None
    assert sss.union() == ids(1) and sss.confirm_offset == 3000


def test_a_slave_far_behind_is_not_waited_for() -> None:
    sss = master(1)
    sss.connected(3, is_async_learner=False)
    sss.acked(3, 700, None, 0)
    sss.connected(4, is_async_learner=False)
    sss.acked(4, 900, 0, 1_001)
    assert ids(3, 4).isdisjoint(sss.union())


def test_an_ack_below_the_start_of_the_epoch_does_not_enter_s4() -> None:
    sss = master(1, log_end=400, epoch_start=500)
    attach(sss, 2, 400)
    assert sss.union() == ids(1)


def test_a_proposal_whose_new_member_fell_behind_is_not_sent_r6() -> None:
    sss = master(1)
    attach(sss, 2, 1000)
    assert sss.wanted(0) is not None
    sss.disconnected(2, 10)
    sss.log_grew(1100)
    assert not sss.propose(ids(1, 2))
    assert sss.union() == ids(1)


def test_a_proposal_without_the_master_is_not_sent_s2() -> None:
    sss = expanded(2)
    assert not sss.propose(ids(2))


def test_strangers_and_learners_are_not_proposed() -> None:
    sss = master(1)
    attach(sss, 2, 1000, learner=True)
    assert not sss.propose(ids(1, 2)) and not sss.propose(ids(1, 5))


# -- open proposals


def test_while_the_fate_of_an_alter_is_open_both_sets_are_counted_s3() -> None:
    sss = expanded(2)
    attach(sss, 3, 1000)
    assert sss.propose(ids(1, 3))
    assert sss.union() == ids(1, 2, 3)
    sss.log_grew(1100)
    sss.acked(3, 1100, 1, 1)
    assert sss.confirm_offset == 1000


def test_one_alter_is_in_flight_at_a_time_r7_r25() -> None:
    sss = master(1)
    attach(sss, 2, 1000)
    attach(sss, 3, 1000)
    assert sss.propose(ids(1, 2))
    assert sss.wanted(1) is None
    with pytest.raises(AlterInFlight):
        sss.propose(ids(1, 2, 3))


def test_a_definite_refusal_makes_the_union_smaller_again_r25() -> None:
    sss = master(1)
    attach(sss, 2, 1000)
    assert sss.propose(ids(1, 2))
    sss.disconnected(2, 5)
    sss.log_grew(1100)
    assert sss.confirm_offset == 1000
    sss.proposal_failed(definite=True)
    assert sss.union() == ids(1) and sss.confirm_offset == 1100


def test_an_unknown_fate_keeps_the_union_until_a_newer_set_is_applied_s3_r7() -> None:
    sss = master(1)
    attach(sss, 2, 1000)
    attach(sss, 3, 1000)
    assert sss.propose(ids(1, 2))
    sss.proposal_failed(definite=False)
    sss.disconnected(2, 5)
    assert sss.propose(ids(1, 3))  # a second try, while the first may still be accepted
    sss.proposal_failed(definite=False)
    assert sss.union() == ids(1, 2, 3)
    assert not sss.applied(ids(1), 7)  # a read of the same set settles nothing
    assert sss.union() == ids(1, 2, 3)
    assert sss.applied(ids(1, 3), 8)
    assert sss.union() == ids(1, 3)


def test_the_same_proposal_again_after_an_unknown_fate_takes_no_more_room() -> None:
    sss = master(1)
    attach(sss, 2, 1000)
    for _ in range(50):
        assert sss.propose(ids(1, 2))
        sss.proposal_failed(definite=False)
    assert len(sss._proposals) == 1


def test_a_refusal_that_comes_after_the_set_was_read_changes_nothing() -> None:
    sss = master(1)
    attach(sss, 2, 1000)
    assert sss.propose(ids(1, 2))
    assert sss.applied(ids(1, 2), 8)
    sss.proposal_failed(definite=True)
    assert sss.applied_members == ids(1, 2)


def test_an_older_set_and_a_set_without_the_master_are_ignored() -> None:
    sss = expanded(2)
    assert not sss.applied(ids(1), 8)
    assert not sss.applied(ids(1), 3)
    assert not sss.applied(ids(2, 3), 9)
    assert sss.applied_members == ids(1, 2)


# -- leaving


def test_a_slave_that_does_not_catch_up_is_wanted_out_and_counted_until_it_is_s5() -> None:
    sss = expanded(2)
    sss.log_grew(1100)
    assert sss.wanted(15_000) is None
    wanted = sss.wanted(15_001)
    assert wanted is not None and wanted.members == ids(1) and "not caught up for 15001 ms" in wanted.reason
    assert sss.propose(ids(1))
    assert sss.union() == ids(1, 2) and sss.confirm_offset == 1000
    assert sss.applied(ids(1), 9)
    assert sss.confirm_offset == 1100


def test_a_short_disconnection_takes_nobody_out_s5_r24() -> None:
    sss = expanded(2)
    sss.disconnected(2, 100)
    assert sss.wanted(1_100) is None
    attach(sss, 2, 1000, now_ms=1_100)
    assert sss.wanted(5_000) is None


def test_a_longer_one_does_without_waiting_for_the_catch_up_limit() -> None:
    sss = expanded(2)
    sss.disconnected(2, 100)
    wanted = sss.wanted(1_101)
    assert wanted is not None and wanted.members == ids(1) and "disconnected for 1001 ms" in wanted.reason
    assert sss.union() == ids(1, 2)


def test_two_slaves_that_vanish_at_once_leave_at_once_v5() -> None:
    sss = expanded(2, 3)
    sss.disconnected(2, 100)
    sss.disconnected(3, 101)
    wanted = sss.wanted(2_000)
    assert wanted is not None and wanted.members == ids(1)


def test_a_fresh_master_gives_members_time_to_connect() -> None:
    sss = master(1, 2)
    assert sss.wanted(15_000) is None
    wanted = sss.wanted(15_001)
    assert wanted is not None and wanted.members == ids(1)


def test_the_same_mastership_goes_on_in_a_new_epoch_m5() -> None:
    sss = expanded(2)
    assert sss.propose(ids(1))
    sss.epoch_began(1000, ids(1, 2), 11)
    assert sss.union() == ids(1, 2) and sss.set_epoch == 11
    sss.log_grew(1300)
    sss.acked(2, 1300, 9, 9)
    assert sss.confirm_offset == 1300
