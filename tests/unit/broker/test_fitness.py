from __future__ import annotations

from broker.role.leaderhealth import HealthProblem, LeaderHealth


def test_a_trouble_counts_when_it_has_lasted_without_a_break() -> None:
    fitness = LeaderHealth(5_000)
    fitness.note(HealthProblem.DISK, True, 1_000)
    fitness.note(HealthProblem.DISK, True, 5_000)
    assert fitness.why_unfit(5_999) == ""
    assert fitness.why_unfit(6_000) == "its disk takes no messages"
    fitness.note(HealthProblem.DISK, False, 6_100)
    fitness.note(HealthProblem.DISK, True, 6_200)
    assert fitness.why_unfit(11_199) == ""


def test_several_are_told_together_and_end_one_by_one() -> None:
    fitness = LeaderHealth(0)
    fitness.note(HealthProblem.SYNC, True, 10)
    fitness.note(HealthProblem.ROLE, True, 10)
    assert fitness.why_unfit(10) == "it could not take the role, its disk hangs"
    fitness.note(HealthProblem.ROLE, False, 20)
    assert fitness.why_unfit(20) == "its disk hangs"


def test_who_only_has_damaged_records_could_lead_for_want_of_a_better_one() -> None:
    fitness = LeaderHealth(5_000)
    fitness.note(HealthProblem.ROT, True, 0)
    assert not fitness.could_lead(4_999)
    assert fitness.could_lead(5_000) and fitness.why_unfit(5_000) == "records of its log are damaged"
    fitness.note(HealthProblem.ROLE, True, 1_000)
    assert fitness.could_lead(5_999), "that may pass"
    assert not fitness.could_lead(6_000)
    fitness.note(HealthProblem.ROLE, False, 7_000)
    fitness.stops()
    assert not fitness.could_lead(7_000)


def test_who_cannot_read_what_is_to_be_listed_next_cannot_lead() -> None:
    """Messages would come into no queue, and a slave cannot begin where its undispatched log cannot be read."""
    fitness = LeaderHealth(5_000)
    fitness.note(HealthProblem.READ, True, 0)
    assert fitness.why_unfit(4_999) == ""
    assert fitness.why_unfit(5_000) == "its disk does not give its log" and not fitness.could_lead(5_000)
    fitness.note(HealthProblem.READ, False, 6_000)
    assert fitness.why_unfit(6_000) == ""


def test_who_failed_to_begin_as_master_and_follows_since_could_lead_for_want_of_a_better_one() -> None:
    """Else a set stands still for good where the other one's disk is full, for only who leads shows that it can."""
    fitness = LeaderHealth(5_000)
    for trouble in (HealthProblem.LEAD, HealthProblem.ROLE):
        fitness.note(trouble, True, 0)
    assert not fitness.could_lead(5_000), "while it tries and fails another damaged one leads"
    fitness.note(HealthProblem.ROLE, False, 6_000)
    assert fitness.why_unfit(6_000) == "it could not begin as master" and fitness.could_lead(6_000)
    fitness.note(HealthProblem.ROT, True, 6_000)
    assert fitness.could_lead(11_000)
    fitness.note(HealthProblem.DISK, True, 11_000)
    assert not fitness.could_lead(16_000)
