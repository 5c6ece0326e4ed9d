"""A full disk and a failing disk, simulated."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from messagestore.errors import StoreFailed
from messagestore.messages import PutStatus
from messagestore.queues.consumequeue import ConsumeQueue
from messagestore.record import encode
from messagestore.store.messagestore import MessageStore
from mqruntime.diskfull import RETRY_S
from simulation.kernel.disk import SimulatedDisk
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.unit.messagestore.simulateddisks import on_a_disk, on_a_node
from tests.unit.messagestore.storehelp import dispatch_all, message, small_settings, worked

pytestmark = pytest.mark.usefixtures("way")

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
FAILED = OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_full_disk_refuses_sends_that_need_a_new_segment_until_it_has_space() -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        assert store.append([message(bytes(1000)) for _ in range(3)])[-1].error is None
        end = store.max_offset()
        disk.capacity_bytes = 0
        big, small = store.append([message(bytes(1000)), message(b"fits")])
        assert big.error is PutStatus.SERVICE_NOT_AVAILABLE
        assert (small.error, small.physical_offset, small.queue_offset) == (None, end, 3)
        disk.capacity_bytes = None
        await asyncio.sleep(RETRY_S)
        (again,) = store.append([message(bytes(1000))])
        assert (again.error, again.physical_offset) == (None, 4096)
        assert not fatal

    on_a_disk(scenario)


def test_a_full_disk_is_retried_once_a_second_and_logged_every_half_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        store.append([message(bytes(1000)) for _ in range(2)])
        disk.fail_next("create", FULL, where="commitlog", times=1000)
        # the segment is more than half full, so each send asks to prepare the next one
        for number in range(450):
            (sent,) = store.append([message(bytes(1500))])
            assert sent.error is (None if number == 0 else PutStatus.SERVICE_NOT_AVAILABLE)
            await asyncio.sleep(0.1)
        assert disk.failures["create"] <= 46
        disk.mend()
        await asyncio.sleep(RETRY_S)
        assert store.append([message(bytes(1500))])[0].error is None
        assert not fatal

    with caplog.at_level("INFO", "messagestore"):
        on_a_disk(scenario)
    logged = [record.getMessage() for record in caplog.records]
    no_segment = "no segment of the log can be written, retrying; make room on this broker's disk"
    assert logged == [no_segment, no_segment, "segment of the log can be written again"]


def test_a_store_reports_a_full_disk_and_detects_free_space_by_itself() -> None:
    """Otherwise a client that checks a probe before it sends would never send the message that retries."""

    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        disk.capacity_bytes = disk.used_bytes() + 4096 + 3000
        assert store.append([message(bytes(1000)) for _ in range(2)])[-1].error is None
        assert store.takes_messages(), "before the next segment is needed"
        assert store.append([message(bytes(1000)), message(bytes(1000))])[-1].error is not None
        assert not store.takes_messages()
        await asyncio.sleep(10)
        assert not store.takes_messages()
        disk.capacity_bytes = None
        await asyncio.sleep(2)
        assert store.takes_messages()
        assert not fatal

    on_a_disk(scenario)


def test_a_segment_that_cannot_be_created_has_its_own_status_and_hint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        disk.fail_next("create", OSError(errno.EFBIG, os.strerror(errno.EFBIG)), where="commitlog")
        assert store.append([message()])[0].error is PutStatus.CREATE_MAPPED_FILE_FAILED
        await asyncio.sleep(RETRY_S)
        assert store.append([message()])[0].error is None

    on_a_disk(scenario)
    assert "raise the limit on the size of files (ulimit -f, LimitFSIZE)" in caplog.text


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_a_disk_too_full_for_queues_stops_sends_until_dispatch_continues(operation: str) -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        store.append([message()])
        disk.fail_next(operation, FULL, where="consumequeue")
        store.set_confirm_offset(store.max_offset())
        assert not store.dispatch()
        assert store.append([message()])[0].error is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.max_queue_offset("TopicTest", 0) == 0
        arrived = asyncio.Event()
        store.on_arrival(lambda grown: arrived.set())
        async with asyncio.timeout(5):
            await arrived.wait()
        assert store.max_queue_offset("TopicTest", 0) == 1
        assert store.append([message()])[0].error is None
        assert not fatal

    on_a_disk(scenario)


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_an_empty_slave_has_no_start_while_the_disk_is_full(operation: str) -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        store.become_slave()
        await store.begin_empty_at(8192)
        disk.fail_next(operation, FULL, where="commitlog")
        with pytest.raises(OSError, match="No space left"):
            store.write_view(8192, 100)
        assert (store.has_segments(), store.min_offset(), store.max_offset()) == (False, 0, 0)
        await store.confirm_whole_records()  # as before each connection
        assert await store.truncate(store.max_offset()) == 0
        await asyncio.sleep(RETRY_S)
        record = encode(worked())
        begin, end = worked().physical_offset, worked().physical_offset + len(record)
        await store.begin_empty_at(begin)  # at the start of another master
        store.write_view(begin, len(record))[:] = record
        store.advance(end)
        store.set_confirm_offset(end)
        await store.confirm_whole_records()
        assert await store.truncate(store.max_offset()) == end
        assert (store.min_offset(), store.confirm_offset()) == (begin, end)
        assert not fatal

    on_a_disk(scenario)


def test_after_a_failed_sync_the_store_accepts_nothing_and_is_not_clean() -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        store.append([message()])
        disk.fail_next("sync", FAILED, where="commitlog")
        with pytest.raises(StoreFailed):
            await store.flush()
        assert [type(error) for error in fatal] == [StoreFailed]
        assert store.append([message()])[0].error is PutStatus.SERVICE_NOT_AVAILABLE
        with pytest.raises(StoreFailed):
            await store.flush()
        with pytest.raises(StoreFailed):
            store.become_slave()
            store.write_view(store.max_offset(), 10)
        assert store.flushed_offset() == 0
        await store.stop()
        assert disk.content("abort") is not None
        assert len(fatal) == 1

    on_a_disk(scenario)


@pytest.mark.parametrize(
    ("operation", "where"), [("sync", "commitlog"), ("sync", "consumequeue"), ("replace", "checkpoint")]
)
def test_a_disk_that_fails_in_the_background_is_fatal(operation: str, where: str) -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        disk.fail_next(operation, FAILED, where=where)
        store.append([message()])
        store.set_confirm_offset(store.max_offset())
        await asyncio.sleep(5)
        assert [type(error) for error in fatal] == [StoreFailed]

    on_a_disk(scenario)


def test_a_full_disk_delays_the_checkpoint_and_is_not_fatal() -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        disk.fail_next("replace", FULL, where="checkpoint", times=2)
        store.append([message()])
        store.set_confirm_offset(store.max_offset())
        await asyncio.sleep(5)
        content = disk.content("checkpoint")
        assert content is not None
        assert int.from_bytes(content[32:40], "big") == store.confirm_offset()
        assert not fatal

    on_a_disk(scenario)


def test_a_store_without_confirmed_data_starts_on_a_full_disk() -> None:
    """Cluster seed 837259387470025: there is no index yet, and the checkpoint need not record that."""

    async def scenario(node: Node) -> None:
        fatal: list[BaseException] = []
        first, again = (
            MessageStore(node.runtime(), small_settings(), on_fatal=fatal.append) for _ in range(2)
        )
        await first.start()
        await first.become_master()
        [put] = first.append([message(properties=b"KEYS\x01k\x02")])
        await first.stop()
        node.disk.capacity_bytes = node.disk.used_bytes()
        await again.start()
        assert again.max_offset() == put.end_offset
        node.disk.capacity_bytes = None
        await again.become_master()
        again.set_confirm_offset(put.end_offset)
        await asyncio.sleep(5)
        assert len(await again.find_by_key("TopicTest", "k", 1, 0, 1 << 62)) == 1
        await again.stop()
        assert not fatal

    on_a_node(scenario)


def test_a_failed_truncation_is_fatal() -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        first, _ = store.append([message(), message()])
        store.become_slave()
        disk.fail_next("sync", FAILED, where="commitlog")
        with pytest.raises(StoreFailed):
            await store.truncate(first.end_offset)
        assert len(fatal) == 1

    on_a_disk(scenario)


def test_a_truncation_that_a_full_disk_cannot_announce_may_be_repeated() -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        first, second = store.append([message(), message()])
        store.set_confirm_offset(second.end_offset)
        await asyncio.sleep(5)
        store.become_slave()
        disk.capacity_bytes = disk.used_bytes()
        for _ in range(2):
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                await store.truncate(first.end_offset)
            assert (store.max_offset(), store.confirm_offset()) == (second.end_offset, second.end_offset)
        disk.capacity_bytes = None
        await store.truncate(first.end_offset)
        content = disk.content("checkpoint")
        assert content is not None
        assert int.from_bytes(content[32:40], "big") == first.end_offset
        assert store.max_offset() == first.end_offset
        assert not fatal

    on_a_disk(scenario)


def test_a_queue_sync_refused_by_a_full_disk_is_fatal() -> None:
    """The kernel drops the pages, so a later sync of them proves nothing."""

    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        disk.fail_next("sync", FULL, where="consumequeue")
        store.append([message()])
        store.set_confirm_offset(store.max_offset())
        await asyncio.sleep(5)
        assert [type(error) for error in fatal] == [StoreFailed]

    on_a_disk(scenario)


def test_a_record_without_room_in_the_index_leaves_no_queue_entry() -> None:
    async def scenario(store: MessageStore, disk: SimulatedDisk, fatal: list[BaseException]) -> None:
        (first,) = store.append([message(b"kept")])
        dispatch_all(store)
        assert store.dispatched_offset() == first.end_offset
        disk.fail_next("create", FULL, where="index", times=1_000)
        (cut,) = store.append([message(b"cut off", properties=b"KEYS\x01k\x02TAGS\x01old\x02")])
        store.set_confirm_offset(store.max_offset())
        await asyncio.sleep(0.1)
        assert store.dispatched_offset() == cut.physical_offset, "it will be dispatched again"
        store.become_slave()
        assert await store.truncate(cut.physical_offset) == cut.physical_offset
        assert store.max_queue_offset("TopicTest", 0) == 1
        disk.mend()
        await asyncio.sleep(2 * RETRY_S)
        await store.become_master()
        (again,) = store.append([message(b"another, of another size")])
        store.set_confirm_offset(store.max_offset())
        await asyncio.sleep(0.1)
        found = store.entries("TopicTest", 0, 1, 9)
        assert [(entry.physical_offset, entry.size) for entry in found] == [
            (again.physical_offset, again.end_offset - again.physical_offset)
        ]
        assert not fatal

    on_a_disk(scenario)


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_a_queue_with_a_late_start_keeps_it_after_a_full_disk(operation: str) -> None:
    with World(1) as world:
        node = world.node("broker-0", "10.0.0.1")
        queue = ConsumeQueue(node.runtime().segments, 400, "TopicTest", 0)
        node.disk.fail_next(operation, FULL)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            queue.append(7, 1000, 100, 5)
        assert (queue.min_queue_offset, queue.max_queue_offset) == (0, 0)
        assert queue.append(7, 1000, 100, 5)
        assert list(queue.entries(7, 10)) == [(1000, 100, 5)]
        node.disk.fail_next(operation, FULL, times=2)
        for _ in range(2):
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                queue.append(45, 1200, 100, 5)
            assert queue.max_queue_offset == 8
            assert not any(queue._open(0).view()[8 * 20 :]), "no bytes after the end"
        assert queue.append(45, 1200, 100, 5)
        assert (queue.min_queue_offset, queue.max_queue_offset) == (7, 46)


@pytest.mark.parametrize("killed_first", [False, True])
def test_a_truncated_entry_does_not_return_after_a_power_cut(killed_first: bool) -> None:
    """The log continues with other queues, and the checkpoint is above the offset of the lost record."""
    for seed in range(8):
        with World(seed) as world:
            node = world.node("broker-0", "10.0.0.1")

            async def opened(node: Node = node) -> ConsumeQueue:
                queue = ConsumeQueue(node.runtime().segments.subdirectory("0"), 4_000, "TopicTest", 0)
                await queue.load(0, 10_000, trusted=False)
                return queue

            async def filled_and_cut() -> ConsumeQueue:
                queue = await opened()
                for number in range(10):
                    assert queue.append(number, number * 100, 100, 5)
                await queue.sync()
                await queue.truncate(500)
                return queue

            async def reopened() -> ConsumeQueue:
                queue = await opened()
                assert queue.max_queue_offset == 5
                return queue

            queue = world.run(filled_and_cut())
            if killed_first:
                node.kill()
                queue = world.run(reopened())
            world.run(queue.sync())
            node.kill(power_cut=True)
            world.run(reopened())
