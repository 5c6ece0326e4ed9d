"""Decides whether a log is the same log for which the ledger of a resend, or the manifest of an export, was made. Names do not
show this: brokers of different clusters often share a name, and a store created again keeps its name. Epochs of different logs
often begin alike, too.

Invariant: logs that hold a segment at the same offset are the same log only if that segment begins with the same record."""

from __future__ import annotations

from hashlib import sha256

from sparkreplay.store.replicas import head, head_bytes
from sparkreplay.store.segments import Segment
from sparkreplay.store.snapshot import StoreSnapshot

HASH_DIGITS = 16

Marks = dict[str, str]
"""A segment's offset, as a JSON key, is mapped to a hash of the fixed part of the segment's first record."""


def marks_of(store: StoreSnapshot) -> Marks:
    """Marks (hashes of first records) of the first and the last segment whose first record begins below the bound. As long as a
    later run can continue, retention has left at least one of the two. The order is fixed, so that a manifest is the same in
    every process."""
    begun = [segment for segment in store.segments if is_begun(store, segment)]
    return {str(segment.start_offset): mark(store, segment) for segment in (*begun[:1], *begun[-1:])}


def first_apart(store: StoreSnapshot, known: Marks) -> int | None:
    """The offset of the first segment in `known` that begins with another record in `store`; None if there is none."""
    for segment in store.segments:
        was = known.get(str(segment.start_offset))
        if was is not None and is_begun(store, segment) and mark(store, segment) != was:
            return segment.start_offset
    return None


def is_begun(store: StoreSnapshot, segment: Segment) -> bool:
    return segment.start_offset + head_bytes(segment) <= store.bound


def mark(store: StoreSnapshot, segment: Segment) -> str:
    return sha256(head(store, segment, store.bound)).hexdigest()[:HASH_DIGITS]
