"""Proposals of a SyncStateSet whose fate is open: who counts meanwhile, and what is sent again. R and S numbers: the races and
invariants each test is for."""

from __future__ import annotations

import pytest

from ha.syncstateset import (
    Alter,
    AlterNotSent,
    AlterRefused,
    AlterUnknown,
    Applied,
    Confirmed,
    ReadSet,
)
from tests.unit.ha.syncstatesets import (
    alter,
    asked,
    attach,
    expanded,
    ids,
    joining,
)


def test_while_the_fate_of_an_alter_is_open_both_sets_are_counted_s3() -> None:
    sss = expanded(2, 3)
    sss.disconnected(2, 0)
    wanted = asked(sss, 2_000)
    assert wanted.members == ids(1, 3)
    assert sss.union() == ids(1, 2, 3)
    sss.log_grew(1100)
    sss.acked(3, 1100, 2_001, 2_001)
    assert sss.confirm_offset == 1000


def test_one_alter_is_in_flight_at_a_time_r7_r25() -> None:
    sss, _ = joining()
    assert alter(attach(sss, 3, 1000)) is None and alter(sss.tick(1_000)) is None
    assert sss.union() == ids(1, 2, 3), "who waits to be proposed is waited for"


def test_an_accepted_proposal_is_the_set_and_nothing_more_is_asked() -> None:
    sss, wanted = joining()
    assert sss.alter_ended(wanted, Applied(ids(1, 2), 8), 5) == [Confirmed(1000)]
    assert (sss.applied_members, sss.set_epoch) == (ids(1, 2), 8)
    assert sss.tick(600) == []


def test_a_definite_refusal_makes_the_union_smaller_again_r25() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.log_grew(1100)
    assert sss.confirm_offset == 1000
    assert sss.alter_ended(wanted, AlterRefused(), 10) == [Confirmed(1100)]
    assert sss.union() == ids(1) and sss.confirm_offset == 1100


def test_a_refused_proposal_is_made_again_no_sooner_than_the_retry() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterRefused(), 10)
    assert alter(sss.acked(2, 1000, 20, 20)) is None
    assert sss.next_tick_ms <= 510
    assert asked(sss, 510).members == ids(1, 2)


def test_a_proposal_that_was_certainly_not_sent_is_over() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    assert sss.alter_ended(wanted, AlterNotSent(), 10) == []
    assert sss.union() == ids(1)


def test_an_unknown_fate_keeps_the_union_until_the_set_is_looked_up_and_the_same_is_sent_again_s3_r7() -> (
    None
):
    sss, wanted = joining()
    attach(sss, 3, 1000)
    sss.disconnected(2, 5)
    assert sss.alter_ended(wanted, AlterUnknown(), 10) == [ReadSet()], "the union stays"
    assert sss.union() == ids(1, 2, 3)
    assert alter(sss.tick(100)) is None
    assert sss.observe(ids(1), 7, 110) == [wanted], "unchanged, whatever is wanted now"
    assert sss.observe(ids(1), 7, 120) == [], "one at a time"
    assert sss.union() == ids(1, 2, 3)


def test_an_unknown_fate_that_nobody_can_look_up_is_sent_again_all_the_same() -> None:
    """A poll that hangs on the leader that died with the alter, or is refused, held the union for seconds."""
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterUnknown(), 10)
    assert sss.next_tick_ms <= 510
    assert sss.tick(510) == [wanted]


def test_a_slave_that_could_not_enter_is_proposed_again_without_another_ack() -> None:
    """With too few in sync nothing is appended, so a level slave acks again with its next heartbeat only."""
    sss, wanted = joining()
    for fate, ended_ms in ((AlterNotSent(), 3_000), (AlterRefused(), 6_500)):
        assert alter(sss.tick(ended_ms - 500)) is None, "under way, long past the time that a joiner has"
        sss.alter_ended(wanted, fate, ended_ms)
        assert sss.union() == ids(1, 2)
        again = asked(sss, ended_ms + 500)
        assert again.members == ids(1, 2)
        wanted = again


def test_a_slave_that_fell_behind_while_it_could_not_enter_is_given_up() -> None:
    sss, wanted = joining()
    sss.log_grew(5000)
    sss.tick(5_001)
    assert sss.confirm_offset == 1000
    assert sss.alter_ended(wanted, AlterNotSent(), 6_000) == [Confirmed(5000)]
    assert sss.union() == ids(1)


def test_an_unknown_fate_is_settled_by_a_newer_set() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterUnknown(), 10)
    assert sss.observe(ids(1, 2), 8, 20) == [Confirmed(1000)]
    assert sss.union() == ids(1, 2) and alter(sss.tick(600)) is None


def test_a_refusal_of_the_same_proposal_does_not_settle_what_another_controller_may_yet_accept() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    sss.observe(ids(1), 7, 20)
    assert sss.alter_ended(wanted, AlterRefused(), 30) == [ReadSet()]
    assert sss.union() == ids(1, 2), "the first sending may be held up, and its controller lead again"


def test_it_settles_what_it_has_fenced_with_a_newer_epoch_of_the_set() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    sss.observe(ids(1), 7, 20)
    assert sss.alter_ended(wanted, AlterRefused(ids(1), 8), 30) == [Confirmed(1000)]
    assert sss.union() == ids(1) and sss.set_epoch == 8
    assert alter(sss.tick(31)) is None


