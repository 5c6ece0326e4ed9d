"""A replicated log as programs use it: append, get, read_index, leadership, and observers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dledger import DLedger, EntryRefused, IndexOutOfRange, NotLeader, OutcomeUnknown, Role, TooManyProposals
from dledger.raft.messages import ResultCode
from dledger.raft.settings import PUSHED_BYTES_MAX
from dledger.storage.entry import ENTRY_HEADER_BYTES
from mqruntime.memoryruntime import MemoryFiles
from mqruntime.realruntime import real_runtime
from mqruntime.storelock import StoreLocked
from remoting.errors import AddressInUse
from tests.unit.dledger.ledgergroup import SETTINGS, LedgerGroup, Sum, played, until


def test_an_entry_larger_than_a_push_is_rejected_and_the_largest_reaches_all() -> None:
    """An entry that a leader holds and cannot send would block all later entries for ever."""
    settings = replace(SETTINGS, entry_bytes_max=16 << 20, data_file_bytes=32 << 20, index_file_bytes=1 << 16)

    async def story() -> None:
        async with LedgerGroup(settings=settings) as group:
            leader = await group.leader()
            with pytest.raises(ValueError, match=f"1 to {PUSHED_BYTES_MAX} bytes"):
                await leader.append(bytes(PUSHED_BYTES_MAX + 1))
            end = None
            while end is None:
                with suppress(NotLeader, OutcomeUnknown):  # sending it takes longer than an election
                    leader = await group.leader()
                    await leader.append(bytes(PUSHED_BYTES_MAX))
                    end = (await leader.append(b"behind it")).index
            await until(
                lambda: all(member.metadata.applied_index >= end for member in group.members.values())
            )

    played(story)


def test_an_appended_entry_has_a_position_and_is_read_from_every_member() -> None:
    async def story() -> None:
        async with LedgerGroup() as group:
            leader = await group.leader()
            one = await leader.append(b"one")
            more = await leader.append(b"two", b"x" * 1000, b"y" * 1000)
            assert more.index == one.index + 1
            assert more.position == one.position + ENTRY_HEADER_BYTES + 3
            last = await leader.append(*[b"z" * 1000] * 6)
            await asyncio.gather(*[leader.append(b"%d" % number) for number in range(50)])
            end = (await leader.append(b"end")).index
            disk = leader._node.store.log
            assert disk is not None
            for appended in (one, more, last):
                assert disk.stored_unit(appended.index).position == appended.position
            for member in group.members.values():
                await until(lambda member=member: member.metadata.committed_index >= end)
                assert (await member.get(more.index)).body == b"two"
                assert (await member.get(0)).body == b""

    played(story)


def test_positions_are_returned_before_the_leaders_disk_has_the_entries() -> None:
    """A leader whose syncs hang: a majority commits without it."""

    async def story() -> None:
        async with LedgerGroup() as group:
            leader = await group.leader()
            log = leader._node.store.log
            assert log is not None
            go_on, sync = asyncio.Event(), log.data.sync

            async def hanging() -> None:
                await go_on.wait()
                await sync()

            log.data.sync = hanging  # type: ignore[method-assign]
            early = [
                await leader.append(b"x" * size) for size in (1, 900, 1000, 1000, 1000, 1000, 700, 900, 3)
            ]
            assert leader._node.core is not None and leader._node.core.durable_index < early[0].index
            go_on.set()
            await until(lambda: leader._node.core.durable_index >= early[-1].index)  # type: ignore[union-attr]
            assert [log.stored_unit(each.index).position for each in early] == [
                each.position for each in early
            ]

    played(story)


def test_a_refused_entry_is_reported_and_blocks_nothing() -> None:
    machines = dict[str, Sum]()

    def machine(name: str) -> Sum:
        return machines.setdefault(name, Sum())

    async def story() -> None:
        async with LedgerGroup(machine=machine) as group:
            leader = await group.leader()
            results = (await leader.append(b"1", b"one", b"2")).results
            assert results[0] == 1 and results[2] == 3
            assert isinstance(results[1], EntryRefused) and "b'one' is no number" in str(results[1])
            assert (await leader.append(b"4")).results == [7]
            assert leader.counts["appended"] == 4 and leader.counts["refused"] == 1
            await until(lambda: {each.value for each in machines.values()} == {7})

    played(story)


def test_only_the_leader_appends_and_reads_and_followers_name_the_leader() -> None:
    async def story() -> None:
        async with LedgerGroup(machine=lambda name: Sum()) as group:
            leader = await group.leader()
            other = next(each for each in group.members.values() if each is not leader)
            for asked in (other.append(b"1"), other.read_index()):
                with pytest.raises(NotLeader) as refused:
                    await asked
                assert refused.value.leader_id == leader.metadata.self_id
                assert refused.value.leader_address == group.peers[leader.metadata.self_id]
            assert other.counts["not_leader"] == 2
            index = (await leader.append(b"1")).index
            assert await leader.read_index() >= index
            assert leader.counts["reads"] == 1

    played(story)


def test_without_a_majority_the_outcome_is_unknown_and_nothing_uncommitted_is_read() -> None:
    async def story() -> None:
        async with LedgerGroup() as group:
            leader = await group.leader()
            committed = (await leader.append(b"1")).index
            for name in set(group.peers) - {leader.metadata.self_id}:
                await group.stop(name)
            with pytest.raises(OutcomeUnknown):
                await leader.append(b"2", timeout_ms=50)
            with pytest.raises(IndexOutOfRange, match=f"no committed entry {committed + 1} here"):
                await leader.get(committed + 1)
            with pytest.raises(IndexOutOfRange):
                await leader.get(-1)
            assert leader.counts["unknown"] == 1

    played(story)


def test_proposals_above_the_limit_are_rejected_at_once() -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            leader = await group.leader()
            most = SETTINGS.pending_proposals_max
            full = asyncio.create_task(leader.append(*[b"x"] * most))
            await asyncio.sleep(0)
            with pytest.raises(TooManyProposals):
                await leader.append(b"x")
            with pytest.raises(ValueError, match="1 to 10000 bodies, not 10001"):
                await leader.append(*[b"x"] * (most + 1))
            assert len((await full).results) == most
            with pytest.raises(ValueError, match="1 to 10000 bodies, not 0"):
                await leader.append()
            with pytest.raises(ValueError, match="1 to 1024 bytes"):
                await leader.append(b"x" * 1025)
            assert leader.counts["too_many"] == 1

    played(story)


@pytest.mark.parametrize("body", ["text", bytearray(b"buffer"), memoryview(b"view"), [b"x"], 5, None])
def test_a_body_that_is_not_bytes_is_rejected(body: Any) -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            leader = await group.leader()
            with pytest.raises(TypeError, match="a body is bytes"):
                await leader.append(b"1", body)
            assert leader.metadata.last_index == 0

    played(story)


@pytest.mark.parametrize("timeout_ms", [None, "3000"])
def test_a_timeout_that_is_no_number_is_rejected(timeout_ms: Any) -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            leader = await group.leader()
            with pytest.raises(TypeError, match="timeout_ms is a number"):
                await leader.append(b"1", timeout_ms=timeout_ms)
            assert (await leader.append(b"2")).index == 1

    played(story)


def test_a_leadership_transfer_is_reported_to_observers() -> None:
    async def story() -> None:
        async with LedgerGroup() as group:
            leader = await group.leader()
            target = next(each for each in group.members.values() if each is not leader)
            heard, commits = list[tuple[Role, int]](), list[int]()
            target.on_role_change(lambda role, term: heard.append((role, term)))
            target.on_commit(commits.append)
            assert await leader.transfer("nobody") is ResultCode.UNKNOWN_MEMBER
            assert await leader.transfer(target.metadata.self_id) is ResultCode.SUCCESS
            assert await group.leader() is target
            appended = await target.append(b"1")
            assert heard[-1] == (Role.LEADER, target.metadata.term)
            assert commits == sorted(commits) and commits[-1] == appended.index
            assert leader.counts["transfers"] == 1 and target.counts["elected"] == 1

    played(story)


def test_a_leader_transfers_leadership_to_a_preferred_member() -> None:
    async def story() -> None:
        async with LedgerGroup(preferred=["n2"]) as group:
            preferred = group.members["n2"]
            await until(lambda: preferred.metadata.is_active)
            await group.stop("n2")
            other = await group.leader()
            index = (await other.append(b"1")).index
            back = await group.start("n2")
            await until(lambda: back.metadata.is_active)
            assert (await back.get(index)).body == b"1"

    played(story)


def test_a_preferred_id_must_be_a_member() -> None:
    async def story() -> None:
        with pytest.raises(ValueError, match="preferred n7"):
            await LedgerGroup(1, preferred=["n7"]).start("n0")

    played(story)


def test_a_restarted_group_keeps_its_entries_and_state() -> None:
    async def story() -> None:
        group = LedgerGroup(machine=lambda name: Sum())
        async with group:
            index = (await (await group.leader()).append(b"5")).index
        async with group:
            leader = await group.leader()
            assert (await leader.get(index)).body == b"5"
            assert (await leader.append(b"2")).results == [7]

    played(story)


@pytest.mark.parametrize("on_disk", [False, True])
def test_one_folder_has_one_member(tmp_path: Path, on_disk: bool) -> None:
    async def story() -> None:
        files = MemoryFiles()
        ones = [
            DLedger(
                self_id="n0",
                peers={"n0": "127.0.0.1:0"},
                group="g",
                runtime=real_runtime(tmp_path) if on_disk else files.runtime(),
                settings=SETTINGS,
            )
            for _ in range(2)
        ]
        async with ones[0]:
            with pytest.raises(StoreLocked):
                await ones[1].start()
        async with ones[1]:
            await until(lambda: ones[1].metadata.is_active)

    played(story)


def test_an_exception_of_a_state_machine_fails_its_member() -> None:
    class Broken:
        def apply(self, index: int, body: bytes) -> object:
            raise RuntimeError("a bug")

    async def story() -> None:
        async with LedgerGroup(1, machine=lambda name: Broken()) as group:
            leader = await group.leader()
            with pytest.raises(OutcomeUnknown):
                await leader.append(b"1")
            assert str(await leader.wait_failed()) == "a bug"

    played(story)


def test_entries_that_left_memory_are_read_from_the_files() -> None:
    async def story() -> None:
        async with LedgerGroup(1, settings=replace(SETTINGS, recent_bytes_max=0)) as group:
            leader = await group.leader()
            first = [(await leader.append(b"%d" % number)).index for number in range(30)]
            log = leader._node.core.log  # type: ignore[union-attr]
            assert not log.holds(first[0])
            assert [(await leader.get(index)).body for index in first] == [
                b"%d" % number for number in range(30)
            ]

    played(story)


class Count:
    """A state machine that counts applied entries."""

    def __init__(self) -> None:
        self.value = 0

    def apply(self, index: int, body: bytes) -> object:
        self.value += 1
        return self.value

    def snapshot_save(self) -> Iterator[bytes]:
        yield b"%d" % self.value

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        self.value = int(data)
        yield


def counting_group() -> LedgerGroup:
    """A group of one member; a snapshot removes its whole log."""
    count = Count()
    settings = replace(SETTINGS, recent_bytes_max=0, snapshot_entries=20, snapshot_margin_entries=0)
    return LedgerGroup(1, lambda name: count, snapshots=count, settings=settings)


def test_an_append_returns_positions_also_when_a_snapshot_removed_its_entries() -> None:
    async def story() -> None:
        async with counting_group() as group:
            leader = await group.leader()
            many = [await leader.append(*[b"x" * 200] * 400) for _ in range(3)]
            assert leader.metadata.first_index > many[-1].index
            assert many[0].position == ENTRY_HEADER_BYTES and many[0].results == list(range(1, 401))
            for before, behind in pairwise(many):
                assert behind.index == before.index + 400
                assert behind.position >= before.position + 400 * (ENTRY_HEADER_BYTES + 200)

    played(story)


def test_a_get_of_an_entry_that_a_snapshot_removed_names_the_first_index() -> None:
    async def story() -> None:
        async with counting_group() as group:
            leader = await group.leader()
            log = leader._node.store.log
            assert log is not None
            wanted = (await leader.append(b"1")).index
            read, asked, go_on = log.index.read, asyncio.Event(), asyncio.Event()

            async def overtaken(start: int, end: int) -> bytes:
                log.index.read = read  # type: ignore[method-assign]
                asked.set()
                await go_on.wait()
                return await read(start, end)

            log.index.read = overtaken  # type: ignore[method-assign]
            got = asyncio.create_task(leader.get(wanted))
            await asked.wait()
            while leader.metadata.first_index <= wanted:
                await leader.append(*[b"x" * 400] * 5)
            go_on.set()
            with pytest.raises(IndexOutOfRange) as refused:
                await got
            assert refused.value.first == leader.metadata.first_index > wanted
            assert leader.counts["gets"] == 0

    played(story)


def test_a_member_that_fails_to_start_unlocks_its_folder() -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            files = MemoryFiles()
            second = DLedger(
                self_id="n0", peers=group.peers, group="g", runtime=files.runtime(), settings=SETTINGS
            )
            with pytest.raises(AddressInUse):
                await second.start()
            assert not files.locked

    played(story)


def test_a_member_is_started_once() -> None:
    async def story() -> None:
        group = LedgerGroup(1)
        async with group:
            with pytest.raises(RuntimeError, match="n0 was started or stopped before"):
                await group.members["n0"].start()
            assert (await (await group.leader()).append(b"1")).results == [None]
        never_started = group.made("n0")
        await never_started.stop()
        with pytest.raises(RuntimeError, match="make another DLedger"):
            await never_started.start()
        assert not group.files["n0"].locked

    played(story)


def test_a_stop_waits_for_a_pending_start_and_closes_everything(tmp_path: Path) -> None:
    async def story() -> None:
        group = LedgerGroup(1)
        for _ in range(3):
            ledger = DLedger(
                self_id="n0", peers=group.peers, group="g", runtime=real_runtime(tmp_path), settings=SETTINGS
            )
            starting = asyncio.create_task(ledger.start())
            await asyncio.sleep(0)
            await asyncio.gather(ledger.stop(), ledger.stop())
            assert starting.done() and not ledger.metadata.is_active
            await starting

    played(story)


def test_a_stop_cancelled_during_the_transfer_still_closes() -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            leader = await group.leader()

            async def never(target: str | None = None) -> ResultCode:
                return await asyncio.get_running_loop().create_future()

            leader._node.transfer_leadership = never  # type: ignore[method-assign]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(leader.stop(), 0.001)
            del leader._node.transfer_leadership
            assert not leader.metadata.is_active and not group.files["n0"].locked

    played(story)


def test_a_stop_cancelled_while_closing_keeps_the_lock_until_the_next_stop() -> None:
    async def story() -> None:
        async with LedgerGroup(1) as group:
            leader = await group.leader()
            append = asyncio.create_task(leader.append(b"1"))
            stop = asyncio.create_task(leader.stop())
            await asyncio.sleep(0)
            assert not leader.metadata.is_active
            stop.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stop
            assert group.files["n0"].locked
            await leader.stop()
            assert not group.files["n0"].locked
            with suppress(OutcomeUnknown):
                await append

    played(story)
