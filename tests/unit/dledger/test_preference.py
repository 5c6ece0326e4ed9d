"""Transfers of leadership to a preferred member, and their back-off."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dledger import ledger
from dledger.ledger import BACK_OFF_MS_MAX, BACK_OFF_MS_MIN, LED_MS, Trials, yield_to_preferred
from dledger.raft.progress import Progress
from tests.support.doubles import ManualClock


def test_the_back_off_doubles_each_time_a_preferred_member_gives_up_leadership() -> None:
    trials, now_ms, waits = Trials(), 0, []
    for _ in range(6):
        trials.gave("n0", now_ms)
        now_ms += 3_000
        trials.leads(now_ms)
        began_ms = now_ms
        while not trials.allowed(["n0"], now_ms):
            now_ms += 1_000
            trials.leads(now_ms)
        waits.append(now_ms - began_ms)
    assert waits == [BACK_OFF_MS_MIN, 10_000, 20_000, 40_000, BACK_OFF_MS_MAX, BACK_OFF_MS_MAX]


def test_a_member_that_led_for_a_minute_resets_its_back_off() -> None:
    trials = Trials()
    for at_ms in (0, 10_000, 30_000):
        trials.gave("n0", at_ms)
        trials.leads(at_ms + 1_000)
    trials.gave("n0", 60_000)
    trials.leads(60_000 + LED_MS)
    assert trials.allowed(["n0", "n1"], 60_000 + LED_MS) == ["n1"]
    assert trials.allowed(["n0", "n1"], 60_000 + LED_MS + BACK_OFF_MS_MIN) == ["n0", "n1"]


def test_a_preferred_member_that_cannot_lead_costs_few_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preferred member gives up leadership three seconds after each transfer."""
    clock, given = ManualClock(), []
    node: Any = SimpleNamespace(
        clock=clock,
        self_id="n1",
        is_active=True,
        settings=SimpleNamespace(election_timeout_min_ms=1_000),
        core=SimpleNamespace(progress={"n0": Progress(8, match_index=7)}, committed_index=7),
    )

    async def passes(seconds: float) -> None:
        clock.ms += int(seconds * 1_000)
        node.core.progress["n0"].heard_ms = clock.ms
        if clock.ms > 120_000:
            raise asyncio.CancelledError

    async def hand_over(target: str) -> None:
        given.append(clock.ms)
        clock.ms += 3_000

    monkeypatch.setattr(ledger.asyncio, "sleep", passes)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(yield_to_preferred(node, ["n0"], hand_over))
    assert given == [1_000, 10_000, 24_000, 48_000, 92_000]
