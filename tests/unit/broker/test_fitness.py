from __future__ import annotations

from broker.role.fitness import Fitness, Trouble


def test_a_trouble_counts_when_it_has_lasted_without_a_break() -> None:
    fitness = Fitness(5_000)
    fitness.note(Trouble.DISK, True, 1_000)
    fitness.note(Trouble.DISK, True, 5_000)
    assert fitness.why_unfit(5_999) == ""
    assert fitness.why_unfit(6_000) == "its disk takes no messages"
    fitness.note(Trouble.DISK, False, 6_100)
    fitness.note(Trouble.DISK, True, 6_200)
    assert fitness.why_unfit(11_199) == ""


def test_several_are_told_together_and_end_one_by_one() -> None:
    fitness = Fitness(0)
    fitness.note(Trouble.SYNC, True, 10)
    fitness.note(Trouble.ROLE, True, 10)
    assert fitness.why_unfit(10) == "it could not take the role, its disk hangs"
    fitness.note(Trouble.ROLE, False, 20)
    assert fitness.why_unfit(20) == "its disk hangs"


def test_who_only_has_damaged_records_could_lead_for_want_of_a_better_one() -> None:
    fitness = Fitness(5_000)
    fitness.note(Trouble.ROT, True, 0)
    assert not fitness.could_lead(4_999)
    assert fitness.could_lead(5_000) and fitness.why_unfit(5_000) == "records of its log are damaged"
    fitness.note(Trouble.LEAD, True, 1_000)
    assert fitness.could_lead(5_999), "that may pass"
    assert not fitness.could_lead(6_000)
    fitness.note(Trouble.LEAD, False, 7_000)
    fitness.stops()
    assert not fitness.could_lead(7_000)
