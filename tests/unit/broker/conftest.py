"""A set of brokers for each test that asks one, or a world to make one in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftstore import member
from simulation.kernel.world import World
from tests.unit.broker.groupset import small_ledger
from tests.unit.broker.served import Served


@pytest.fixture(autouse=True)
def small_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of members of Raft-mode sets."""
    monkeypatch.setattr(member, "ledger_settings", small_ledger)


@pytest.fixture
def served() -> Iterator[Served]:
    with World(31) as world:
        yield Served(world)


@pytest.fixture
def world() -> Iterator[World]:
    with World(31) as made:
        yield made
