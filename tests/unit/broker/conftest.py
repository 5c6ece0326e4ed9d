"""A set of brokers for each test that asks one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.kernel.world import World
from tests.unit.broker.served import Served


@pytest.fixture
def served() -> Iterator[Served]:
    with World(31) as world:
        yield Served(world)
