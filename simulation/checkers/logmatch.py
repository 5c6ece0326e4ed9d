"""Checks that two logs agree wherever their epochs are the same.

Invariant L1: if two brokers have the same entry (epoch, start offset) in their epoch files, they hold the same bytes of that
epoch, confirmed or not, up to the lower of the epoch's two ends. Confirmed bytes are left to another check, which compares all
brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from simulation.cluster.looks import BrokerLook
from simulation.kernel.violation import Violation


def logs_match(brokers: Iterable[BrokerLook], confirmed_end: int) -> None:
    """Raises Violation."""
    longer = [broker for broker in brokers if broker.store.max_offset() > confirmed_end]
    for one, other in combinations(longer, 2):
        for epoch, start, end in common_epochs(one, other):
            at = max(start, confirmed_end, one.store.min_offset(), other.store.min_offset())
            while at < end:
                here, there = one.store.read(at, end - at), other.store.read(at, end - at)
                size = min(len(here), len(there))
                if size == 0 or here[:size] != there[:size]:
                    raise Violation(
                        "L1",
                        f"{one.name} and {other.name} both have epoch {epoch} from {start} on and differ in "
                        f"[{at}, {at + size})",
                    )
                at += size


def common_epochs(one: BrokerLook, other: BrokerLook) -> Iterator[tuple[int, int, int]]:
    """(epoch, start offset, lower of both ends) of each entry that both logs have."""
    ends = {(epoch, start): end for epoch, start, end in epochs_of(other)}
    for epoch, start, end in epochs_of(one):
        if (epoch, start) in ends:
            yield epoch, start, min(end, ends[epoch, start])


def epochs_of(broker: BrokerLook) -> Iterator[tuple[int, int, int]]:
    """(epoch, start offset, end offset) of each epoch, oldest first."""
    entries, end = broker.history.entries, broker.store.max_offset()
    for entry, following in zip(entries, [*(entry.start_offset for entry in entries[1:]), end], strict=True):
        yield entry.epoch, entry.start_offset, min(following, end)
