"""A set of brokers for each test that asks one, or a world to make one in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.kernel.world import World
from tests.unit.broker.served import Served


@pytest.fixture
def served() -> Iterator[Served]:
    with World(31) as world:
        yield Served(world)


@pytest.fixture
def world() -> Iterator[World]:
    with World(31) as made:
        yield made
