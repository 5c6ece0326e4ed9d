"""Marks of a log in a stream's offset, so that the stream does not continue in another log of the same name.

Invariant: a mark is a hash of committed bytes, which never change in a log. It is the same in every process and on every
replica of the set. If a replica has deleted these bytes, or does not hold them yet, the mark is not compared."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from sparkreplay.errors import SegmentGone
from sparkreplay.store.replicas import head_bytes
from sparkreplay.store.samelog import HASH_DIGITS, Marks, is_begun, mark
from sparkreplay.store.segments import NAME_DIGITS, Segment, open_segment
from sparkreplay.store.snapshot import StoreSnapshot

TAIL_BYTES = 64 << 10
"""A log that was set back and written again differs only at its end. This many bytes hold the heads of many records, or the
unique key of a large record."""
HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class LogMarks:
    """The marks of one broker set's log. Heads are hashes of segments' beginnings, and differ for logs that differ early. The
    tail is a hash of the bytes just below the offset, and differs for logs that differ late."""

    cluster: str = ""
    """The cluster's name; empty if no store names it."""
    heads: Marks = field(default_factory=dict)
    """The head of the segment where the log began when the stream began, which a log created again will soon have too, and the
    head of the segment below the offset."""
    tail: str = ""
    """A hash of at most TAIL_BYTES below the offset in its segment. Empty at a segment's end, where bytes are filler."""

    def to_json(self) -> dict[str, Any]:
        return {"cluster": self.cluster, "heads": dict(self.heads), "tail": self.tail}

    @classmethod
    def from_json(cls, value: object) -> LogMarks:
        """Raises ValueError for a value that to_json has not made."""
        if not isinstance(value, Mapping) or value.keys() != {"cluster", "heads", "tail"}:
            raise ValueError("its marks of the log are incomplete")
        cluster, heads, tail = value["cluster"], value["heads"], value["tail"]
        if (
            not isinstance(cluster, str)
            or not isinstance(heads, Mapping)
            or not (tail == "" or is_hash(tail))
        ):
            raise ValueError("its marks of the log are damaged")
        if not all(is_offset(start) and is_hash(found) for start, found in heads.items()):
            raise ValueError("its marks of the log's segments are damaged")
        return cls(cluster, dict(heads), tail)


def is_offset(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < NAME_DIGITS


def is_hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == HASH_DIGITS and set(value) <= HEX


def marks_at(store: StoreSnapshot, begin: int, offset: int, before: LogMarks) -> LogMarks:
    """The marks at `offset`. The oldest head is taken over from the marks `before`; if these have none, it is that of the
    segment with `begin`, which is below `offset`."""
    last = segment_with(store, offset - 1)
    if before.heads:
        oldest = min(before.heads, key=int)
        heads = {oldest: before.heads[oldest]}
    else:
        heads = head_of(store, segment_with(store, begin))
    heads |= head_of(store, last)
    tail = (last and tail_of(store, last, offset)) or ""
    return LogMarks(before.cluster or store.cluster_name, heads, tail)


@dataclass(frozen=True)
class Apart:
    """A difference between a log and the marks. It lies below physical offset `end`. If `end` is 0, no byte was compared,
    because the log is of another cluster."""

    end: int
    why: str


def first_apart(store: StoreSnapshot, offset: int, marks: LogMarks) -> Apart | None:
    """The first of the marks at `offset` that the store contradicts."""
    if marks.cluster and store.cluster_name and marks.cluster != store.cluster_name:
        return Apart(0, f"it is of cluster {store.cluster_name}, that one of cluster {marks.cluster}")
    for segment in store.segments:
        was = marks.heads.get(str(segment.start_offset))
        if was is not None and head_of(store, segment).get(str(segment.start_offset), was) != was:
            start = segment.start_offset
            return Apart(start + head_bytes(segment), f"it has another record at {start}")
    last = segment_with(store, offset - 1)
    if not marks.tail or last is None or store.bound < offset:
        return None
    if tail_of(store, last, offset) in (marks.tail, None):
        return None
    return Apart(offset, f"it has other records in [{tail_start(last, offset)}, {offset})")


def segment_with(store: StoreSnapshot, offset: int) -> Segment | None:
    return next((one for one in store.segments if one.start_offset <= offset < one.end_offset), None)


def head_of(store: StoreSnapshot, segment: Segment | None) -> Marks:
    """The head of a segment; empty if the segment was deleted since it was listed, or its first record is above the bound."""
    if segment is None or not is_begun(store, segment):
        return {}
    try:
        return {str(segment.start_offset): mark(store, segment)}
    except SegmentGone:
        return {}


def tail_start(segment: Segment, offset: int) -> int:
    return max(segment.start_offset, offset - TAIL_BYTES)


def tail_of(store: StoreSnapshot, segment: Segment, offset: int) -> str | None:
    """The hash of the bytes just below an offset. It is empty at the segment's end, and None if the segment was deleted since
    it was listed."""
    if offset == segment.end_offset:
        return ""
    start = tail_start(segment, offset)
    buffer = np.zeros(offset - start, np.uint8)
    try:
        file = open_segment(store.files, segment)
    except SegmentGone:
        return None
    with closing(file):
        held = file.read_into(buffer.data, start - segment.start_offset)
    first = segment.framing.first_boundary(buffer, start)
    segment.framing.normalised(buffer[first:], start + first)
    return sha256(buffer[first:held].data).hexdigest()[:HASH_DIGITS]
