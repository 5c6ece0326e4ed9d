"""A seed finds a planted bug if it fails with the bug and passes without it."""

from __future__ import annotations

import pytest

from scripts import refind
from simulation.kernel.features import NOTHING_ASKED, Asked
from simulation.kernel.foundby import NEAR, honest_find
from simulation.kernel.plants import Bugs


class Toy:
    """A world whose seeds `find` its bug, or always fail; `runs` are the requested ones."""

    def __init__(self, find: set[int], always: set[int]) -> None:
        self.find = find
        self.always = always
        self.runs: list[tuple[int, str | None]] = []

    def __call__(self, seed: int, bug: str | None, asked: Asked = NOTHING_ASKED) -> None:
        self.runs.append((seed, bug))
        if seed in self.always or (bug and seed in self.find):
            raise AssertionError(f"seed {seed}")


def test_a_recorded_seed_is_kept_after_a_run_without_the_bug() -> None:
    toy = Toy(find={7}, always=set())
    assert honest_find(toy, "bug", 7, 20, frozenset()) == (7, ())
    assert toy.runs == [(7, "bug")]


def test_a_recorded_seed_that_fails_without_the_bug_finds_nothing() -> None:
    toy = Toy(find={7, 9}, always={7})
    assert honest_find(toy, "bug", 7, 20, frozenset({7})) == (9, ())


def test_a_searched_seed_that_fails_without_the_bug_is_reported_and_skipped() -> None:
    toy = Toy(find={15}, always={8, 3})
    found = honest_find(toy, "bug", 7, 20, frozenset())
    assert found.seed == 15
    assert [alarm.seed for alarm in found.alarms] == [8, 3]


def test_a_bug_that_only_failing_seeds_find_is_not_found() -> None:
    toy = Toy(find=set(), always={2})
    found = honest_find(toy, "bug", 7, 20, frozenset())
    assert found.seed is None
    assert len(toy.runs) == 20 + 1, "each seed once, and the one that fails once more, without the bug"
    assert NEAR < 20


def test_a_seed_that_fails_without_a_bug_is_reported_once_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = Toy(find={7}, always={5})
    monkeypatch.setitem(refind.WORLDS, "groups", toy)
    alarms = refind.Alarms()
    for seed in (5, 7, 5):
        run, error = refind.alone(refind.Alone("groups", seed, NOTHING_ASKED))
        if error is not None:
            alarms.found(run, error)
    assert alarms.of("groups", NOTHING_ASKED) == {5} and not alarms.of("pairs", NOTHING_ASKED)
    assert capsys.readouterr().out == (
        "groups seed 5 fails WITHOUT A BUG: AssertionError: seed 5"
        " | again: scripts/prove --only groups --first 5 --count 1\n"
    )


def test_a_bug_can_only_replace_an_existing_attribute() -> None:
    with pytest.raises(AttributeError, match="gone"):
        Bugs().bug("planted in what was renamed", dict, "gone")
