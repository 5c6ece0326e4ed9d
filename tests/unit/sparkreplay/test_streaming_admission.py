"""The end of a batch: at a record boundary, within the limits, found by walking from the last known one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkreplay.errors import LogCorrupted, OptionError
from sparkreplay.records.walk import RecordChunk, chunks_of
from sparkreplay.store.snapshot import StoreSnapshot, open_store
from sparkreplay.stream import admission
from sparkreplay.stream.admission import Admission, BatchCut, cut, read_admission, shares
from tests.unit.sparkreplay.storefolder import StoreFolder, record


def grown(root: Path, count: int = 100) -> tuple[StoreFolder, StoreSnapshot]:
    folder = StoreFolder(root, segment_bytes=4096)
    for number in range(count):
        folder.add(body=bytes(number % 7 * 20))
    return folder, open_store(folder.write())


def starts_of(folder: StoreFolder) -> list[int]:
    """Where a record begins, or would: after a file's last record that is the next file."""
    size = folder.segment_bytes
    full = [
        -(-end // size) * size
        if index + 1 < len(folder.ends) and folder.ends[index + 1] // size > end // size
        else end
        for index, end in enumerate(folder.ends)
    ]
    return [0, *full]


def unlimited(store: StoreSnapshot, start: int, end: int, *, count: bool = False) -> BatchCut:
    return cut(store, start, end, max_bytes=None, max_messages=None, count=count)


def test_a_bound_inside_a_record_is_cut_to_where_the_record_begins(tmp_path: Path) -> None:
    folder, store = grown(tmp_path)
    for begin, end in zip(starts_of(folder), folder.ends, strict=False):
        for bound in (begin, begin + 1, begin + 8, end - 1):
            assert unlimited(store, 0, bound).offset == begin


def test_a_batch_ends_at_a_record_boundary_within_any_byte_limit(tmp_path: Path) -> None:
    folder, store = grown(tmp_path)
    boundaries = set(starts_of(folder)) | set(folder.ends)
    for limit in (1, 150, 500, 4095, 4096, 4097, 100_000):
        at = 0
        while True:
            found = cut(store, at, store.bound, max_bytes=limit, max_messages=None).offset
            if found == at:
                break
            assert found in boundaries and at < found
            first = next(end for end in folder.ends if end > at)
            last = max(end for end in folder.ends if end <= found)
            assert last - at <= max(limit, first - at)
            at = found
        assert at == folder.ends[-1]


def test_a_limit_of_messages_is_met_exactly_across_files(tmp_path: Path) -> None:
    folder, store = grown(tmp_path)
    at = 0
    for passed in range(13, 100, 13):
        found = cut(store, at, store.bound, max_bytes=None, max_messages=13)
        assert found.messages == 13
        assert sum(end <= found.offset for end in folder.ends) == passed
        at = found.offset


def test_both_limits_hold_at_once(tmp_path: Path) -> None:
    folder, store = grown(tmp_path)
    by_count = cut(store, 0, store.bound, max_bytes=100_000, max_messages=2).offset
    by_bytes = cut(store, 0, store.bound, max_bytes=folder.ends[1], max_messages=50).offset
    assert by_count == by_bytes == folder.ends[1]


def test_messages_are_counted_up_to_the_bound(tmp_path: Path) -> None:
    _, store = grown(tmp_path)
    assert unlimited(store, 0, store.bound, count=True) == BatchCut(store.bound, 100)


def test_a_batch_end_is_found_from_the_last_one_without_walking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = grown(tmp_path)
    half = cut(store, 0, folder.ends[49], max_bytes=None, max_messages=None, count=True)
    walked = watch_walks(monkeypatch)
    whole = cut(store, 0, store.bound, max_bytes=None, max_messages=None, count=True, walked=half)
    assert whole == BatchCut(store.bound, 100)
    assert min(walked) == half.offset


def test_a_batch_end_beyond_the_new_limits_is_walked_again(tmp_path: Path) -> None:
    folder, store = grown(tmp_path)
    far = cut(store, 0, store.bound, max_bytes=None, max_messages=None, count=True)
    by_bytes = cut(store, 0, store.bound, max_bytes=folder.ends[4], max_messages=None, count=True, walked=far)
    by_count = cut(store, 0, store.bound, max_bytes=None, max_messages=5, count=True, walked=far)
    assert by_bytes == by_count == BatchCut(folder.ends[4], 5)


def test_without_a_count_only_the_last_file_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = grown(tmp_path)
    walked = watch_walks(monkeypatch)
    assert unlimited(store, 0, store.bound).offset == store.bound
    assert walked == [store.segments[-1].start_offset]


def watch_walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    walked: list[int] = []

    def watched(files: Any, stretch: Any) -> Iterator[RecordChunk]:
        walked.append(stretch.start)
        return chunks_of(files, stretch)

    monkeypatch.setattr(admission, "chunks_of", watched)
    return walked


def test_a_record_forged_inside_a_body_is_no_boundary(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path)
    at = folder.add()
    inside = folder.ends[-1] + 88
    folder.add(body=record(inside) + record(inside + len(record(inside))))
    store = open_store(folder.write())
    assert unlimited(store, at, inside + len(record(inside))).offset == folder.ends[0]


def test_a_bound_above_the_records_is_a_failure(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path)
    folder.add()
    store = open_store(folder.write(confirm=folder.ends[-1] + 64))
    with pytest.raises(LogCorrupted, match=str(folder.ends[-1])):
        unlimited(store, 0, store.bound)


def test_a_limit_is_shared_by_pending_bytes_and_each_set_gets_some() -> None:
    assert shares(100, {"a": 300, "b": 100}) == {"a": 75, "b": 25}
    assert shares(100, {"a": 1_000_000, "b": 1, "c": 0}) == {"a": 99, "b": 1}
    assert shares(1, {"a": 10, "b": 10}) == {"a": 1, "b": 1}


def test_limits_are_read_from_options() -> None:
    given = {
        "maxbytespertrigger": "512m", "maxoffsetspertrigger": "1000", "minoffsetspertrigger": "10",
        "maxtriggerdelay": "30s",
    }  # fmt: skip
    assert read_admission(given) == Admission(512 << 20, 1000, 10, 30.0)
    assert read_admission({}) == Admission(None, None, None, 900.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxbytespertrigger", "much"),
        ("maxbytespertrigger", f"{2**33}g"),  # Spark carries limits in 63 bits
        ("maxbytespertrigger", "9" * 5000),
        ("maxoffsetspertrigger", str(2**63)),
        ("maxoffsetspertrigger", "0"),
        ("maxoffsetspertrigger", "-1"),
        ("minoffsetspertrigger", "ten"),
        ("maxtriggerdelay", "15"),
        ("maxtriggerdelay", "m"),
        ("maxtriggerdelay", "9" * 5000 + "s"),
        ("maxtriggerdelay", "15 minutes"),
    ],
)
def test_an_invalid_limit_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_admission({name: value})
    assert raised.value.option.lower() == name


def test_a_least_number_above_the_greatest_is_refused() -> None:
    with pytest.raises(OptionError, match="above maxOffsetsPerTrigger"):
        read_admission({"maxoffsetspertrigger": "5", "minoffsetspertrigger": "6"})
