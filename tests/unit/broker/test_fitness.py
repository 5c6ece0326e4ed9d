from __future__ import annotations

from broker.role.leaderhealth import HealthProblem, LeaderHealth


def test_a_health_problem_counts_after_it_lasted_without_a_break() -> None:
    health = LeaderHealth(5_000)
    health.note(HealthProblem.DISK, True, 1_000)
    health.note(HealthProblem.DISK, True, 5_000)
    assert health.why_unfit(5_999) == ""
    assert health.why_unfit(6_000) == "its disk takes no messages"
    health.note(HealthProblem.DISK, False, 6_100)
    health.note(HealthProblem.DISK, True, 6_200)
    assert health.why_unfit(11_199) == ""


def test_health_problems_are_reported_together_and_end_one_by_one() -> None:
    health = LeaderHealth(0)
    health.note(HealthProblem.SYNC, True, 10)
    health.note(HealthProblem.ROLE, True, 10)
    assert health.why_unfit(10) == "it could not take the role, its disk hangs"
    health.note(HealthProblem.ROLE, False, 20)
    assert health.why_unfit(20) == "its disk hangs"


def test_a_broker_with_damaged_records_only_can_still_lead() -> None:
    health = LeaderHealth(5_000)
    health.note(HealthProblem.ROT, True, 0)
    assert not health.could_lead(4_999)
    assert health.could_lead(5_000) and health.why_unfit(5_000) == "records of its log are damaged"
    health.note(HealthProblem.ROLE, True, 1_000)
    assert health.could_lead(5_999), "the new problem may pass"
    assert not health.could_lead(6_000)
    health.note(HealthProblem.ROLE, False, 7_000)
    health.stops()
    assert not health.could_lead(7_000)


def test_a_broker_that_cannot_read_its_undispatched_log_cannot_lead() -> None:
    """Messages would reach no queue, and a slave must read its undispatched log to begin as master."""
    health = LeaderHealth(5_000)
    health.note(HealthProblem.READ, True, 0)
    assert health.why_unfit(4_999) == ""
    assert health.why_unfit(5_000) == "its disk does not give its log" and not health.could_lead(5_000)
    health.note(HealthProblem.READ, False, 6_000)
    assert health.why_unfit(6_000) == ""


def test_a_broker_that_failed_to_begin_as_master_and_now_follows_can_still_lead() -> None:
    """Otherwise a set whose other broker has a full disk gets no master: only leading clears the problem."""
    health = LeaderHealth(5_000)
    for problem in (HealthProblem.LEAD, HealthProblem.ROLE):
        health.note(problem, True, 0)
    assert not health.could_lead(5_000), "while it keeps failing, another damaged one leads"
    health.note(HealthProblem.ROLE, False, 6_000)
    assert health.why_unfit(6_000) == "it could not begin as master" and health.could_lead(6_000)
    health.note(HealthProblem.ROT, True, 6_000)
    assert health.could_lead(11_000)
    health.note(HealthProblem.DISK, True, 11_000)
    assert not health.could_lead(16_000)
