"""Bounded waits for a condition."""

from __future__ import annotations

import asyncio

import pytest

from localcluster.waiting import NotYet, WaitExpired, wait_for
from scripts.peers.waits import WAIT_MS


def test_a_wait_returns_the_first_value_of_the_probe() -> None:
    asked: list[int] = []

    async def probe() -> str:
        asked.append(1)
        if len(asked) < 2:
            raise NotYet("once more")
        return "there"

    assert asyncio.run(wait_for("it", probe, WAIT_MS)) == "there"
    assert len(asked) == 2


def test_an_expired_wait_reports_the_last_observation() -> None:
    async def probe() -> None:
        raise NotYet("2 of 3 brokers")

    with pytest.raises(WaitExpired, match=r"three brokers: not within 0.03 s; last seen: 2 of 3 brokers"):
        asyncio.run(wait_for("three brokers", probe, 30))


def test_a_probe_that_hangs_does_not_hang_the_wait() -> None:
    async def probe() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(WaitExpired, match="nothing yet"):
        asyncio.run(wait_for("it", probe, 20))


def test_another_error_of_a_probe_ends_the_wait() -> None:
    async def probe() -> None:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        asyncio.run(wait_for("it", probe, WAIT_MS))
