"""The marks that identify a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparkreplay.store.samelog import first_apart, marks_of
from sparkreplay.store.snapshot import open_store
from tests.unit.sparkreplay.storefolder import StoreFolder

SEGMENT_BYTES = 16384


def folder(root: Path, fill: int = 7) -> str:
    store = StoreFolder(root, SEGMENT_BYTES)
    for _ in range(200):
        store.add(body=bytes([fill]) * 700)
    return store.write()


def test_the_first_and_the_last_segment_are_marked_in_this_order(
    tmp_path: Path,
) -> None:
    whole = open_store(folder(tmp_path))
    for number in range(1, len(whole.segments)):
        store = replace(whole, segments=whole.segments[: number + 1])
        assert list(marks_of(store)) == ["0", str(number * SEGMENT_BYTES)]
    assert list(marks_of(replace(whole, segments=whole.segments[:1]))) == ["0"]


def test_a_log_is_recognised_by_its_marks_and_another_one_is_not(tmp_path: Path) -> None:
    store = open_store(folder(tmp_path / "one"))
    marks = marks_of(store)
    assert first_apart(store, marks) is None
    assert first_apart(replace(store, segments=store.segments[1:]), marks) is None
    other = open_store(folder(tmp_path / "other", fill=8))
    assert first_apart(other, marks) == 0
    assert first_apart(replace(other, segments=other.segments[1:]), marks) == other.segments[-1].start_offset
