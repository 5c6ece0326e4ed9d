"""A slave lists many messages together, for nobody waits for one of them there; a master lists them as they come."""

from __future__ import annotations

import asyncio

import pytest

from messagestore.dispatch import dispatchloop
from messagestore.messages import QueueGrew
from messagestore.store.messagestore import MessageStore
from simulation.kernel.disk import SimulatedDisk
from tests.unit.messagestore.storehelp import message
from tests.unit.messagestore.test_disk_failures import on_a_disk

MESSAGES = 30


async def confirmed_one_by_one(store: MessageStore, *, follows: bool) -> list[int]:
    """The ends of the queue that arrivals told of, until all messages are listed."""
    ends = [store.append([message()])[0].end_offset for _ in range(MESSAGES)]
    if follows:
        store.become_slave()
    told: list[int] = []

    def arrived(grown: list[QueueGrew]) -> None:
        told.append(grown[-1].next_queue_offset)

    store.on_arrival(arrived)
    for end in ends:
        store.set_confirm_offset(end)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.sleep(2 * dispatchloop.GATHER_S)
    assert store.dispatched_offset() == ends[-1]
    return told


@pytest.mark.parametrize("follows", [False, True], ids=["master", "slave"])
def test_what_a_slave_gets_within_a_moment_is_listed_together(follows: bool) -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        told = await confirmed_one_by_one(store, follows=follows)
        assert told[-1] == MESSAGES and (len(told) == 1) == follows

    on_a_disk(scenario)


def test_much_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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
