"""Counts what a run of tests covered: outcomes, skips with their reasons, and what tests add by `tally` (seeds, faults).

A run that has an end (BEGIN_UNTIL_S, of the monotonic clock) begins no test behind it and names those that it did not reach."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nativepath import presence

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
"""How fast an example is made or runs says nothing on a busy machine."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell ignores it in what it starts in the background, and what we start would inherit that."""

COUNTS: Counter[str] = Counter()
SKIPS: Counter[str] = Counter()
UNREACHED: list[str] = []
BEGIN_UNTIL_S = float(os.environ.get("BEGIN_UNTIL_S", "inf"))


@pytest.fixture
def tally() -> Callable[[str, int], None]:
    """Adds to a total that `scripts/test` prints at its end, for example tally("seeds", 20)."""

    def add(what: str, count: int) -> None:
        COUNTS[what] += count

    return add


@pytest.fixture
def pure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made in the test does without the compiled module."""
    monkeypatch.setattr(presence, "native", None)


@pytest.fixture(params=["pure", "compiled"])
def way(request: pytest.FixtureRequest) -> str:
    """A test that has it runs without the compiled module, and with it where it was built."""
    if request.param == "pure":
        request.getfixturevalue("pure")
    elif presence.native is None:
        pytest.skip(f"the compiled module is {presence.why_not}")
    return str(request.param)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no look for cycles that ended goes through it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """True: the test counts as done with, so nobody else runs it."""
    if time.monotonic() < BEGIN_UNTIL_S:
        return None
    UNREACHED.append(item.nodeid)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.skipped:
        COUNTS["skipped"] += 1
        SKIPS[str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)] += 1
    elif report.when == "call":
        COUNTS["passed" if report.passed else "failed"] += 1
    elif report.failed:
        COUNTS["failed"] += 1
    return report


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    COUNTS["deselected"] += len(items)


def pytest_sessionfinish() -> None:
    path = os.environ.get("TALLY_FILE")
    if path:
        Path(path).write_text(json.dumps({"counts": COUNTS, "skips": SKIPS, "unreached": UNREACHED}))
