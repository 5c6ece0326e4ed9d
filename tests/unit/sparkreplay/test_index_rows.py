"""Rows found through consume queues are the rows of a walk. A wrong entry fails the read."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkreplay.errors import IndexUnusable
from sparkreplay.read import index
from sparkreplay.read.index import indexed_end
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.store.files import LocalFiles
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import both_ways
from tests.unit.sparkreplay.stores import MIXES, folder, grown


def some_store(root: Path, count: int = 300, segment_bytes: int = 16384) -> StoreFolder:
    store = StoreFolder(root, segment_bytes)
    for number in range(count):
        store.add(
            topic=("orders", "payments", "clicks")[number % 3], queue_id=number % 4, body=bytes(number % 200)
        )
    return store


def test_records_of_a_topic_named_as_a_light_queue_are_walked_for(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    for number in range(6):
        store.add(topic=("%LMQ%a", "orders")[number % 2])
    path = store.write()
    store.write_queues()
    walked, indexed = both_ways(path, topic="%LMQ%a,orders")
    assert len(walked) == 6 and indexed == walked


@settings(max_examples=60)
@given(
    MIXES,
    st.sampled_from((8192, 16384)),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from((None, "orders", "payments")),
)
def test_index_and_walk_give_the_same_rows_with_any_index_lag(
    mix: list[tuple[dict[str, Any], int]], segment_bytes: int, bound: float, lag: float, topic: str | None
) -> None:
    with folder(segment_bytes) as store:
        grown(store, mix)
        path = store.write(confirm=int(bound * len(store.log)) if bound < 0.8 else len(store.log))
        (store.root / "consumequeue").mkdir()
        store.write_queues(count=int(lag * len(store.records)) if lag < 0.8 else None)
        options = {} if topic is None else {"topic": topic}
        try:
            walked, indexed = both_ways(path, splitBytes="4096", **options)
        except Exception as error:
            assert b"forged" in store.log and "seam" in str(error)
            return
        assert indexed == walked


def test_records_that_lie_far_apart_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "GAP_BYTES_MAX", 100)
    store = some_store(tmp_path, segment_bytes=1 << 20)
    path = store.write()
    store.write_queues()
    walked, indexed = both_ways(path, topic="clicks", queues="1,2")
    assert indexed == walked and len(indexed) == 50


def test_queues_with_deleted_first_files_are_read_from_the_remaining_ones(tmp_path: Path) -> None:
    store = some_store(tmp_path)
    path = store.write()
    store.write_queues(entries_of_file=5)
    store.delete_first(1)
    for queue in (tmp_path / "consumequeue").glob("*/*"):
        (queue / f"{0:020d}").unlink()
    walked, indexed = both_ways(path, topic="orders")
    assert indexed == walked and indexed


def test_fillers_in_front_of_a_queue_are_no_entries(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, 16384)
    store.next_queue_offset["orders", 0] = 7
    for _ in range(20):
        store.add()
    path = store.write()
    entries = b"".join(
        struct.pack(">qiq", at, end - at, 0)
        for (_, _, at), end in zip(store.records, store.ends, strict=True)
    )
    folder = tmp_path / "consumequeue" / "orders" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(
        (struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 7 + entries).ljust(1000, b"\0")
    )
    walked, indexed = both_ways(path, topic="orders")
    assert indexed == walked and [row["queue_offset"] for row in indexed] == list(range(7, 27))


def gapped_entries(store: StoreFolder) -> bytes:
    """Of the only queue: where the log skips queue offsets, fillers that name the record behind them."""
    entries, due = b"", 0
    for at, end in zip((at for _, _, at in store.records), store.ends, strict=True):
        (queue_offset,) = struct.unpack_from(">q", store.log, at + 20)
        entries += struct.pack(">qiq", 0, 0x7FFFFFFF, at if due else 0) * (queue_offset - due)
        entries += struct.pack(">qiq", at, end - at, 0)
        due = queue_offset + 1
    return entries


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from((0, 0, 0, 1, 3, 700, 1500)), min_size=1, max_size=40),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_fillers_in_the_middle_of_a_queue_are_no_entries(skips: list[int], bound: float, lag: float) -> None:
    with folder(4096) as store:
        for skip in skips:
            store.next_queue_offset["orders", 0] = store.next_queue_offset.get(("orders", 0), 0) + skip
            store.add()
        path = store.write(confirm=int(bound * len(store.log)) if bound < 0.8 else len(store.log))
        entries = gapped_entries(store)
        held = entries[: int(lag * len(entries)) // 20 * 20] if lag < 0.8 else entries
        queue = store.root / "consumequeue" / "orders" / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(held.ljust(len(entries) + 200, b"\0"))
        walked, indexed = both_ways(path, topic="orders", splitBytes="4096")
        assert indexed == walked


def test_after_a_crash_only_entries_below_the_checkpoint_are_used(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, 1 << 22)
    for number in range(3000):
        store.add(
            topic=("orders", "payments")[number % 2],
            body=bytes(900),
            stored_ms=1_700_000_000_000 + number * 10,
        )
    path = store.write()
    store.write_queues(entries_of_file=1500)
    whole = indexed_end(plan_read(read_options({"path": path})).sources[0].store, len(store.log))
    assert whole == len(store.log)
    (tmp_path / "abort").touch()
    vouched = 1_700_000_000_000 + 20_000
    (tmp_path / "checkpoint").write_bytes(
        struct.pack(">5q", vouched, vouched, 0, 0, len(store.log)).ljust(4096, b"\0")
    )
    lost = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    lost.write_bytes(lost.read_bytes()[: 1200 * 20].ljust(1500 * 20, b"\0"))  # the power took the last 300
    walked, indexed = both_ways(path, topic="orders")
    assert indexed == walked and len(indexed) == 1500
    assert 0 < indexed_end(plan_read(read_options({"path": path})).sources[0].store, len(store.log)) < whole


@pytest.mark.parametrize(
    ("place", "entry"),
    [
        (1, (0, 103, 0)),  # overlaps the one before
        (2, (5000, 110, 0)),  # leads into another record
        (3, (2**62, 110, 0)),  # far beyond the log
        (2, (600, 2**31 - 2, 0)),
        (2, (600, -5, 0)),
        (2, (-600, 110, 0)),
    ],
)
def test_an_entry_with_a_wrong_offset_fails_the_read(
    tmp_path: Path, place: int, entry: tuple[int, int, int]
) -> None:
    store = some_store(tmp_path)
    path = store.write()
    store.write_queues()
    queue = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    struct.pack_into(">qiq", data, place * 20, *entry)
    queue.write_bytes(data)
    with pytest.raises(IndexUnusable, match="index=consumequeue"):
        both_ways(path, topic="orders")


def test_a_queue_with_a_missing_entry_fails_the_read(tmp_path: Path) -> None:
    store = some_store(tmp_path)
    path = store.write()
    store.write_queues(entries_of_file=100)
    queue = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = queue.read_bytes()
    queue.write_bytes((data[:100] + data[120:]).ljust(len(data), b"\0"))
    with pytest.raises(IndexUnusable, match="entry 5 of queue orders/0"):
        both_ways(path, topic="orders")


def test_a_queue_without_its_first_file_fails_when_the_log_is_complete(tmp_path: Path) -> None:
    store = some_store(tmp_path)
    path = store.write()
    store.write_queues()
    (tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}").unlink()
    with pytest.raises(IndexUnusable, match="orders/0: begins at entry 20 only"):
        both_ways(path, topic="orders")


def test_entries_of_another_topic_of_the_same_queue_number_are_a_failure(tmp_path: Path) -> None:
    store = some_store(tmp_path)
    path = store.write()
    store.write_queues()
    queues = tmp_path / "consumequeue"
    shutil.rmtree(queues / "orders")
    shutil.copytree(queues / "payments", queues / "orders")
    with pytest.raises(IndexUnusable, match="topics"):
        both_ways(path, topic="orders")


def test_topics_without_queues_of_their_own_are_walked_for(tmp_path: Path) -> None:
    store = some_store(tmp_path)
    path = store.write()
    store.write_queues()
    shutil.rmtree(tmp_path / "consumequeue" / "orders")  # the topic was deleted, its messages were not
    (tmp_path / "batchconsumequeue" / "payments").mkdir(parents=True)
    for options in (
        {},
        {"topic": "orders"},
        {"topic": "payments"},
        {"topic": "orders,clicks"},
        {"topic": "none"},
    ):
        walked, indexed = both_ways(path, **options)
        assert indexed == walked


def test_a_store_without_queues_or_with_links_among_them_is_refused(tmp_path: Path) -> None:
    store = some_store(tmp_path / "a")
    path = store.write()
    with pytest.raises(IndexUnusable, match="is not there"):
        both_ways(path, topic="orders")
    store.write_queues()
    (tmp_path / "a" / "consumequeue" / "linked").symlink_to(tmp_path)
    with pytest.raises(IndexUnusable, match="is not a folder"):
        both_ways(path, topic="linked")


def test_a_store_that_holds_nothing_needs_no_queues(tmp_path: Path) -> None:
    path = StoreFolder(tmp_path).write()
    read = plan_read(read_options({"path": path, "index": "consumequeue"}))
    assert list(read_all(read)) == []


@pytest.mark.parametrize("gone", ["consumequeue/orders", f"consumequeue/orders/0/{0:020d}"])
def test_queues_deleted_during_a_read_are_named(
    tmp_path: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = some_store(tmp_path)
    path = store.write()
    store.write_queues()

    def after_it_went(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(files: LocalFiles, name: str) -> Any:
            if name == gone:
                raise FileNotFoundError(name)
            return function(files, name)

        return call

    monkeypatch.setattr(LocalFiles, "entries", after_it_went(LocalFiles.entries))
    monkeypatch.setattr(LocalFiles, "open", after_it_went(LocalFiles.open))
    with pytest.raises(IndexUnusable, match=f"{gone}: was deleted while"):
        both_ways(path, topic="orders")
