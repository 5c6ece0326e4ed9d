"""Alters of a SyncStateSet with an open outcome: the members counted meanwhile, and repeats.
R and S numbers: the races and invariants of each test."""

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


def test_both_sets_are_counted_while_an_alter_is_open_s3() -> None:
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
    assert sss.union() == ids(1, 2, 3), "a joiner counts before it is proposed"


def test_an_accepted_proposal_becomes_the_set() -> None:
    sss, wanted = joining()
    assert sss.alter_ended(wanted, Applied(ids(1, 2), 8), 5) == [Confirmed(1000)]
    assert (sss.applied_members, sss.set_epoch) == (ids(1, 2), 8)
    assert sss.tick(600) == []


def test_a_definite_refusal_shrinks_the_union_r25() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.log_grew(1100)
    assert sss.confirm_offset == 1000
    assert sss.alter_ended(wanted, AlterRefused(), 10) == [Confirmed(1100)]
    assert sss.union() == ids(1) and sss.confirm_offset == 1100


def test_a_refused_proposal_is_repeated_only_after_the_retry_interval() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterRefused(), 10)
    assert alter(sss.acked(2, 1000, 20, 20)) is None
    assert sss.next_tick_ms <= 510
    assert asked(sss, 510).members == ids(1, 2)


def test_a_proposal_that_was_not_sent_is_closed() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    assert sss.alter_ended(wanted, AlterNotSent(), 10) == []
    assert sss.union() == ids(1)


def test_an_unknown_outcome_keeps_the_union_and_the_same_alter_is_sent_again_s3_r7() -> None:
    sss, wanted = joining()
    attach(sss, 3, 1000)
    sss.disconnected(2, 5)
    assert sss.alter_ended(wanted, AlterUnknown(), 10) == [ReadSet()], "the union stays"
    assert sss.union() == ids(1, 2, 3)
    assert alter(sss.tick(100)) is None
    assert sss.observe(ids(1), 7, 110) == [wanted], "the same alter, although another set is wanted now"
    assert sss.observe(ids(1), 7, 120) == [], "one at a time"
    assert sss.union() == ids(1, 2, 3)


def test_an_unknown_outcome_is_sent_again_also_without_a_read_set() -> None:
    """A poll that hangs on the dead leader of the alter, or is refused, once kept the union for seconds."""
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterUnknown(), 10)
    assert sss.next_tick_ms <= 510
    assert sss.tick(510) == [wanted]


def test_a_slave_that_could_not_join_is_proposed_again_without_another_ack() -> None:
    """With too few members nothing is appended, so a caught-up slave acks again only with its next
    heartbeat."""
    sss, wanted = joining()
    for outcome, ended_ms in ((AlterNotSent(), 3_000), (AlterRefused(), 6_500)):
        assert alter(sss.tick(ended_ms - 500)) is None, "in flight, long after the time limit of a joiner"
        sss.alter_ended(wanted, outcome, ended_ms)
        assert sss.union() == ids(1, 2)
        again = asked(sss, ended_ms + 500)
        assert again.members == ids(1, 2)
        wanted = again


def test_a_joiner_that_fell_behind_while_not_accepted_is_withdrawn() -> None:
    sss, wanted = joining()
    sss.log_grew(5000)
    sss.tick(5_001)
    assert sss.confirm_offset == 1000
    assert sss.alter_ended(wanted, AlterNotSent(), 6_000) == [Confirmed(5000)]
    assert sss.union() == ids(1)


def test_an_unknown_outcome_is_settled_by_a_newer_set() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterUnknown(), 10)
    assert sss.observe(ids(1, 2), 8, 20) == [Confirmed(1000)]
    assert sss.union() == ids(1, 2) and alter(sss.tick(600)) is None


def test_a_refused_repeat_does_not_settle_the_first_alter() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    sss.observe(ids(1), 7, 20)
    assert sss.alter_ended(wanted, AlterRefused(), 30) == [ReadSet()]
    assert sss.union() == ids(1, 2), "the first alter may be delayed, and its controller may lead again"


def test_a_refusal_with_a_newer_set_epoch_settles_the_first_alter() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    sss.observe(ids(1), 7, 20)
    assert sss.alter_ended(wanted, AlterRefused(ids(1), 8), 30) == [Confirmed(1000)]
    assert sss.union() == ids(1) and sss.set_epoch == 8
    assert alter(sss.tick(31)) is None


