"""A set of brokers for each test that asks one, or a world to make one in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dledger.settings import DLedgerSettings
from raftstore import member
from simulation.kernel.world import World
from tests.unit.broker.served import Served

INDEX_FILE_BYTES = 32 * 4096
"""A simulated disk holds all bytes of a file twice, and an index file of a real member has 160 MiB."""

ledger_settings = member.ledger_settings


def small_ledger(*store: Any, **besides: Any) -> DLedgerSettings:
    return replace(ledger_settings(*store, **besides), index_file_bytes=INDEX_FILE_BYTES)


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
