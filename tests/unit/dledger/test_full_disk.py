"""A member whose disk is full: a refused write is retried as a whole and does not count before it
succeeds."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.settings import DLedgerSettings
from dledger.storage.entrylog import read_entries
from dledger.storage.filelist import FileList
from dledger.storage.store import Store
from simulation.kernel.disk import SimulatedDisk
from simulation.kernel.node import Node
from simulation.kernel.world import World

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
SETTINGS = DLedgerSettings(
    data_file_bytes=2048, index_file_bytes=32 * 8, entry_bytes_max=1024, same_positions=True
)
FIRST = PersistThenSend(Vote(1), None, tuple(Entry(index, 1, b"first") for index in range(3)), ())
SECOND = PersistThenSend(None, None, tuple(Entry(index, 1, b"x" * 700) for index in range(3, 9)), ())


def made(node: Node) -> Store:
    runtime = node.runtime()
    return Store(runtime.files, runtime.segments, "dledger-n0", SETTINGS, ["n0"])


async def held(store: Store) -> tuple[Entry, ...]:
    assert store.log is not None
    found: list[Entry] = []
    while len(found) <= store.log.end_index:
        found += await read_entries(store.log, len(found), 10, 1 << 20)
    return tuple(found)


async def opened(node: Node) -> Store:
    store = made(node)
    await store.open()
    return store


def on_a_node(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    with World(5) as world:
        node = world.node("member", "10.0.0.1")

        async def run() -> None:
            await node.spawn(scenario(node))

        world.run(run(), limit_ms=60_000)


def fill(disk: SimulatedDisk, room_bytes: int = 0) -> None:
    disk.capacity_bytes = disk.used_bytes() + room_bytes


def test_entries_wait_for_disk_space_and_are_then_durable() -> None:
    async def scenario(node: Node) -> None:
        store = await opened(node)
        await store.persist([FIRST])
        fill(node.disk, 2 * SETTINGS.data_file_bytes)
        waiting = asyncio.ensure_future(store.persist([SECOND]))
        await asyncio.sleep(5)
        assert not waiting.done() and store.waits_for_room
        node.disk.capacity_bytes = None
        await waiting
        assert not store.waits_for_room
        assert await held(store) == FIRST.entries + SECOND.entries
        again = await opened(node)
        assert await held(again) == FIRST.entries + SECOND.entries

    on_a_node(scenario)


def test_room_inside_a_file_is_used_on_a_full_disk() -> None:
    async def scenario(node: Node) -> None:
        store = await opened(node)
        await store.persist([FIRST])
        fill(node.disk)
        fits = PersistThenSend(None, None, (Entry(3, 1, b"x" * 700), Entry(4, 1, b"y" * 300)), ())
        await store.persist([fits])
        assert not store.waits_for_room

    on_a_node(scenario)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_member_killed_while_waiting_for_space_restarts_with_a_prefix(
    power_cut: bool,
) -> None:
    with World(6) as world:
        node = world.node("member", "10.0.0.1")

        async def until_full() -> None:
            store = await opened(node)
            await store.persist([FIRST])
            fill(node.disk, 2 * SETTINGS.data_file_bytes)
            node.spawn(store.persist([SECOND]))
            await asyncio.sleep(5)
            assert store.waits_for_room

        async def started_again() -> None:
            store = await opened(node)
            there = await held(store)
            wanted = FIRST.entries + SECOND.entries
            assert FIRST.entries == there[:3] and there == wanted[: len(there)] != wanted
            rest = wanted[len(there) :]
            await store.persist([PersistThenSend(None, None, rest, ())])
            assert await held(store) == wanted

        async def first() -> None:
            await node.spawn(until_full())

        async def second() -> None:
            await node.spawn(started_again())

        world.run(first(), limit_ms=60_000)
        node.kill(power_cut=power_cut)
        node.disk.capacity_bytes = None
        world.run(second(), limit_ms=60_000)


def test_an_entry_is_not_written_when_its_index_unit_has_no_room() -> None:
    """The next start would find an entry that the log does not have."""

    async def scenario(node: Node) -> None:
        store = await opened(node)
        await store.persist([FIRST])
        log = store.log
        assert log is not None
        end = log.end
        node.disk.fail_next("reserve", FULL, where="index")
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            await log.append([Entry(3, 1, b"fourth")])
        assert (log.end, log.end_index) == (end, 2)
        assert not any(log.data.rest_of_file(end))
        await log.append([Entry(3, 1, b"fourth")])
        assert log.end_index == 3

    on_a_node(scenario)


def test_space_is_reclaimed_before_each_retry() -> None:
    async def scenario(node: Node) -> None:
        store, tries = await opened(node), 0

        async def lets_go() -> None:
            nonlocal tries
            tries += 1
            if tries == 3:
                node.disk.capacity_bytes = None

        await store.persist([FIRST])
        fill(node.disk)
        await store.persist([SECOND], lets_go)
        assert tries == 3

    on_a_node(scenario)


def test_a_sync_refused_by_a_full_disk_is_fatal() -> None:
    """The kernel drops the pages, so a later sync of them proves nothing."""

    async def scenario(node: Node) -> None:
        store = await opened(node)
        node.disk.fail_next("sync", FULL, where="data")
        with pytest.raises(OSError, match="sync failed: No space left") as failed:
            await store.persist([FIRST])
        assert failed.value.errno == errno.EIO and not store.waits_for_room

    on_a_node(scenario)


def test_a_refused_sync_of_a_finished_file_is_fatal() -> None:
    async def scenario(node: Node) -> None:
        store = await opened(node)
        await store.persist([FIRST])
        node.disk.fail_next("sync", FULL, where="data")
        with pytest.raises(OSError, match="sync failed: No space left"):
            await store.persist([SECOND])
        assert not store.waits_for_room

    on_a_node(scenario)


def test_a_cut_needs_no_disk_space() -> None:
    async def scenario(node: Node) -> None:
        store = await opened(node)
        await store.persist([FIRST])
        log = store.log
        assert log is not None
        node.disk.fail_next("reserve", FULL)
        await log.cut(1)
        assert log.end_index == 0 and not any(log.data.rest_of_file(log.end))

    on_a_node(scenario)


def test_erase_does_not_rewrite_zeros() -> None:
    async def scenario(node: Node) -> None:
        files = FileList(node.runtime().segments.subdirectory("data"), 2048, "data")
        await files.open(0)
        files.write(0, b"abc")
        await files.sync()
        await files.erase(1, 40)
        assert bytes(files.rest_of_file(0)[:4]) == b"a\0\0\0" and files.dirty == {0: (1, 3)}

    on_a_node(scenario)