def test_a_refused_caught_up_slave_is_proposed_again_after_the_retry_interval() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterRefused(ids(1), 8), 30)
    assert sss.union() == ids(1, 2)
    assert alter(sss.acked(2, 1000, 100, 100)) is None
    assert asked(sss, 530) == Alter(ids(1, 2), 8, 4)


def test_repeated_refusals_back_off() -> None:
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


def test_a_slave_that_may_be_the_new_master_is_counted_until_a_newer_epoch() -> None:
    """Cluster seed 1724583307640846: the reply to an accepted alter was lost, the new member was elected, and
    the repeat was refused because another broker led; then the old master acknowledged data that no other
    broker held."""
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    confirmed = sss.confirm_offset
    resent = asked(sss, 510)
    assert sss.alter_ended(resent, AlterUnknown(), 520) == [ReadSet()], "2002: the current master is 2"
    assert sss.log_grew(5_000) == []
    assert sss.union() == ids(1, 2) and sss.confirm_offset == confirmed
    sss.epoch_began(6, 1_000, ids(1), 9, 600)
    assert sss.union() == ids(1)


def test_a_repeat_that_was_not_sent_does_not_settle_the_first_alter() -> None:
    sss, wanted = joining()
    sss.disconnected(2, 5)
    sss.alter_ended(wanted, AlterUnknown(), 10)
    sss.observe(ids(1), 7, 20)
    assert sss.alter_ended(wanted, AlterNotSent(), 30) == [ReadSet()]
    assert sss.union() == ids(1, 2)
    assert sss.observe(ids(1), 7, 40) == [wanted], "it may be sent at once: no controller has seen it"


def test_a_repeated_alter_is_marked_as_a_repeat() -> None:
    sss, wanted = joining()
    assert not wanted.again
    sss.alter_ended(wanted, AlterUnknown(), 10)
    resent = asked(sss, 510)
    assert resent == wanted and resent.again
    sss.alter_ended(resent, AlterRefused(ids(1), 8), 520)
    assert not asked(sss, 1_020).again


def test_a_repeated_alter_is_sent_at_most_once_per_retry_interval() -> None:
    sss, wanted = joining()
    sss.alter_ended(wanted, AlterUnknown(), 10)
    assert sss.observe(ids(1), 7, 11) == [wanted], "at once the first time"
    sss.alter_ended(wanted, AlterUnknown(), 12)
    assert sss.observe(ids(1), 7, 13) == []
    assert sss.next_tick_ms <= 512
    assert sss.tick(512) == [wanted]


def test_an_accepted_alter_without_a_newer_set_has_an_unknown_outcome() -> None:
    sss, wanted = joining()
    assert sss.alter_ended(wanted, Applied(ids(1, 2), 7), 5) == [ReadSet()]
    assert sss.union() == ids(1, 2) and sss.applied_members == ids(1)


@pytest.mark.parametrize(
    "outcome",
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
def test_an_impossible_response_to_an_alter_is_rejected(outcome: Applied | AlterRefused) -> None:
    sss, wanted = joining()
    assert wanted.set_epoch == 7 and sss.why_untrue(wanted, outcome) is not None


def test_a_response_is_accepted_also_when_members_were_cleaned() -> None:
    sss = expanded(2, 3)
    sss.disconnected(2, 0)
    wanted = asked(sss, 2_000)
    for outcome in (
        Applied(ids(1, 3), 9),
        AlterRefused(ids(1, 2, 3), 9),
        AlterRefused(ids(1, 3), 9),
        AlterRefused(),
        AlterUnknown(),
    ):
        assert sss.why_untrue(wanted, outcome) is None
    sss.observe(ids(1, 2, 3, 4), 10, 2_001)
    assert sss.why_untrue(wanted, AlterRefused(ids(1, 2, 3), 9)) is None, "an older response has no effect"


def test_a_refusal_after_a_read_of_the_set_changes_nothing() -> None:
    sss, wanted = joining()
    sss.observe(ids(1, 2), 8, 0)
    assert sss.alter_ended(wanted, AlterRefused(), 1) == []
    assert sss.applied_members == ids(1, 2)


def test_an_older_set_and_a_set_without_the_master_are_ignored() -> None:
    sss = expanded(2)
    assert sss.observe(ids(1), 7, 0) == sss.observe(ids(1), 3, 0) == sss.observe(ids(2, 3), 9, 0) == []
    assert sss.applied_members == ids(1, 2)
