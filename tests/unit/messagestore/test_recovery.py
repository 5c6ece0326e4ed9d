"""Start-up after a crash: truncated data, kept data, and damage that stops the start."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from messagestore.bulk.records import Records
from messagestore.checkpoint import Checkpoint, CheckpointDamaged, decode_checkpoint
from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.dispatch.indexmending import GapWriter
from messagestore.errors import BadSegments, LogMissing, StoreCorrupted
from messagestore.messages import PutResult
from messagestore.record import QueueFacts, decode, encode_blank
from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.storehelp import (
    dispatch_all,
    master,
    message,
    open_store,
    queue_entries,
    small_settings,
)

SEGMENT = 4096
RECORD = 105  # bytes of the records written here: topic "TopicTest", body "hello"


def log_file(root: Path, start: int = 0) -> Path:
    return root / "commitlog" / f"{start:020d}"


def segment_files(root: Path) -> dict[Path, bytes]:
    """The files of the log and the queues."""
    return {path: path.read_bytes() for path in root.glob("co*/**/0*") if path.is_file()}


def write_at(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


async def crashed_store(root: Path, count: int, confirmed: int) -> list[PutResult]:
    """Leave a store directory as a killed process does: `count` records, the first `confirmed` of them
    confirmed."""
    store = await master(root)
    outcomes = store.append([message() for _ in range(count)])
    if confirmed:
        store.set_confirm_offset(outcomes[confirmed - 1].end_offset)
    while store.dispatch():
        pass
    await store.stop()
    (root / "abort").touch()
    return outcomes


async def recovered(root: Path) -> MessageStore:
    store = open_store(root)
    store.report = await store.start()  # type: ignore[attr-defined]
    return store


def test_after_a_crash_the_log_stays_and_queues_end_at_the_confirm_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        outcomes = await crashed_store(tmp_path, 60, confirmed=45)
        store = await recovered(tmp_path)
        assert store.max_offset() == outcomes[-1].end_offset
        assert store.confirm_offset() == store.dispatched_offset() == outcomes[44].end_offset
        assert store.max_queue_offset("TopicTest", 0) == 45
        await store.become_master()
        (out,) = store.append([message()])
        assert out.queue_offset == 60, "undispatched messages keep their queue offsets"
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", [b"\0" * 40, b"\xff" * 4, (120).to_bytes(4, "big"), encode_blank(77)])
def test_a_torn_end_above_the_confirm_offset_is_truncated_and_erased(tmp_path: Path, damage: bytes) -> None:
    async def scenario() -> None:
        outcomes = await crashed_store(tmp_path, 30, confirmed=20)
        torn = outcomes[25]
        write_at(log_file(tmp_path), torn.physical_offset, damage)
        store = await recovered(tmp_path)
        assert store.max_offset() == torn.physical_offset
        assert store.confirm_offset() == outcomes[19].end_offset
        await store.become_master()
        (again,) = store.append([message(b"other")])
        assert (again.physical_offset, again.queue_offset) == (torn.physical_offset, 25)
        assert again.end_offset == torn.end_offset, "the next old record would follow exactly here"
        await store.flush()
        await store._tasks.stop()  # killed here

        after = await recovered(tmp_path)
        assert after.max_offset() == again.end_offset, "records after a torn one never return"
        await after.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("missing", [0, 1, 7])
@pytest.mark.parametrize("count", [3, 30])
def test_a_partial_last_record_of_a_stopped_slave_is_truncated(
    tmp_path: Path, missing: int, count: int
) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        outcomes = store.append([message(properties=b"KEYS\1k\2CLUSTER\1c\2") for _ in range(count)])
        last = outcomes[-1]
        await store.stop()
        write_at(log_file(tmp_path), last.end_offset - missing, b"\0" * missing)
        after = await recovered(tmp_path)
        assert after.max_offset() == (last.physical_offset if missing else last.end_offset)
        assert not any(log_file(tmp_path).read_bytes()[after.max_offset() :])
        await after.stop()
        again = await recovered(tmp_path)
        assert again.max_offset() == after.max_offset()
        await again.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", [0, 10, 19])
@pytest.mark.parametrize("clean", [True, False])
def test_damage_below_the_confirm_offset_stops_the_start_and_changes_nothing(
    tmp_path: Path, place: int, clean: bool
) -> None:
    async def scenario() -> None:
        outcomes = await crashed_store(tmp_path, 30, confirmed=20)
        if clean:
            (tmp_path / "abort").unlink()
        write_at(log_file(tmp_path), outcomes[place].physical_offset + 90, b"X")
        before = log_file(tmp_path).read_bytes()
        with pytest.raises(StoreCorrupted) as caught:
            await recovered(tmp_path)
        assert caught.value.offset == outcomes[place].physical_offset
        assert caught.value.limit == outcomes[19].end_offset
        assert log_file(tmp_path).read_bytes() == before

    asyncio.run(scenario())


def test_a_log_that_ends_before_the_confirm_offset_is_damaged(tmp_path: Path) -> None:
    async def scenario() -> None:
        await crashed_store(tmp_path, 60, confirmed=60)
        log_file(tmp_path, SEGMENT).unlink()
        with pytest.raises(StoreCorrupted) as caught:
            await recovered(tmp_path)
        assert caught.value.offset == SEGMENT

    asyncio.run(scenario())


def test_a_log_without_files_is_rejected_if_it_had_confirmed_data(tmp_path: Path) -> None:
    async def scenario(confirmed: int) -> None:
        await crashed_store(tmp_path, 60, confirmed)
        for path in (tmp_path / "commitlog").iterdir():
            path.unlink()
        await recovered(tmp_path)

    asyncio.run(scenario(0))
    with pytest.raises(
        LogMissing, match=f"everything below {RECORD} was confirmed. If it is on a disk of its own"
    ):
        asyncio.run(scenario(1))


@pytest.mark.parametrize("inside", [1, 7, 8, 50, 91])
def test_a_confirm_offset_inside_a_torn_record_is_no_damage(tmp_path: Path, inside: int) -> None:
    async def scenario() -> None:
        outcomes = await crashed_store(tmp_path, 30, confirmed=20)
        last = outcomes[25]
        assert last.end_offset - last.physical_offset == RECORD
        write_at(log_file(tmp_path), last.physical_offset + inside, bytes(5 * RECORD - inside))
        confirm = Checkpoint(1, 1, 0, 0, last.physical_offset + inside)
        (tmp_path / "checkpoint").write_bytes(confirm.encode())
        store = await recovered(tmp_path)
        assert store.max_offset() == store.confirm_offset() == last.physical_offset
        assert store.max_queue_offset("TopicTest", 0) == 25
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", [94, 100, 106, 130])
def test_a_record_whose_topic_or_properties_were_not_written_is_torn(tmp_path: Path, place: int) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        first, second = store.append([message(properties=b"K\x01" + b"v" * 40 + b"\x02") for _ in range(2)])
        await store.stop()
        (tmp_path / "abort").touch()
        stop = second.end_offset - second.physical_offset
        write_at(log_file(tmp_path), second.physical_offset + place, bytes(stop - place))
        again = await recovered(tmp_path)
        assert again.max_offset() == first.end_offset
        await again.stop()

    asyncio.run(scenario())


def test_a_prepared_segment_without_records_is_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        outcomes = await crashed_store(tmp_path, 30, confirmed=30)
        for start in (SEGMENT, 2 * SEGMENT):
            log_file(tmp_path, start).write_bytes(bytes(SEGMENT))
        store = await recovered(tmp_path)
        assert store.report.removed_segments == 2  # type: ignore[attr-defined]
        assert store.max_offset() == outcomes[-1].end_offset
        await store.stop()

    asyncio.run(scenario())


def test_deleted_queues_are_rebuilt_from_the_start_of_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        await crashed_store(tmp_path, 200, confirmed=190)
        for path in sorted((tmp_path / "consumequeue").rglob("0*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        store = await recovered(tmp_path)
        assert store.max_queue_offset("TopicTest", 0) == 190
        assert store.min_queue_offset("TopicTest", 0) == 0
        await store.stop()

    asyncio.run(scenario())


def test_a_queue_that_lost_its_files_is_rebuilt(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        for _ in range(100):
            store.append([message(), message(topic="Other")])
        dispatch_all(store)
        await store.stop()
        (tmp_path / "abort").touch()
        confirm = Checkpoint(1 << 50, 1 << 50, 0, 0, store.confirm_offset())
        (tmp_path / "checkpoint").write_bytes(confirm.encode())
        for path in (tmp_path / "consumequeue" / "Other" / "0").iterdir():
            path.unlink()
        store = await recovered(tmp_path)
        queue = queue_entries(store)["Other", 0]
        assert [decode(await store.message_at(*entry[:2])).queue_offset for entry in queue] == [*range(100)]
        await store.stop()

    asyncio.run(scenario())


def counted_puts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the offsets of records that get entries from now on."""
    positions: list[int] = []
    put, put_many = Dispatcher.put, Dispatcher.put_many

    def counted(self: Dispatcher, position: int, facts: QueueFacts) -> None:
        # skip dispatchers that only count queue entries or fill index gaps
        if self._index is not None and not isinstance(self._index, GapWriter):
            positions.append(position)
        put(self, position, facts)

    def counted_many(self: Dispatcher, records: Records) -> int:
        taken = put_many(self, records)
        positions.extend(records.physical_offsets[:taken].tolist())
        return taken

    monkeypatch.setattr(Dispatcher, "put", counted)
    monkeypatch.setattr(Dispatcher, "put_many", counted_many)
    return positions


