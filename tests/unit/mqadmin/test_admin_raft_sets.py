"""A set in Raft mode, as its brokers tell of it."""

from __future__ import annotations

import asyncio
from typing import Any

from mqadmin.calls.raftsets import state_of
from mqadmin.errors import ServerUnreachable
from mqadmin.replies import BrokerEpochs, EpochRange, HALink, HAStatus


class Brokers:
    """What each address says: its own id, its role's and its term; `levels` has whom a master calls level, or behind."""

    def __init__(self, told: dict[str, tuple[int, int, int]], levels: dict[int, bool]) -> None:
        self._told = told
        self._levels = levels

    def _of(self, address: str) -> tuple[int, int, int]:
        if address not in self._told:
            raise ServerUnreachable(address, "asked", "gone")
        return self._told[address]

    async def broker_epochs(self, address: str) -> BrokerEpochs:
        _, role_id, term = self._of(address)
        return BrokerEpochs("c", "b", role_id, 90, (EpochRange(term, 0, 90),))

    async def runtime_info(self, address: str) -> dict[str, str]:
        return {"replicaId": str(self._of(address)[0])}

    async def ha_status(self, address: str) -> HAStatus:
        links = [
            HALink(f"m{each}", 90, 0, level, 0, 90, broker_id=each) for each, level in self._levels.items()
        ]
        return HAStatus(True, 90, 1, tuple(links), None, 90, 0, 0, 0, 0)


def state(brokers: Brokers, members: dict[str, int | None]) -> Any:
    return asyncio.run(state_of(brokers, "b", members))  # type: ignore[arg-type]


def test_who_serves_in_the_highest_term_is_master_and_tells_who_is_level() -> None:
    brokers = Brokers({"a": (1, 0, 4), "b": (2, 0, 5), "c": (3, 3, 5)}, {1: False, 3: True})
    found = state(brokers, {"a": None, "b": None, "c": None})
    assert (found.master_id, found.master_address, found.master_epoch) == (2, "b", 5)
    assert [replica.broker_id for replica in found.in_sync] == [2, 3]
    assert [(replica.broker_id, replica.alive) for replica in found.not_in_sync] == [(1, True)]


def test_who_does_not_answer_is_there_by_an_id_that_is_known_only() -> None:
    brokers = Brokers({"b": (2, 0, 5)}, {})
    found = state(brokers, {"a": 1, "b": None, "c": None})
    assert [(replica.broker_id, replica.alive) for replica in found.not_in_sync] == [(1, False)]
    assert [replica.broker_id for replica in found.in_sync] == [2]


def test_without_anybody_who_serves_there_is_no_state() -> None:
    assert state(Brokers({"a": (1, 1, 4), "b": (2, -1, 4)}, {}), {"a": None, "b": None}) is None
