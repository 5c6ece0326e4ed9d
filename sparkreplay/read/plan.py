"""Splits the committed part of a log into stretches that workers read independently.

Invariant: the stretches are contiguous from the start to the bound, and each but the last ends at a record boundary, the split
point. The worker that reads up to a split point checks that it is a boundary."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import closing

from messagestore.record import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from sparkreplay.errors import OptionError, SegmentGone
from sparkreplay.records.walk import Stretch
from sparkreplay.store.files import Files, OpenFile
from sparkreplay.store.framing import PREFIX, RECORD_SIZE_MAX
from sparkreplay.store.segments import open_segment
from sparkreplay.store.snapshot import Segment, StoreSnapshot

SPLIT_BYTES = 256 << 20
"""A Spark task costs about 60 ms in addition to its work, as much as reading 30 MB of log."""
FIRST_WINDOW_BYTES, WINDOW_BYTES = 64 << 10, 4 << 20
"""Bytes that are searched at a time for a record's beginning. Most beginnings are in the first window."""
SEARCH_BYTES_MAX = 2 * RECORD_SIZE_MAX
MAGICS = tuple(struct.pack(">I", magic) for magic in (MAGIC_V1, MAGIC_V2))
PHYSICAL_OFFSET = struct.Struct(">q")
PHYSICAL_OFFSET_AT = 28


def plan(
    store: StoreSnapshot, start: int, end: int, split_bytes: int = SPLIT_BYTES, source: int = 0
) -> list[Stretch]:
    """Stretches of about `split_bytes` that cover [start, end). `start` must be the beginning of a record or of a segment."""
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
    """Record boundaries in (first, last), about `split_bytes` apart. For each boundary little is read, whatever the log's
    size."""
    seams: list[int] = []
    if first + split_bytes >= last:
        return seams
    try:
        file = files.open(segment.name)
    except FileNotFoundError:
        return seams  # deleted since it was listed: the worker reports it
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
    """The given stretches without those that no one needs to read.

    Only the walk that ends at a split point verifies it, so all stretches of a segment up to its last wanted one are kept."""
    last: dict[tuple[int, str], int] = {}
    for stretch in stretches:
        if wanted(stretch):
            last[stretch.source, stretch.segment.name] = stretch.start
    return [
        stretch
        for stretch in stretches
        if stretch.start <= last.get((stretch.source, stretch.segment.name), -1)
    ]


def record_at_or_after(
    file: OpenFile, segment: Segment, offset: int, end: int, upto: int | None = None
) -> int | None:
    """The first record boundary in [offset, upto) that can be recognised without reading the log up to it. The record must
    contain its own physical offset, and a record must begin after it, unless that place is at or above the `end` of the read.
    `upto` defaults to `end`. None if no such boundary lies within SEARCH_BYTES_MAX.

    Bytes inside a message's body may look like a record. The worker's check at the split point finds that."""
    window_bytes = FIRST_WINDOW_BYTES
    at = offset
    limit = min(end if upto is None else upto, offset + SEARCH_BYTES_MAX)
    while at < limit:
        window = bytes_at(file, at - segment.start_offset, min(window_bytes, segment.end_offset - at))
        found = first_record(window, at, segment, file, limit, end)
        if found is not None:
            return found
        if len(window) < window_bytes:
            return None
        at += window_bytes - segment.framing.lead_bytes - PHYSICAL_OFFSET_AT - PHYSICAL_OFFSET.size
        window_bytes = WINDOW_BYTES
    return None


def bytes_at(file: OpenFile, at: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(memoryview(buffer)[: file.read_into(memoryview(buffer), at)])


def first_record(
    window: bytes, at: int, segment: Segment, file: OpenFile, limit: int, end: int
) -> int | None:
    framing = segment.framing
    lead = framing.lead_bytes
    candidates = []
    for magic in MAGICS:
        place = window.find(magic, lead + 4)
        while place != -1:
            candidates.append(place - 4)
            place = window.find(magic, place + 1)
    for place in sorted(candidates):
        boundary = at + place - lead
        if boundary >= limit:
            return None
        if place + PHYSICAL_OFFSET_AT + PHYSICAL_OFFSET.size > len(window):
            continue
        size = PREFIX.unpack_from(window, place)[0]
        if PHYSICAL_OFFSET.unpack_from(window, place + PHYSICAL_OFFSET_AT)[0] != at + place:
            continue
        if not RECORD_SIZE_MIN <= size <= RECORD_SIZE_MAX:
            continue
        if not framing.leads(window[place - lead : place], at + place, size):
            continue
        if at + place + size >= end:
            return boundary
        after = bytes_at(file, at + place + size - segment.start_offset, PREFIX.size)
        if len(after) < PREFIX.size or framing.may_follow(after):
            return boundary
    return None


def begins_at(store: StoreSnapshot, offset: int) -> bool:
    """Whether a frame or the end of a segment's records is at `offset`, or the bytes there are deleted."""
    for segment in store.segments:
        if segment.start_offset <= offset < segment.end_offset:
            left = segment.end_offset - offset
            if left < PREFIX.size:
                return False
            try:
                file = open_segment(store.files, segment)
            except SegmentGone:
                return True
            with closing(file):
                if record_at_or_after(file, segment, offset, store.bound, upto=offset + 1) == offset:
                    return True
                head = bytes_at(file, offset - segment.start_offset, PREFIX.size + segment.framing.lead_bytes)
            return segment.framing.begins_frame(head, offset, left)
    return False


def boundary_of(store: StoreSnapshot, offset: int) -> int:
    """Where the frame of the record at `offset` begins; `offset` itself if no record is there."""
    for segment in store.segments:
        lead = segment.framing.lead_bytes
        if lead and segment.start_offset + lead <= offset < segment.end_offset:
            return offset - lead if begins_at(store, offset - lead) else offset
    return offset


def require_boundary(store: StoreSnapshot, offset: int) -> None:
    """Raise OptionError if no record, end-of-file record or segment begins at the starting offset `offset`."""
    for segment in store.segments:
        if segment.start_offset < offset < segment.end_offset and not begins_at(store, offset):
            raise OptionError(
                "startingOffsets",
                f"no record begins at {offset}, in {segment.path}; give the physical_offset of a row, or where it ends: "
                "physical_offset + store_size",
            )
