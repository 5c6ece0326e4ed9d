"""The log of a store: the segments of a commit log and an epoch file, or those of a ledger with its index.

Invariant: each call reads the files again. Nothing is ever written to them."""

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
    """The log of a store. It is small enough to be pickled to workers. Its methods get the store's `Files`, and raise
    StoreUnreadable."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its segments."""

    @property
    def epochs_name(self) -> str:
        """The file of its epochs."""

    def segments(self, files: Files) -> tuple[Segment, ...]: ...

    def epochs(self, files: Files) -> Epochs: ...

    def committed(self, files: Files) -> int:
        """The committed end according to the log's own files."""

    def look_at(self, address: str, cluster_name: str, broker_name: str) -> BrokerView:
        """A running broker's view of the log. Raises OptionError or LiveBrokerFailed."""

    def index_disagrees(self, files: Files, segment: Segment, end: int) -> tuple[int, str] | None:
        """Where the log's own index first differs from a segment's data: the physical offset, below `end`, and a description.
        None if no difference is found, or if the log has no such index. Raises SegmentGone."""

    def broken(self, files: Files, segment: Segment, end: int) -> Iterator[tuple[int, str]]:
        """Each place in a segment where a check value of the log does not match the data: the physical offset, below `end`, and
        a description. Raises SegmentGone."""

    def latest(self, files: Files, bound: int, segments: tuple[Segment, ...], epochs: Epochs) -> int:
        """The end of the log's records, committed or not. Raises OptionError if the log's kind cannot find that end."""


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