ALIKE = small_settings(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=60_000)


@pytest.fixture(params=[False, True], ids=["one by one", "in bulk"])
def bulk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, pure: None) -> None:
    if not request.param:
        monkeypatch.setattr("messagestore.dispatch.dispatcher.NUMPY", False)


async def killed_store(root: Path) -> None:
    """Leave a killed store: 3,000 records of two topics in one segment; the checkpoint misses the last
    tenth."""
    store = open_store(root, ALIKE)
    await store.start()
    await store.become_master()
    for number in range(1_500):
        key = b"KEYS\x01k%d\x02" % number
        store.append([message(properties=key), message(topic="Other", properties=key)])
        store.set_confirm_offset(store.max_offset())
        if number == 1_350:
            while store.dispatch():
                pass
            await store.flush()
            await store._saved.sync()
            await store._saved.save_checkpoint()
            kept = (root / "checkpoint").read_bytes()
    while store.dispatch():
        pass
    await store.stop()
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(kept)


def test_entries_below_the_checkpoint_are_not_built_again(
    tmp_path: Path, bulk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await killed_store(tmp_path)
        checkpointed = decode_checkpoint((tmp_path / "checkpoint").read_bytes()).confirm_phy_offset
        made = counted_puts(monkeypatch)
        store = open_store(tmp_path, ALIKE)
        report = await store.start()
        assert report.walked_from == 0 and report.walked_records == 3_000
        assert report.confirm_offset == store.dispatched_offset() == checkpointed and made == []
        dispatch_all(store)
        assert min(made) == checkpointed and len(made) == 2 * 149
        assert store.max_queue_offset("TopicTest", 0) == store.max_queue_offset("Other", 0) == 1_500
        for number in (0, 1_350, 1_351, 1_499):
            (found,) = await store.find_by_key("Other", f"k{number}", 9, 0, 1 << 62)
            assert decode(found).queue_offset == number
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("lost", ["all of it", "its end"])
def test_lost_entries_below_the_checkpoint_are_rebuilt(tmp_path: Path, bulk: None, lost: str) -> None:
    async def scenario() -> None:
        await killed_store(tmp_path)
        (file,) = (tmp_path / "consumequeue" / "Other" / "0").iterdir()
        content = file.read_bytes()
        if lost == "all of it":
            file.unlink()
        else:
            file.write_bytes(content[: 700 * 20].ljust(len(content), b"\0"))
        store = open_store(tmp_path, ALIKE)
        report = await store.start()
        assert report.walked_records == 3_000 and report.dispatched_offset == report.confirm_offset
        dispatch_all(store)
        await store.stop()
        assert file.read_bytes() == content

    asyncio.run(scenario())


def test_a_segment_gap_is_an_error_below_the_confirm_offset_and_truncated_above(tmp_path: Path) -> None:
    async def scenario() -> None:
        outcomes = await crashed_store(tmp_path, 120, confirmed=5)
        log_file(tmp_path, SEGMENT).unlink()
        store = await recovered(tmp_path)
        assert store.max_offset() == SEGMENT
        assert not log_file(tmp_path, 2 * SEGMENT).exists()
        store.set_confirm_offset(SEGMENT)
        await store.stop()
        assert outcomes[-1].end_offset > 2 * SEGMENT

        log_file(tmp_path, 2 * SEGMENT).write_bytes(bytes(SEGMENT))
        (tmp_path / "checkpoint").write_bytes(Checkpoint(1, 1, 0, 0, 2 * SEGMENT + 1).encode())
        with pytest.raises(BadSegments, match="is missing"):
            await recovered(tmp_path)

    asyncio.run(scenario())


def test_the_stored_confirm_offset_is_never_ahead_of_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message()])
        dispatch_all(store)
        await store._saved.sync()
        await store._saved.save_checkpoint()
        assert decode_checkpoint((tmp_path / "checkpoint").read_bytes()).confirm_phy_offset == 0
        await store.flush()
        await store._saved.sync()
        await store._saved.save_checkpoint()
        stored = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
        assert stored.confirm_phy_offset == store.max_offset()
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("bit", range(0, 8 * 48, 29))
def test_a_damaged_checkpoint_is_detected_and_the_log_is_kept(tmp_path: Path, bit: int) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message()] * 3)
        store.set_confirm_offset(store.max_offset())
        end = store.max_offset()
        await store.stop()
        path = tmp_path / "checkpoint"
        page = bytearray(path.read_bytes())
        page[bit // 8] ^= 1 << bit % 8
        path.write_bytes(page)
        with pytest.raises(CheckpointDamaged):
            decode_checkpoint(bytes(page))
        store = open_store(tmp_path)
        report = await store.start()
        assert (report.confirm_offset, report.max_offset) == (0, end)
        store.set_confirm_offset(end)
        while store.dispatch():
            pass
        assert store.dispatched_offset() == end
        await store.stop()
        assert decode_checkpoint(path.read_bytes()).confirm_phy_offset == end

    asyncio.run(scenario())


def test_checkpoints_of_older_versions_and_edge_cases_are_read() -> None:
    assert decode_checkpoint(None) == Checkpoint()
    assert decode_checkpoint(Checkpoint(5, 6, 7).encode()[:24]) == Checkpoint(5, 6, 7, 0, 0)
    assert decode_checkpoint(Checkpoint(confirm_phy_offset=-1).encode()).confirm_phy_offset == 0
    assert len(Checkpoint().encode()) == 4096
    assert Checkpoint(10_000, 20_000).min_timestamp == 7_000
    assert Checkpoint(1_000, 20_000).min_timestamp == 0


@pytest.mark.parametrize(
    ("chosen", "folder", "cure"),
    [
        ({"mapped_file_size_commit_log": 8192}, "commitlog", "set mappedFileSizeCommitLog=4096"),
        (
            {"mapped_file_size_consume_queue": 100},
            "consumequeue/TopicTest/0",
            "set mappedFileSizeConsumeQueue=400",
        ),
    ],
)
def test_a_wrong_file_size_setting_is_rejected_with_the_right_one(
    tmp_path: Path, chosen: dict[str, int], folder: str, cure: str
) -> None:
    """Also without a confirm offset, when files after a gap would be deleted as leftovers of a power cut."""

    async def scenario() -> None:
        await crashed_store(tmp_path, 90, confirmed=80)
        (tmp_path / "checkpoint").unlink()
        before = segment_files(tmp_path)
        assert len(before) > 4
        with pytest.raises(BadSegments, match=folder) as refused:
            await open_store(tmp_path, small_settings(**chosen)).start()
        assert cure in str(refused.value)
        assert segment_files(tmp_path) == before

    asyncio.run(scenario())


def test_a_truncated_queue_file_is_distinguished_from_another_setting(tmp_path: Path) -> None:
    async def scenario() -> None:
        await crashed_store(tmp_path, 90, confirmed=80)
        for file in (tmp_path / "consumequeue").rglob("0*0"):
            if file.is_file():
                os.truncate(file, 60)
        with pytest.raises(BadSegments, match="cut short.*delete the folder consumequeue"):
            await open_store(tmp_path, small_settings()).start()

    asyncio.run(scenario())


@pytest.mark.parametrize("clean", [True, False])
def test_the_oldest_segments_may_be_deleted_while_the_store_is_stopped(tmp_path: Path, clean: bool) -> None:
    """Recovery begins with the first remaining segment."""

    async def scenario() -> None:
        outcomes = await crashed_store(tmp_path, 150, confirmed=150)
        if clean:
            (tmp_path / "abort").unlink()
        for start in (0, SEGMENT):
            log_file(tmp_path, start).unlink()
        store = await recovered(tmp_path)
        kept = [number for number, one in enumerate(outcomes) if one.physical_offset >= 2 * SEGMENT]
        assert store.min_offset() == 2 * SEGMENT
        assert store.min_queue_offset("TopicTest", 0) == kept[0] > 0
        assert store.max_queue_offset("TopicTest", 0) == len(outcomes)
        assert store.confirm_offset() == outcomes[-1].end_offset
        await store.become_master()
        (out,) = store.append([message()])
        assert out.queue_offset == len(outcomes)
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("foreign", [".nfs000", "00000000000000000000.bak", "core.17"])
def test_a_foreign_file_among_the_segments_is_named_and_not_deleted(tmp_path: Path, foreign: str) -> None:
    """A core dump sorts after the confirmed segments, where files that are not connected are deleted."""

    async def scenario() -> None:
        await crashed_store(tmp_path, 90, confirmed=80)
        path = tmp_path / "commitlog" / foreign
        path.write_bytes(b"x" * SEGMENT)
        with pytest.raises(BadSegments, match="move this file elsewhere"):
            await open_store(tmp_path).start()
        assert path.exists()
        path.unlink()
        await (await recovered(tmp_path)).stop()

    asyncio.run(scenario())
