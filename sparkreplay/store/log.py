"""What a store's log is made of: the segments of a commit log and an epoch file, or those of a ledger with its index.

Invariant: what a log says of itself is read anew at each question; nothing in it is ever written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sparkreplay.store.bound import checkpoint_bound, latest
from sparkreplay.store.epochs import FILE as EPOCH_FILE
from sparkreplay.store.epochs import Epochs, read_epochs
from sparkreplay.store.files import Files
from sparkreplay.store.livebroker import BrokerView, look_at
from sparkreplay.store.segments import FOLDER, Segment, list_segments


class Log(Protocol):
    """Small enough to be pickled to workers with the store's files. Methods raise StoreUnreadable."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Where its segments lie."""

    @property
    def epochs_name(self) -> str:
        """Which file tells its epochs."""

    def segments(self, files: Files) -> tuple[Segment, ...]: ...

    def epochs(self, files: Files) -> Epochs: ...

    def committed(self, files: Files) -> int:
        """Up to where it says that it is."""

    def look_at(self, address: str, cluster_name: str, broker_name: str) -> BrokerView:
        """What a running broker says of it. Raises OptionError, LiveBrokerFailed."""

    def index_disagrees(self, files: Files, segment: Segment, end: int) -> tuple[int, str] | None:
        """Where, below `end`, and what an index of its own says wrongly of a segment. Raises SegmentGone."""

    def broken(self, files: Files, segment: Segment, end: int) -> Iterator[tuple[int, str]]:
        """Where, below `end`, a check of its own over what a segment holds fails, and how that is said. Raises SegmentGone."""

    def latest(self, files: Files, bound: int, segments: tuple[Segment, ...], epochs: Epochs) -> int:
        """Where its records end, committed or not. Raises OptionError where that cannot be told."""


@dataclass(frozen=True)
class PlainLog:
    """A commit log, as brokers of controller mode write it."""

    @property
    def folders(self) -> tuple[str, ...]:
        return (FOLDER,)

    @property
    def epochs_name(self) -> str:
        return EPOCH_FILE

    def segments(self, files: Files) -> tuple[Segment, ...]:
        return list_segments(files)

    def epochs(self, files: Files) -> Epochs:
        return read_epochs(files)

    def committed(self, files: Files) -> int:
        return checkpoint_bound(files)

    def look_at(self, address: str, cluster_name: str, broker_name: str) -> BrokerView:
        return look_at(address, cluster_name, broker_name)

    def index_disagrees(self, files: Files, segment: Segment, end: int) -> tuple[int, str] | None:
        return None

    def broken(self, files: Files, segment: Segment, end: int) -> Iterator[tuple[int, str]]:
        return iter(())

    def latest(self, files: Files, bound: int, segments: tuple[Segment, ...], epochs: Epochs) -> int:
        return latest(files, bound, segments, epochs)


PLAIN_LOG = PlainLog()
