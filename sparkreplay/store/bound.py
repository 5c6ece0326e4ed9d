"""The committed bound of a store: the physical offset up to which readers read. It is resolved once, when the store is opened,
and stays fixed in the snapshot.

Invariant: no election can take back records below a bound that was resolved here, unless the bound is `latest`. The confirm
offset in the store's checkpoint is such a bound, and at most a second old. A live broker's confirm offset is newer, but is
about that broker's log. So for the broker's own store the bound is raised to it; for the store of another replica the bound is
only ever lowered to it."""

from __future__ import annotations

from dataclasses import dataclass

from messagestore.checkpoint import CheckpointDamaged, decode_checkpoint
from messagestore.record import END_OF_SEGMENT, INCOMPLETE, check
from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.epochs import Epochs
from sparkreplay.store.files import Files
from sparkreplay.store.livebroker import BrokerView
from sparkreplay.store.segments import FOLDER, SEVERAL_FOLDERS, Segment, open_segment

CHECKPOINT = "checkpoint"
CONFIRM_OFFSET_END = 40
"""A checkpoint file with confirmPhyOffset has at least this size. Files of 4.x are shorter."""
WINDOW_BYTES = 16 << 20
"""This is longer than the longest record that is read."""


@dataclass(frozen=True)
class Bound:
    """`source` is `checkpoint` or `broker HOST:PORT`; `note` explains how the bound was chosen."""

    offset: int
    source: str
    note: str = ""


def checkpoint_bound(files: Files) -> int:
    """The confirm offset of the checkpoint; 0 if none was ever set. Raises StoreUnreadable."""
    try:
        page = files.read(CHECKPOINT)
    except FileNotFoundError:
        raise StoreUnreadable(
            files.root,
            f"has no {CHECKPOINT} file, so nothing says what is committed; name a broker's storePathRootDir",
        ) from None
    path = files.shown(CHECKPOINT)
    if len(page) < CONFIRM_OFFSET_END:
        raise StoreUnreadable(
            path, f"is {len(page)} bytes long, too short to hold a confirm offset; copy it again, whole"
        )
    try:
        return decode_checkpoint(page).confirm_phy_offset
    except CheckpointDamaged as error:
        raise StoreUnreadable(
            path,
            f"{error}; copy it again or read another replica (a broker that starts on the store repairs it)",
        ) from error


def resolve(
    files: Files,
    confirm: int,
    segments: tuple[Segment, ...],
    epochs: Epochs,
    view: BrokerView | None,
    replica_id: int | None,
) -> Bound:
    """The bound of a store with the checkpoint's confirm offset `confirm`. Raises StoreUnreadable if that is beyond the log."""
    log_end = segments[-1].end_offset if segments else 0
    if confirm and not segments:
        raise StoreUnreadable(
            files.root,
            f"has no files in its folder {FOLDER}, but {confirm} bytes are committed; name a broker's storePathRootDir with "
            f"its {FOLDER}, or a link to it, in it ({SEVERAL_FOLDERS})",
        )
    if confirm > log_end:
        raise StoreUnreadable(
            files.root,
            f"the checkpoint's confirm offset {confirm} lies beyond the end of the log's last file, {log_end}; copy the "
            "missing segments too, or read another replica",
        )
    if view is None:
        return Bound(confirm, "checkpoint")
    source = f"broker {view.address}"
    if view.confirm_offset is None:
        return Bound(confirm, "checkpoint", f"{source} reports no confirm offset, as Java brokers do not")
    if view.confirm_offset <= confirm:
        return Bound(view.confirm_offset, source)
    if view.replica_id is None or view.replica_id != replica_id:
        return Bound(
            confirm, "checkpoint", f"{source} is another replica, and further: {view.confirm_offset}"
        )
    held = records_end(files, segments, boundary_at_or_below(segments, epochs, confirm), view.confirm_offset)
    if held < view.confirm_offset:
        note = f"{source} is further, at {view.confirm_offset}; this copy of its store ends before"
        return Bound(max(confirm, held), source, note)
    return Bound(view.confirm_offset, source)


def latest(files: Files, confirm: int, segments: tuple[Segment, ...], epochs: Epochs) -> int:
    """The end of the log's records, committed or not. Records that a Java broker has truncated are still in the file and look
    valid, so they may be included."""
    above = [segment for segment in segments if segment.start_offset > confirm]
    begun = next((one.start_offset for one in reversed(above) if begins_with_a_record(files, one)), confirm)
    log_end = segments[-1].end_offset if segments else 0
    return max(confirm, records_end(files, segments, boundary_at_or_below(segments, epochs, begun), log_end))


def begins_with_a_record(files: Files, segment: Segment) -> bool:
    return (
        records_end(files, (segment,), segment.start_offset, segment.start_offset + 1) > segment.start_offset
    )


def boundary_at_or_below(segments: tuple[Segment, ...], epochs: Epochs, offset: int) -> int:
    """The nearest known record boundary: the beginning of a segment or of an epoch."""
    known = [segment.start_offset for segment in segments] + [start for _, start in epochs]
    log_min = segments[0].start_offset if segments else 0
    return max((start for start in known if log_min <= start <= offset), default=log_min)


def records_end(files: Files, segments: tuple[Segment, ...], start: int, limit: int) -> int:
    """The end of the consecutive whole valid records from the boundary `start` on. Records that begin at or above `limit` are
    not read."""
    at = start
    for segment in segments:
        if segment.start_offset <= at < min(segment.end_offset, limit):
            at, whole = records_end_in(files, segment, at, limit)
            if not whole:
                return at
    return at


def records_end_in(files: Files, segment: Segment, at: int, limit: int) -> tuple[int, bool]:
    """The end in this segment, and whether it is the segment's end."""
    buffer = bytearray(min(WINDOW_BYTES, segment.end_offset - at))
    file = open_segment(files, segment)
    try:
        while True:
            held = file.read_into(memoryview(buffer), at - segment.start_offset)
            window = memoryview(buffer)[:held]
            place = size = 0
            while at + place < limit:
                size = check(window, place, segment.end_offset - at - place, at + place)
                if size <= 0:
                    break
                place += size
            at += place
            if size == END_OF_SEGMENT:
                return segment.end_offset, True
            if size != INCOMPLETE or not place:
                return at, False
    finally:
        file.close()
