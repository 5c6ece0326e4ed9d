"""A set of brokers, or an empty world, for each test that requests one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftstore import member
from simulation.kernel.world import World
from tests.cluster.groupset import small_ledger
from tests.cluster.served import Served


@pytest.fixture(autouse=True)
def small_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of Raft-mode sets use small index files."""
    monkeypatch.setattr(member, "ledger_settings", small_ledger)


@pytest.fixture
def served() -> Iterator[Served]:
    with World(31) as world:
        yield Served(world)


@pytest.fixture
def world() -> Iterator[World]:
    with World(31) as made:
        yield made
