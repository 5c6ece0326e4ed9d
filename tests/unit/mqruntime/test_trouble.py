"""What goes wrong again and again is told without a storm."""

from __future__ import annotations

from mqruntime.trouble import Trouble


def test_a_lasting_trouble_is_told_at_first_and_then_each_reminder() -> None:
    trouble = Trouble(remind_ms=1000)
    told = [now_ms for now_ms in range(0, 3000, 100) if trouble.met("refused", now_ms)]
    assert told == [0, 1000, 2000]


def test_another_reason_is_told_at_once() -> None:
    trouble = Trouble()
    assert [trouble.met(why, 0) for why in ("refused", "refused", "no leader", "no leader")] == [1, 0, 1, 0]


def test_the_end_is_told_once_with_how_long_it_lasted() -> None:
    trouble = Trouble()
    assert trouble.over(5) is None
    trouble.met("refused", 10)
    trouble.met("no leader", 20)
    assert (trouble.over(40), trouble.over(50)) == (30, None)
    assert trouble.met("refused", 60)
