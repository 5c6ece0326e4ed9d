"""Walk stored records without a running store, for recovery, tools and batch readers.

Invariant: a walk starts at a record boundary, and yields whole valid records in order, but no record that ends beyond the
limit. Stale records of a truncated tail look valid, so the limit is always an argument and never found by walking. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from messagestore.errors import BadSegments, OtherSegmentSize, StoreCorrupted
from messagestore.record import END_OF_SEGMENT, Buffer, check

NAME_DIGITS = 20


class Stop(Enum):
    """Why a walk over one segment ended."""

    LIMIT = "the limit is reached"
    END_OF_SEGMENT = "the segment ends here; continue with the next one"
    INVALID = "no whole valid record is here"


class WalkedSegment(NamedTuple):
    """One file of a log."""

    start_offset: int
    name: str
    size_bytes: int


def segment_name(start_offset: int) -> str:
    """The name of a segment file, such as `00000000001073741824`."""
    return f"{start_offset:0{NAME_DIGITS}d}"


def order_segments(
    folder: str, files: Iterable[tuple[str, int]], segment_size: int | None = None
) -> list[WalkedSegment]:
    """The files of one log by offset. Raises BadSegments for a name that is no offset, a size that differs from `segment_size`
    or from the first file's size, or a gap between two files."""
    segments: list[WalkedSegment] = []
    files = sorted(files)
    check_names(folder, files)
    for name, size in files:
        segment_size = segment_size or size
        if size != segment_size:
            raise BadSegments(
                folder, name, f"has {size} bytes instead of {segment_size}; restore it from a copy"
            )
        start = int(name)
        if start % segment_size:
            raise BadSegments(
                folder, name, f"does not start at a multiple of {segment_size}, the size of the files"
            )
        if segments and start != segments[-1].start_offset + segment_size:
            expected = segment_name(segments[-1].start_offset + segment_size)
            raise BadSegments(folder, name, f"follows {segments[-1].name}, {expected} is missing; restore it")
        segments.append(WalkedSegment(start, name, size))
    return segments


def check_names(folder: str, files: Iterable[tuple[str, int]]) -> None:
    """Raise BadSegments for a name that is no offset. Call this before a file is deleted because of its name."""
    for name, _ in files:
        if len(name) != NAME_DIGITS or not (name.isascii() and name.isdigit()):
            raise BadSegments(folder, name, "not a segment: names are 20 digits; move this file elsewhere")


def check_size_set(folder: str, files: Collection[tuple[str, int]], segment_size: int, key: str) -> None:
    """Raise OtherSegmentSize if all files have the same size, but another than the setting `key`. Call this before the names
    are used."""
    sizes = {size for _, size in files if size}
    if len(sizes) == 1 and segment_size not in sizes:
        (size,) = sizes
        why = f"files have {size} bytes, {key} says {segment_size}; set {key}={size}: a store keeps the size it began with"
        if size < segment_size:
            why += "; if they were cut short instead, restore them, or, of consume queues, delete the folder consumequeue: "
            why += "it is rebuilt from the commit log"
        raise OtherSegmentSize(folder, why, size, len(files))


class SegmentWalk:
    """Iterates (physical_offset, total_size) over one segment from `position` up to `limit`, both physical offsets.

    Afterwards `position` is the boundary where the walk ended and `stop` is the reason."""

    def __init__(
        self, buffer: Buffer, segment_start: int, position: int, limit: int, *, verify_body: bool = True
    ) -> None:
        assert segment_start <= position <= segment_start + len(buffer)
        self._buffer = buffer
        self._start = segment_start
        self._limit = limit
        self._verify_body = verify_body
        self.position = position
        self.stop: Stop | None = None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        buffer, start, limit = self._buffer, self._start, self._limit
        length = len(buffer)
        while self.position < limit:
            at = self.position - start
            size = check(buffer, at, length - at, self.position, verify_body=self._verify_body)
            if size <= 0:
                self.stop = Stop.END_OF_SEGMENT if size == END_OF_SEGMENT else Stop.INVALID
                return
            if self.position + size > limit:
                break
            yield self.position, size
            self.position += size
        self.stop = Stop.LIMIT


def walk(
    segments: Iterable[WalkedSegment],
    load: Callable[[WalkedSegment], Buffer],
    position: int,
    limit: int,
    *,
    verify_body: bool = True,
) -> Iterator[tuple[Buffer, int, int, int]]:
    """Yield (segment bytes, place in them, physical_offset, total_size) of every record in [position, limit).

    `position` is a record boundary. Raises StoreCorrupted if anything below the limit is unreadable or a file is missing."""
    for segment in segments:
        end = segment.start_offset + segment.size_bytes
        if end <= position or segment.start_offset >= limit:
            continue
        if position < segment.start_offset:
            break
        buffer = load(segment)
        steps = SegmentWalk(buffer, segment.start_offset, position, limit, verify_body=verify_body)
        for offset, size in steps:
            yield buffer, offset - segment.start_offset, offset, size
        if steps.stop is Stop.LIMIT:
            return
        if steps.stop is Stop.INVALID:
            raise StoreCorrupted(steps.position, limit, "no whole valid record is here")
        position = end
    if position < limit:
        raise StoreCorrupted(position, limit, "no segment holds this offset")