def test_a_refused_slave_that_is_level_is_waited_for_and_asked_for_again_but_not_at_once() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterRefused(ids(1), 8), 30)
    assert sss.union() == ids(1, 2)
    assert alter(sss.acked(2, 1000, 100, 100)) is None
    assert asked(sss, 530) == Alter(ids(1, 2), 8, 4)


def test_refusals_in_a_row_are_asked_for_more_and_more_rarely() -> None:
    sss, wanted = joining()
    now_ms, waits = 0, []
    for _ in range(7):
        sss.alter_ended(wanted, AlterRefused(ids(1), wanted.set_epoch + 1), now_ms)
        refused_ms = now_ms
        while (again := alter(sss.acked(2, 1000, now_ms, now_ms))) is None:
            now_ms += 100
        waits.append(now_ms - refused_ms)
        wanted = again
    assert waits == [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]
    sss.alter_ended(wanted, Applied(ids(1, 2), wanted.set_epoch + 1), now_ms)
    sss.disconnected(2, now_ms)
    assert asked(sss, now_ms + 2_000).members == ids(1)


def test_who_may_have_entered_and_lead_now_is_waited_for_until_a_newer_epoch_is_told() -> None:
    """Cluster 1724583307640846: the proposal was accepted unheard, who entered by it was elected, and the next sending of it
    was refused, for another one led; then its master acknowledged alone what nobody else held."""
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    confirmed = sss.confirm_offset
    resent = asked(sss, 510)
    assert sss.alter_ended(resent, AlterUnknown(), 520) == [ReadSet()], "2002: the current leader is 2"
    assert sss.log_grew(5_000) == []
    assert sss.union() == ids(1, 2) and sss.confirm_offset == confirmed
    sss.epoch_began(6, 1_000, ids(1), 9, 600)
    assert sss.union() == ids(1)


def test_a_second_sending_that_reached_nobody_says_nothing_about_the_first() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    sss.observe(ids(1), 7, 20)
    assert sss.alter_ended(wanted, AlterNotSent(), 30) == [ReadSet()]
    assert sss.union() == ids(1, 2)
    assert sss.observe(ids(1), 7, 40) == [wanted], "and may go at once: no controller has seen it"


def test_a_proposal_that_may_have_been_judged_says_so_when_it_is_sent_again() -> None:
    sss, wanted = joining()
    assert not wanted.again
    sss.alter_ended(wanted, AlterUnknown(), 10)
    resent = asked(sss, 510)
    assert resent == wanted and resent.again
    sss.alter_ended(resent, AlterRefused(ids(1), 8), 520)
    assert not asked(sss, 1_020).again


def test_the_same_proposal_is_sent_again_and_again_but_not_in_a_tight_loop() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterUnknown(), 10)
    assert sss.observe(ids(1), 7, 11) == [wanted], "at once the first time"
    sss.alter_ended(wanted, AlterUnknown(), 12)
    assert sss.observe(ids(1), 7, 13) == []
    assert sss.next_tick_ms <= 512
    assert sss.tick(512) == [wanted]


def test_an_alter_that_was_accepted_with_no_newer_set_has_no_known_fate() -> None:
    sss, wanted = joining()
    assert sss.alter_ended(wanted, Applied(ids(1, 2), 7), 5) == [ReadSet()]
    assert sss.union() == ids(1, 2) and sss.applied_members == ids(1)


@pytest.mark.parametrize(
    "fate",
    [
        Applied(ids(1), 8),
        Applied(ids(1, 2), 9),
        Applied(ids(1, 2, 77), 8),
        Applied(ids(1, 2), 2**31 - 1),
        Applied(ids(1, 2), 7),
        AlterRefused(ids(1, 77), 8),
        AlterRefused(ids(2), 8),
        AlterRefused(ids(1), 2**31 - 1),
        AlterRefused(frozenset(), 8),
    ],
)
def test_an_answer_that_no_controller_gives_is_not_believed(fate: Applied | AlterRefused) -> None:
    sss, wanted = joining()
    assert wanted.set_epoch == 7 and sss.why_untrue(wanted, fate) is not None


def test_what_controllers_answer_is_believed_also_where_members_were_forgotten() -> None:
    sss = expanded(2, 3)
    sss.disconnected(2, 0)
    wanted = asked(sss, 2_000)
    for fate in (
        Applied(ids(1, 3), 9),
        AlterRefused(ids(1, 2, 3), 9),
        AlterRefused(ids(1, 3), 9),
        AlterRefused(),
        AlterUnknown(),
    ):
        assert sss.why_untrue(wanted, fate) is None
    sss.observe(ids(1, 2, 3, 4), 10, 2_001)
    assert sss.why_untrue(wanted, AlterRefused(ids(1, 2, 3), 9)) is None, "an older one, of no effect"


def test_a_refusal_that_comes_after_the_set_was_read_changes_nothing() -> None:
    sss, wanted = joining()
    sss.observe(ids(1, 2), 8, 0)
    assert sss.alter_ended(wanted, AlterRefused(), 1) == []
    assert sss.applied_members == ids(1, 2)


def test_an_older_set_and_a_set_without_the_master_are_ignored() -> None:
    sss = expanded(2)
    assert sss.observe(ids(1), 7, 0) == sss.observe(ids(1), 3, 0) == sss.observe(ids(2, 3), 9, 0) == []
    assert sss.applied_members == ids(1, 2)
