"""The SyncStateSet and the confirm offset. R, S, C and F numbers: the races and invariants each test is
for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ha import confirm
from ha.syncstateset import (
    Alter,
    AlterNotSent,
    AlterRefused,
    AlterUnknown,
    AnnouncementNotNeeded,
    Applied,
    Confirmed,
)
from tests.unit.ha.syncstatesets import (
    LIMITS,
    alter,
    asked,
    attach,
    expanded,
    ids,
    joining,
    master,
    newly_elected,
)

# -- the confirm offset


def test_a_master_alone_confirms_its_own_log_end() -> None:
    sss = master(1)
    assert sss.confirm_offset == 1000
    sss.log_grew(1100)
    assert sss.confirm_offset == 1100


def test_the_slowest_member_determines_the_confirm_offset() -> None:
    sss = expanded(2, 3)
    sss.log_grew(2000)
    sss.acked(2, 2000, 5, 5)
    assert sss.confirm_offset == 1000
    sss.acked(3, 1500, None, 6)
    assert sss.confirm_offset == 1500


def test_a_member_without_an_ack_holds_the_confirm_offset_r8_c3() -> None:
    sss = expanded(2, 3)
    sss.log_grew(2000)
    sss.connected(3, excluded=None)
    sss.acked(2, 2000, 5, 5)
    assert sss.confirm_offset == 1000
    sss.acked(3, 2000, 6, 6)
    assert sss.confirm_offset == 2000


def test_a_member_that_never_connected_holds_the_confirm_offset() -> None:
    sss = master(1, 2, 3, confirm_offset=800)
    attach(sss, 2, 1000)
    assert sss.confirm_offset == 800


def test_a_second_connection_of_one_slave_does_not_count_twice_r11_c4() -> None:
    sss = expanded(2, 3)
    sss.log_grew(2000)
    attach(sss, 2, 2000)
    attach(sss, 2, 2000)
    assert sss.confirm_offset == 1000


def test_counted_members_are_recomputed_after_every_change() -> None:
    """Acks and log growth use the members that were computed last."""
    sss = expanded(2, 3)
    sss.log_grew(2000)
    sss.acked(2, 2000, None, 1)
    assert sss.confirm_offset == 1000
    sss.observe(ids(1, 2), 9, 1)  # broker 3 has left
    assert sss.acked(2, 2000, None, 1) == [] and sss.confirm_offset == 2000
    sss.log_grew(3000)
    sss.connected(2, excluded="it acknowledges too early")
    assert sss.acked(2, 3000, None, 2) == [] and sss.confirm_offset == 2000
    sss.connected(2, excluded=None)
    assert sss.acked(2, 3000, None, 2) == [Confirmed(3000)]
    sss.members_min_is(3, 2)
    assert sss.log_grew(4000) == sss.acked(2, 4000, None, 3) == []
    sss.members_min_is(2, 3)
    assert sss.acked(2, 4000, None, 3) == [Confirmed(4000)]


def test_learners_and_unknown_slaves_do_not_count_r10_s6() -> None:
    sss = expanded(2)
    sss.log_grew(2000)
    sss.connected(9, excluded=None)
    sss.acked(9, 500, None, 0)
    attach(sss, 8, 2000, learner=True)
    sss.acked(2, 1800, None, 1)
    assert sss.confirm_offset == 1800
    assert sss.union() == ids(1, 2)
    assert alter(sss.tick(1)) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([2, 3]), st.integers(0, 400), st.sampled_from(["acked", "gone", "grew", "set"])
        )
    )
)
def test_the_confirm_offset_never_decreases_r9_c2(steps: list[tuple[int, int, str]]) -> None:
    sss, end, now_ms = master(1), 1000, 0
    held = {2: 0, 3: 0}  # the log of a disconnected slave keeps its bytes
    linked: set[int] = set()
    before = sss.confirm_offset
    for broker_id, value, kind in steps:
        now_ms += 400
        if kind == "grew":
            end += value
            sss.log_grew(end)
        elif kind == "acked":
            if broker_id not in linked:
                linked.add(broker_id)
                sss.connected(broker_id, excluded=None)
            held[broker_id] = min(end, max(held[broker_id], end - value))
            sss.acked(broker_id, held[broker_id], now_ms if held[broker_id] == end else None, now_ms)
        elif kind == "gone" and broker_id in linked:
            linked.remove(broker_id)
            sss.disconnected(broker_id, now_ms)
        elif kind == "set":
            wanted = alter(sss.observe(sss.applied_members, sss.set_epoch, now_ms)) or alter(sss.tick(now_ms))
            if wanted is None:
                continue
            for member in wanted.members - sss.applied_members:
                assert member in sss.union()  # R6, C1: waited for since it held what is confirmed
            set_epoch = sss.set_epoch + 1
            outcome = [Applied(wanted.members, set_epoch), AlterUnknown(), AlterRefused(), AlterNotSent()][
                value % 4
            ]
            sss.alter_ended(wanted, outcome, now_ms)
        ends = [held[member] if member in linked else -1 for member in sss.union() - {1}]
        expected = min([end, *ends]) if sss.may_confirm() else -1
        assert sss.confirm_offset == max(before, expected)  # the members that count now, and their offsets
        before = sss.confirm_offset
        assert before <= end
        assert all(held[member] >= before for member in sss.union() & linked)


# -- acknowledgements


def test_sends_are_acknowledged_up_to_the_confirm_offset_with_enough_members() -> None:
    sss = expanded(2)
    assert sss.acked_end() == 1000
    sss.members_min_is(2, 0)
    assert sss.acked_end() == 1000
    sss.members_min_is(3, 0)
    assert sss.acked_end() == 0


def test_below_the_minimum_nothing_is_confirmed_or_acknowledged_f6() -> None:
    sss = expanded(2, members_min=2)
    sss.log_grew(1200)
    assert sss.acked_end() == 1000
    sss.observe(ids(1), 9, 0)
    assert sss.confirm_offset == 1000, "data that only the master holds must not be read"
    assert sss.acked_end() == 0


def test_sends_are_acknowledged_once_the_set_reaches_the_minimum_again() -> None:
    sss = expanded(2, members_min=2)
    sss.log_grew(1200)
    sss.observe(ids(1), 9, 0)
    wanted = alter(sss.acked(2, 1200, 50, 50))
    assert wanted is not None and wanted.members == ids(1, 2) and sss.acked_end() == 0
    assert sss.alter_ended(wanted, Applied(ids(1, 2), 10), 60) == [Confirmed(1200)], (
        "waiting sends are acknowledged"
    )
    assert sss.acked_end() == 1200


def test_confirm_offset_and_enough_functions() -> None:
    assert confirm.confirm_offset(5, [9, 7, 8]) == 7
    assert confirm.confirm_offset(5, [9, None, 8]) == 5
    assert confirm.confirm_offset(5, [3]) == 5
    assert confirm.confirm_offset(5, []) == 5
    assert confirm.enough(2, 2) and not confirm.enough(1, 2)


def test_a_cleaned_replica_is_no_member_until_it_joins_again() -> None:
    sss = expanded(2, 3, members_min=2)
    epoch = sss.set_epoch
    sss.observe(ids(1, 2), epoch, 10)
    assert sss.applied_members == ids(1, 2)
    sss.observe(ids(1, 2, 3), epoch, 11)
    assert sss.applied_members == ids(1, 2), "an older set of the same epoch"
    again = alter(sss.acked(3, 1000, 20, 20)) or asked(sss, 600)
    assert again is not None and (again.members, again.set_epoch) == (ids(1, 2, 3), epoch)
    sss.observe(ids(1), epoch, 700)
    assert sss.applied_members == ids(1, 2), "all members count while a proposal is open"


# -- announcements: before them controllers may still elect a broker that left the set (KIP-966)


def test_a_new_master_announces_its_minimum_before_it_confirms() -> None:
    sss = newly_elected(1)
    announced = alter(sss.begin(0))
    assert announced == Alter(ids(1), 7, 4, 1, same_members=True)
    assert (sss.confirm_offset, sss.acked_end()) == (0, 0)
    assert sss.alter_ended(announced, Applied(ids(1), 8), 5) == [Confirmed(1000)]
    assert sss.acked_end() == 1000


def test_the_first_alter_of_a_new_master_announces_its_minimum() -> None:
    sss = newly_elected(1, members_min=2)
    assert alter(sss.begin(0)) is None, "alone it could not acknowledge"
    joining = alter(attach(sss, 2, 1000))
    assert joining == Alter(ids(1, 2), 7, 4, 2)
    assert sss.acked_end() == 0
    assert sss.alter_ended(joining, Applied(ids(1, 2), 8), 5) == [Confirmed(1000)]
    assert sss.acked_end() == 1000


def test_a_master_confirms_without_announcing_to_upstreams_controllers() -> None:
    sss = newly_elected(1)
    announced = alter(sss.begin(0))
    assert announced is not None
    assert sss.alter_ended(announced, AnnouncementNotNeeded(), 5) == [Confirmed(1000)]


def test_an_announcement_with_an_unknown_outcome_is_repeated_with_the_new_set_epoch() -> None:
    sss = newly_elected(1)
    announced = alter(sss.begin(0))
    assert announced is not None
    sss.alter_ended(announced, AlterUnknown(), 5)
    sss.observe(ids(1), 8, 6)
    assert sss.acked_end() == 0
    again = asked(sss, 600)
    assert again == Alter(ids(1), 8, 4, 1, same_members=True)
    sss.alter_ended(again, Applied(ids(1), 9), 601)
    assert sss.acked_end() == 1000


def test_a_lower_minimum_counts_once_announced_and_a_higher_one_at_once() -> None:
    sss = expanded(2, members_min=2)
    sss.observe(ids(1), 9, 0)
    lower = alter(sss.members_min_is(1, 1))
    assert lower == Alter(ids(1), 9, 4, 1, same_members=True) and sss.acked_end() == 0
    sss.log_grew(1200)
    assert sss.alter_ended(lower, Applied(ids(1), 10), 5) == [Confirmed(1200)]
    assert sss.acked_end() == 1200
    assert sss.members_min_is(2, 6) == [] and sss.acked_end() == 0


def test_a_late_response_to_an_older_announcement_does_not_undo_a_newer_one() -> None:
    sss = newly_elected(1)
    older = alter(sss.begin(0))
    assert older is not None
    sss.alter_ended(older, AlterUnknown(), 5)
    sss.observe(ids(1), 8, 6)
    sss.members_min_is(2, 7)
    joining = alter(attach(sss, 2, 1000, 600))
    assert joining is not None and joining.members_min == 2
    sss.alter_ended(joining, Applied(ids(1, 2), 9), 601)
    sss.alter_ended(older, Applied(ids(1), 8), 602)
    sss.observe(ids(1), 10, 603)
    assert alter(sss.members_min_is(1, 1_200)) is not None, "1 was announced before 2"
    assert sss.acked_end() == 0


# -- joining


def test_a_caught_up_slave_is_proposed_and_counted_from_then_on_r6() -> None:
    sss, wanted = joining()
    assert wanted == Alter(ids(1, 2), set_epoch=7, master_epoch=4) and "expand 2" in wanted.reason
    sss.log_grew(1100)
    assert sss.confirm_offset == 1000
    sss.acked(2, 1100, 3, 3)
    assert sss.confirm_offset == 1100


def test_under_constant_writes_a_slave_close_behind_is_counted_and_then_proposed_r22() -> None:
    sss = master(1)
    sss.connected(2, excluded=None)
    sss.log_grew(2000)
    assert alter(sss.acked(2, 1900, 90, 100)) is None  # had all of the log 10 ms ago
    sss.log_grew(2500)
    assert sss.confirm_offset == 2000
    wanted = alter(sss.acked(2, 2100, 100, 110))
    assert wanted is not None and wanted.members == ids(1, 2)


def test_a_joiner_that_does_not_catch_up_is_withdrawn() -> None:
    sss = master(1)
    sss.connected(2, excluded=None)
    sss.log_grew(2000)
    sss.acked(2, 1900, 90, 100)
    sss.log_grew(3000)
    assert sss.confirm_offset == 2000
    assert sss.tick(5_101) == [Confirmed(3000)]
    assert sss.union() == ids(1) and sss.confirm_offset == 3000


def test_a_joiner_that_falls_silent_is_withdrawn_after_a_second() -> None:
    sss = master(1)
    sss.connected(2, excluded=None)
    sss.log_grew(2000)
    assert alter(sss.acked(2, 1900, 90, 100)) is None and sss.union() == ids(1, 2)
    sss.log_grew(3000)
    for now_ms in (500, 1_000, 1_499):
        sss.tick(now_ms)
        assert sss.confirm_offset == 2000, "it may still join"
    assert Confirmed(3000) in sss.tick(1_500)
    assert sss.union() == ids(1)


def test_a_joiner_that_makes_progress_is_counted_longer() -> None:
    sss = master(1)
    sss.connected(2, excluded=None)
    sss.log_grew(5000)
    sss.acked(2, 1900, 90, 100)
    sss.log_grew(9000)
    for now_ms in range(500, LIMITS.join_ms_max, 500):
        sss.tick(now_ms)
        sss.acked(2, 1900 + now_ms // 10, None, now_ms + 1)
        assert sss.union() == ids(1, 2)
    sss.tick(LIMITS.join_ms_max + 101)
    assert sss.union() == ids(1), "but not for ever"


def test_a_new_member_without_progress_leaves_after_a_second() -> None:
    sss, wanted = joining()
    sss.log_grew(1100)
    sss.tick(500)
    sss.alter_ended(wanted, Applied(ids(1, 2), 8), 900)
    assert alter(sss.tick(1_000)) is None
    leaving = asked(sss, 1_500)
    assert leaving.members == ids(1) and "no progress" in leaving.reason
    assert sss.confirm_offset == 1000, "until the controllers have removed it"
    sss.alter_ended(leaving, Applied(ids(1), 9), 1_510)
    assert sss.confirm_offset == 1100


def test_a_member_that_was_caught_up_has_the_full_catch_up_limit() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, Applied(ids(1, 2), 8), 100)
    for now_ms in range(500, 10_000, 500):
        assert alter(sss.tick(now_ms)) is None, "it is caught up, so no progress is expected"
    sss.acked(2, 1000, 10_000, 10_000)
    sss.log_grew(1100)
    for now_ms in range(10_500, 25_000, 500):
        assert alter(sss.tick(now_ms)) is None, "it was caught up as a member"
    assert asked(sss, 25_001).members == ids(1)


def test_a_slave_far_behind_is_not_counted() -> None:
    sss = master(1)
    sss.connected(3, excluded=None)
    sss.acked(3, 700, None, 0)
    sss.connected(4, excluded=None)
    sss.acked(4, 900, 0, 1_001)
    assert ids(3, 4).isdisjoint(sss.union())


def test_a_slave_with_an_ack_below_the_epoch_start_does_not_join_s4() -> None:
    sss = master(1, log_end=400, epoch_start=500)
    attach(sss, 2, 400)
    assert sss.union() == ids(1)


def test_a_joiner_that_disconnects_before_the_proposal_is_withdrawn_r6() -> None:
    sss = master(1)
    sss.connected(2, excluded=None)
    sss.log_grew(1100)
    assert alter(sss.acked(2, 1000, 5, 5)) is None and sss.union() == ids(1, 2)
    sss.disconnected(2, 10)
    assert alter(sss.tick(10)) is None
    assert sss.union() == ids(1)


def test_a_set_without_the_master_is_never_proposed_s2() -> None:
    sss = master(1, 2, 3)
    assert asked(sss, 15_001).members == ids(1)


def test_a_learner_is_not_proposed() -> None:
    sss = master(1)
    assert alter(attach(sss, 2, 1000, learner=True)) is None and alter(sss.tick(1)) is None


# -- leaving


def test_a_member_that_lags_is_counted_until_its_removal_is_accepted_s5() -> None:
    sss = expanded(2)
    sss.log_grew(1100)
    assert alter(sss.tick(15_000)) is None
    wanted = asked(sss, 15_001)
    assert wanted.members == ids(1) and "not caught up for 15001 ms" in wanted.reason
    assert sss.union() == ids(1, 2) and sss.confirm_offset == 1000
    sss.alter_ended(wanted, Applied(ids(1), 9), 15_002)
    assert sss.confirm_offset == 1100


def test_a_short_disconnection_removes_no_member_s5_r24() -> None:
    sss = expanded(2)
    sss.disconnected(2, 100)
    assert alter(sss.tick(1_100)) is None
    attach(sss, 2, 1000, now_ms=1_100)
    assert alter(sss.tick(5_000)) is None


def test_a_long_disconnection_removes_a_member_before_the_catch_up_limit() -> None:
    sss = expanded(2)
    sss.disconnected(2, 100)
    wanted = asked(sss, 1_101)
    assert wanted.members == ids(1) and "disconnected for 1001 ms" in wanted.reason
    assert sss.union() == ids(1, 2)


def test_two_slaves_that_disconnect_together_leave_in_one_alter_v5() -> None:
    sss = expanded(2, 3)
    sss.disconnected(2, 100)
    sss.disconnected(3, 101)
    assert asked(sss, 2_000).members == ids(1)


def test_a_new_master_gives_members_time_to_connect() -> None:
    sss = master(1, 2)
    assert alter(sss.tick(15_000)) is None
    assert asked(sss, 15_001).members == ids(1)


def test_a_re_elected_master_continues_in_a_new_epoch_m5() -> None:
    sss = expanded(2)
    sss.disconnected(2, 0)
    former = asked(sss, 2_000)
    attach(sss, 2, 1000, 2_000)
    announced = Alter(ids(1, 2), set_epoch=11, master_epoch=5, same_members=True)
    assert sss.epoch_began(5, 1000, ids(1, 2), 11, 2_000) == [Confirmed(1000), announced]
    assert sss.union() == ids(1, 2) and sss.set_epoch == 11
    for outcome in (AlterRefused(), AlterUnknown(), Applied(ids(1), 12)):
        assert sss.alter_ended(former, outcome, 2_001) == [], "a proposal of the old epoch is ignored"
    sss.log_grew(1300)
    attach(sss, 2, 1300, 2_002)
    assert sss.confirm_offset == 1000, "the controllers may still elect a former member"
    sss.alter_ended(announced, Applied(ids(1, 2), 12), 2_003)
    assert sss.confirm_offset == 1300
    sss.disconnected(2, 3_000)
    assert asked(sss, 5_000) == Alter(ids(1), set_epoch=12, master_epoch=5)


def test_the_set_is_checked_at_the_start_and_then_regularly() -> None:
    sss = master(1)
    assert sss.begin(0) == [Confirmed(1000)]
    assert sss.next_tick_ms == 500
    sss.tick(600)
    assert sss.next_tick_ms == 1_100


def test_a_slave_that_is_neither_connected_nor_counted_is_forgotten() -> None:
    sss = expanded(2)
    for broker_id in range(3, 50):
        attach(sss, broker_id, 0)
        sss.disconnected(broker_id, 0)
    sss.disconnected(2, 0)
    sss.tick(LIMITS.not_caught_up_ms_max)
    assert len(sss._slaves) == 48
    sss.tick(LIMITS.not_caught_up_ms_max + 1)
    assert sss._slaves.keys() == {2}
