"""Cuts the committed part of a log into stretches that workers read on their own.

Invariant: the stretches lie end to end from the start to the bound, each but the last ends where a record begins, and that
is checked again by the worker that reads up to the seam."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from messagestore.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from sparkreplay.errors import LogCorrupted, SegmentGone
from sparkreplay.records.walk import RECORD_SIZE_MAX, Stretch
from sparkreplay.store.files import Files, OpenFile
from sparkreplay.store.snapshot import Segment, StoreSnapshot

SPLIT_BYTES = 256 << 20
"""A task of Spark costs about 60 ms of its own, as much as 30 MB of log."""
FIRST_WINDOW_BYTES, WINDOW_BYTES = 64 << 10, 4 << 20
"""What is searched at a time for a record's beginning: most are found in the first."""
SEARCH_BYTES_MAX = 2 * RECORD_SIZE_MAX
MAGICS = tuple(struct.pack(">I", magic) for magic in (MAGIC_V1, MAGIC_V2))
SIZE_AND_MAGIC = struct.Struct(">II")
PHYSICAL_OFFSET = struct.Struct(">q")
PHYSICAL_OFFSET_AT = 28


def plan(
    store: StoreSnapshot, start: int, end: int, split_bytes: int = SPLIT_BYTES, source: int = 0
) -> list[Stretch]:
    """Stretches of about `split_bytes` that cover [start, end); `start` must be a record's or a segment's beginning."""
    stretches = []
    for segment in store.segments:
        first, last = max(start, segment.start_offset), min(end, segment.end_offset)
        if first >= last:
            continue
        seams = [first, *seams_between(store.files, segment, first, last, split_bytes), last]
        stretches += [
            Stretch(segment, at, to, at_bound=to == end, source=source)
            for at, to in zip(seams, seams[1:], strict=False)
        ]
    return stretches


def seams_between(files: Files, segment: Segment, first: int, last: int, split_bytes: int) -> list[int]:
    """Record boundaries in (first, last), about `split_bytes` apart. Little is read for each, whatever the log's size."""
    seams: list[int] = []
    if first + split_bytes >= last:
        return seams
    try:
        file = files.open(segment.name)
    except FileNotFoundError:
        return seams  # deleted since it was listed: its worker says so
    try:
        searched = first
        for target in range(first + split_bytes, last, split_bytes):
            if target <= searched:
                continue
            seam = record_at_or_after(file, segment, target, last)
            if seam is not None:
                seams.append(seam)
            searched = target + SEARCH_BYTES_MAX if seam is None else seam
    finally:
        file.close()
    return seams


def as_far_as_wanted(stretches: Sequence[Stretch], wanted: Callable[[Stretch], bool]) -> list[Stretch]:
    """The stretches without those that need not be read.

    A seam is proven only by the walk that ends at it, so of a segment all up to its last wanted stretch are kept."""
    last: dict[tuple[int, str], int] = {}
    for stretch in stretches:
        if wanted(stretch):
            last[stretch.source, stretch.segment.name] = stretch.start
    return [
        stretch
        for stretch in stretches
        if stretch.start <= last.get((stretch.source, stretch.segment.name), -1)
    ]


def record_at_or_after(file: OpenFile, segment: Segment, offset: int, end: int) -> int | None:
    """The first record boundary in [offset, end) that can be told without walking: its own physical offset and its
    successor's magic must agree. None where none lies within SEARCH_BYTES_MAX.

    A record forged inside a body may fool it: the worker's seam check finds that."""
    window_bytes = FIRST_WINDOW_BYTES
    at = offset
    while at < min(end, offset + SEARCH_BYTES_MAX):
        window = bytes_at(file, at - segment.start_offset, min(window_bytes, segment.end_offset - at))
        found = first_record(window, at, segment, file, end)
        if found is not None:
            return found
        if len(window) < window_bytes:
            return None
        at += window_bytes - PHYSICAL_OFFSET_AT - PHYSICAL_OFFSET.size
        window_bytes = WINDOW_BYTES
    return None


def bytes_at(file: OpenFile, at: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(memoryview(buffer)[: file.read_into(memoryview(buffer), at)])


def first_record(window: bytes, at: int, segment: Segment, file: OpenFile, end: int) -> int | None:
    candidates = []
    for magic in MAGICS:
        place = window.find(magic, 4)
        while place != -1:
            candidates.append(place - 4)
            place = window.find(magic, place + 1)
    for place in sorted(candidates):
        if at + place >= end:
            return None
        if place + PHYSICAL_OFFSET_AT + PHYSICAL_OFFSET.size > len(window):
            continue
        size = SIZE_AND_MAGIC.unpack_from(window, place)[0]
        if PHYSICAL_OFFSET.unpack_from(window, place + PHYSICAL_OFFSET_AT)[0] != at + place:
            continue
        if not RECORD_SIZE_MIN <= size <= RECORD_SIZE_MAX:
            continue
        after = bytes_at(file, at + place + size - segment.start_offset, SIZE_AND_MAGIC.size)
        if len(after) < SIZE_AND_MAGIC.size or SIZE_AND_MAGIC.unpack(after)[1] in (
            MAGIC_V1,
            MAGIC_V2,
            MAGIC_BLANK,
            0,
        ):
            return at + place
    return None


def require_boundary(store: StoreSnapshot, offset: int) -> None:
    """Raises LogCorrupted when no record, and no segment, begins at `offset`."""
    for segment in store.segments:
        if segment.start_offset < offset < segment.end_offset:
            try:
                file = store.files.open(segment.name)
            except FileNotFoundError:
                raise SegmentGone(segment.path) from None
            try:
                found = record_at_or_after(file, segment, offset, offset + 1)
            finally:
                file.close()
            if found != offset:
                raise LogCorrupted(segment.path, offset, "no record begins here, so no read can start here")
