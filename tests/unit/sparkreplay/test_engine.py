"""Where work is done: here, or in processes as soon as these pay."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from sparkreplay.engine.engine import LocalEngine
from sparkreplay.errors import EngineFailed, LogCorrupted


def places(engine: LocalEngine, work: Callable[[int], int], count: int) -> dict[int, int]:
    found: dict[int, int] = {}
    engine.run(work, range(count), found.__setitem__)
    return found


def process(number: int) -> int:
    return os.getpid()


def test_work_is_spread_over_the_processes_that_were_asked_for() -> None:
    found = places(LocalEngine(2), process, 12)
    assert sorted(found) == list(range(12))
    assert os.getpid() not in found.values() and 1 <= len(set(found.values())) <= 2


def test_short_work_stays_here_and_long_work_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkreplay.engine.engine.cores", lambda: 2)
    assert set(places(LocalEngine(), process, 5).values()) == {os.getpid()}
    seconds = iter([0.0, 0.0, 3.0])
    found = places(LocalEngine(now_s=lambda: next(seconds)), process, 5)
    assert found.pop(0) == os.getpid() and os.getpid() not in found.values() and len(found) == 4


def finds_damage(number: int) -> int:
    if number == 3:
        raise LogCorrupted("/log", 7, "bad")
    return number


def test_what_a_process_finds_wrong_keeps_its_facts() -> None:
    with pytest.raises(LogCorrupted, match="at physical offset 7: bad") as caught:
        places(LocalEngine(2), finds_damage, 5)
    assert (caught.value.path, caught.value.offset) == ("/log", 7)


def dies(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(EngineFailed, match="died"):
        places(LocalEngine(2), dies, 4)


def has_a_bug(number: int) -> int:
    return [][number]


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="IndexError"):
        places(LocalEngine(2), has_a_bug, 4)
