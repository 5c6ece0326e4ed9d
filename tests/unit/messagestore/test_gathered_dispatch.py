"""A slave dispatches many messages together because no consumer waits there; a master dispatches each at
once."""

from __future__ import annotations

import asyncio

import pytest

from messagestore.dispatch import dispatchloop
from messagestore.messages import QueueGrew
from messagestore.store.messagestore import MessageStore
from simulation.kernel.disk import SimulatedDisk
from tests.unit.messagestore.simulateddisks import on_a_disk
from tests.unit.messagestore.storehelp import message

MESSAGES = 30


async def confirmed_one_by_one(store: MessageStore, *, follows: bool) -> list[int]:
    """Confirm messages one by one until all are dispatched; return the queue ends that arrivals reported."""
    ends = [store.append([message()])[0].end_offset for _ in range(MESSAGES)]
    if follows:
        store.become_slave()
    reported: list[int] = []

    def arrived(grown: list[QueueGrew]) -> None:
        reported.append(grown[-1].next_queue_offset)

    store.on_arrival(arrived)
    for end in ends:
        store.set_confirm_offset(end)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.sleep(2 * dispatchloop.GATHER_S)
    assert store.dispatched_offset() == ends[-1]
    return reported


@pytest.mark.parametrize("follows", [False, True], ids=["master", "slave"])
def test_a_slave_dispatches_records_in_batches_and_a_master_at_once(follows: bool) -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        reported = await confirmed_one_by_one(store, follows=follows)
        assert reported[-1] == MESSAGES and (len(reported) == 1) == follows

    on_a_disk(scenario)


def test_many_bytes_are_dispatched_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatchloop, "GATHER_BYTES", 1_000)
    monkeypatch.setattr(dispatchloop, "GATHER_S", 3600)

    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        store.append([message() for _ in range(MESSAGES)])
        assert store.max_offset() > dispatchloop.GATHER_BYTES
        store.become_slave()
        store.set_confirm_offset(store.max_offset())
        await asyncio.sleep(1)
        assert store.dispatched_offset() == store.confirm_offset()

    on_a_disk(scenario)
