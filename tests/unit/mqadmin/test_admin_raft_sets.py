"""The state of a set in Raft mode, from the reports of its brokers."""

from __future__ import annotations

import asyncio
from typing import Any

from mqadmin.calls.raftsets import state_of
from mqadmin.errors import ServerUnreachable
from mqadmin.replies import BrokerEpochs, EpochRange, HALink, HAStatus


class Brokers:
    """`reports`: broker id, role id and term by address. `in_sync`: caught up, by broker id."""

    def __init__(self, reports: dict[str, tuple[int, int, int]], in_sync: dict[int, bool]) -> None:
        self._reports = reports
        self._in_sync = in_sync

    def _of(self, address: str) -> tuple[int, int, int]:
        if address not in self._reports:
            raise ServerUnreachable(address, "asked", "gone")
        return self._reports[address]

    async def broker_epochs(self, address: str) -> BrokerEpochs:
        _, role_id, term = self._of(address)
        return BrokerEpochs("c", "b", role_id, 90, (EpochRange(term, 0, 90),))

    async def runtime_info(self, address: str) -> dict[str, str]:
        return {"replicaId": str(self._of(address)[0])}

    async def ha_status(self, address: str) -> HAStatus:
        links = [
            HALink(f"m{each}", 90, 0, in_sync, 0, 90, broker_id=each)
            for each, in_sync in self._in_sync.items()
        ]
        return HAStatus(True, 90, 1, tuple(links), None, 90, 0, 0, 0, 0)


def state(brokers: Brokers, members: dict[str, int | None]) -> Any:
    return asyncio.run(state_of(brokers, "b", members))  # type: ignore[arg-type]


def test_the_master_of_the_highest_term_reports_which_members_are_in_sync() -> None:
    brokers = Brokers({"a": (1, 0, 4), "b": (2, 0, 5), "c": (3, 3, 5)}, {1: False, 3: True})
    found = state(brokers, {"a": None, "b": None, "c": None})
    assert (found.master_id, found.master_address, found.master_epoch) == (2, "b", 5)
    assert [replica.broker_id for replica in found.in_sync] == [2, 3]
    assert [(replica.broker_id, replica.alive) for replica in found.not_in_sync] == [(1, True)]


def test_a_silent_member_is_listed_only_if_its_id_is_known() -> None:
    brokers = Brokers({"b": (2, 0, 5)}, {})
    found = state(brokers, {"a": 1, "b": None, "c": None})
    assert [(replica.broker_id, replica.alive) for replica in found.not_in_sync] == [(1, False)]
    assert [replica.broker_id for replica in found.in_sync] == [2]


def test_a_set_without_a_serving_master_has_no_state() -> None:
    assert state(Brokers({"a": (1, 1, 4), "b": (2, -1, 4)}, {}), {"a": None, "b": None}) is None
