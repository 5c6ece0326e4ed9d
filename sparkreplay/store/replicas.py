"""Group a read's stores into replicas of broker sets, and choose the replica of each set to read.

Invariant: one store is chosen for each broker set, and the names of the sets differ. Stores count as replicas of one set only
if their epochs and the compared records agree below both committed bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import combinations

import numpy as np

from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.epochs import common_part
from sparkreplay.store.segments import Segment, open_segment
from sparkreplay.store.snapshot import StoreSnapshot

RECORD_HEAD_BYTES = 88
"""The fixed part of a record: its position, times, hosts and the CRC of its body."""
APART = "read different broker sets of one name in reads of their own"


def choose_replicas(snapshots: Iterable[StoreSnapshot]) -> list[StoreSnapshot]:
    """One store per broker set, in the order in which the sets were first named. Among several replicas, the one with the
    newest last epoch and then the highest bound is chosen. Raises StoreUnreadable if stores of one name are not replicas of
    one set."""
    sets: dict[str, list[StoreSnapshot]] = {}
    for store in snapshots:
        sets.setdefault(store.broker_name, []).append(store)
    for replicas in sets.values():
        for one, other in combinations(replicas, 2):
            require_one_set(one, other)
    return [max(replicas, key=rank) for replicas in sets.values()]


def rank(store: StoreSnapshot) -> tuple[int, int]:
    return store.epochs[-1][0], store.bound


def require_one_set(one: StoreSnapshot, other: StoreSnapshot) -> None:
    if one.root == other.root:
        raise StoreUnreadable(one.root, "is named twice; name each store once")
    both = f"it and {other.root} are both called {one.broker_name}"
    if not (one.cluster_name and other.cluster_name):
        raise StoreUnreadable(
            one.root,
            f"{both}, but nothing says that they are replicas of one set; copy the file brokerIdentity along, or {APART}",
        )
    if one.cluster_name != other.cluster_name:
        raise StoreUnreadable(
            one.root, f"{both}, of the clusters {one.cluster_name} and {other.cluster_name}; {APART}"
        )
    end = min(one.bound, other.bound)
    epochs, others = common_part(one.epochs, other.epochs, end)
    if epochs != others:
        raise StoreUnreadable(
            one.root,
            f"{both}, but below {end}, where both are committed, their epochs differ ({epochs} and {others}): they are no "
            f"replicas of one set; {APART}",
        )
    for segment, its in common_segments(one, other, end):
        if head(one, segment, end) != head(other, its, end):
            raise StoreUnreadable(
                segment.path,
                f"it and {its.path} begin with different records, so they are no replicas of one set; {APART}",
            )


def common_segments(one: StoreSnapshot, other: StoreSnapshot, end: int) -> Iterator[tuple[Segment, Segment]]:
    """The first and the last segment that both stores have below `end`."""
    theirs = {segment.start_offset: segment for segment in other.segments}
    both = [
        (segment, theirs[segment.start_offset])
        for segment in one.segments
        if segment.start_offset in theirs and segment.start_offset < end
    ]
    yield from both[:1]
    yield from both[1:][-1:]


def head(store: StoreSnapshot, segment: Segment, end: int) -> bytes:
    """The part of a segment's first record below `end` that is equal on every replica."""
    buffer = np.zeros(min(head_bytes(segment), end - segment.start_offset), np.uint8)
    with closing(open_segment(store.files, segment)) as file:
        held = file.read_into(buffer.data, 0)
    segment.framing.normalised(buffer, segment.start_offset)
    return buffer[:held].tobytes()


def head_bytes(segment: Segment) -> int:
    return segment.framing.lead_bytes + RECORD_HEAD_BYTES
