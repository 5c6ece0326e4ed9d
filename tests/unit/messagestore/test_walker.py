"""Walks over logs without a store."""

from __future__ import annotations

import pytest

from messagestore.errors import BadSegments, StoreCorrupted
from messagestore.record import encode, encode_blank
from messagestore.walker import SegmentWalk, Stop, WalkedSegment, order_segments, segment_name, walk
from tests.unit.messagestore.storehelp import worked

SIZE = 512


def stored_at(offset: int) -> bytes:
    message = worked()
    message.physical_offset = offset
    return encode(message)


def log_of(*counts: int) -> dict[str, bytes]:
    """Segments with that many worked records each; all but the last end with a BLANK."""
    contents = {}
    for number, count in enumerate(counts):
        start = number * SIZE
        content = b"".join(stored_at(start + place * 122) for place in range(count))
        if number + 1 < len(counts):
            content += encode_blank(SIZE - len(content))
        contents[segment_name(start)] = content.ljust(SIZE, b"\0")
    return contents


def offsets(contents: dict[str, bytes], position: int, limit: int) -> list[int]:
    segments = order_segments("log", [(name, len(content)) for name, content in contents.items()])
    return [offset for _, _, offset, _ in walk(segments, lambda s: contents[s.name], position, limit)]


def test_a_walk_covers_all_segments_up_to_the_limit() -> None:
    contents = log_of(3, 2)
    assert offsets(contents, 0, SIZE + 244) == [0, 122, 244, 512, 634]
    assert offsets(contents, 122, SIZE + 200) == [122, 244, 512]
    assert offsets(contents, 512, 634) == [512]
    assert offsets(contents, 0, 0) == []


def test_a_limit_in_the_blank_of_a_segment_ends_the_walk_without_error() -> None:
    assert offsets(log_of(3, 2), 0, 500) == [0, 122, 244]


def test_an_unreadable_record_below_the_limit_is_an_error_with_its_offset() -> None:
    contents = log_of(3, 2)
    with pytest.raises(StoreCorrupted) as caught:
        offsets(contents, 0, SIZE + 245)
    assert (caught.value.offset, caught.value.limit) == (SIZE + 244, SIZE + 245)
    del contents[segment_name(512)]
    with pytest.raises(StoreCorrupted, match="no segment"):
        offsets(contents, 0, SIZE + 122)
    with pytest.raises(StoreCorrupted, match="no segment"):
        offsets({segment_name(512): log_of(1, 1)[segment_name(512)]}, 0, SIZE + 122)


def test_a_record_with_another_physical_offset_ends_the_walk() -> None:
    moved = stored_at(0) + stored_at(0)
    steps = SegmentWalk(moved.ljust(SIZE, b"\0"), 0, 0, SIZE)
    assert list(steps) == [(0, 122)]
    assert (steps.stop, steps.position) == (Stop.INVALID, 122)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([("00000000000000000000", 512), ("00000000000000001024", 512)], "00000000000000000512 is missing"),
        ([("00000000000000000000", 512), ("00000000000000000512", 511)], "511 bytes"),
        ([("00000000000000000100", 512)], "multiple"),
        ([("readme", 512)], "20 digits"),
        ([("0000000000000000000x", 512)], "20 digits"),
    ],
)
def test_files_that_are_no_sequence_are_rejected_by_name(files: list[tuple[str, int]], why: str) -> None:
    with pytest.raises(BadSegments, match=why):
        order_segments("log", files, 512)


def test_a_log_may_start_above_zero() -> None:
    assert order_segments("log", [("00000000000000001024", 512)]) == [
        WalkedSegment(1024, "00000000000000001024", 512)
    ]
