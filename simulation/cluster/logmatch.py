"""Whether two logs agree wherever their epochs say so.

Invariant L1: brokers with the same entry (epoch, start offset) hold the same bytes from there to the lower of that
epoch's two ends, confirmed or not. Below what was confirmed another check compares all of them anyway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from broker.app import BrokerApp
from simulation.cluster.violation import Violation


def logs_match(brokers: Iterable[tuple[str, BrokerApp]], confirmed_end: int) -> None:
    """Raises Violation. `brokers` are (name, app)."""
    longer = [(name, app) for name, app in brokers if app.store.max_offset() > confirmed_end]
    for (name, app), (other_name, other) in combinations(longer, 2):
        for epoch, start, end in common_epochs(app, other):
            at = max(start, confirmed_end, app.store.min_offset(), other.store.min_offset())
            while at < end:
                here, there = app.store.read(at, end - at), other.store.read(at, end - at)
                size = min(len(here), len(there))
                if size == 0 or here[:size] != there[:size]:
                    raise Violation(
                        "L1",
                        f"{name} and {other_name} both have epoch {epoch} from {start} on and differ in "
                        f"[{at}, {at + size})",
                    )
                at += size


def common_epochs(app: BrokerApp, other: BrokerApp) -> Iterator[tuple[int, int, int]]:
    """(epoch, start offset, lower of both ends) of each entry that both have."""
    ends = {(epoch, start): end for epoch, start, end in epochs_of(other)}
    for epoch, start, end in epochs_of(app):
        if (epoch, start) in ends:
            yield epoch, start, min(end, ends[epoch, start])


def epochs_of(app: BrokerApp) -> Iterator[tuple[int, int, int]]:
    """(epoch, start offset, end offset) of each epoch, oldest first."""
    entries, end = app.ha.history.entries, app.store.max_offset()
    for entry, following in zip(entries, [*(entry.start_offset for entry in entries[1:]), end], strict=True):
        yield entry.epoch, entry.start_offset, min(following, end)
