"""The store of a classic master or slave: a commit log without epochs.

Invariant: the store does not record what is committed, neither with an ASYNC_MASTER nor with a SYNC_MASTER. So no record counts
as committed, and the log is read only with allowUncommitted, to the end of its records. Its epoch is -1."""

from __future__ import annotations

from dataclasses import dataclass

from sparkreplay.errors import OptionError, UncommittedRefused
from sparkreplay.store.epochs import FILE as EPOCH_FILE
from sparkreplay.store.epochs import Epochs, read_epochs
from sparkreplay.store.files import Files
from sparkreplay.store.livebroker import BrokerView
from sparkreplay.store.log import PlainLog

NO_EPOCHS: Epochs = ((-1, 0),)
WHY = (
    f"has no {EPOCH_FILE}, so it is a classic master's or slave's (or a copy without that file), and nothing in it says what "
    "is committed, with SYNC_MASTER neither"
)


@dataclass(frozen=True)
class ClassicLog(PlainLog):
    """A commit log without epochs."""

    def epochs(self, files: Files) -> Epochs:
        """The epochs of the epoch file, if one was created meanwhile. The log is then no classic log any more."""
        try:
            files.read(EPOCH_FILE)
        except FileNotFoundError:
            return NO_EPOCHS
        return read_epochs(files)

    def committed(self, files: Files) -> int:
        return 0

    def look_at(self, address: str, cluster_name: str, broker_name: str) -> BrokerView:
        raise OptionError(
            "address",
            f"{address} is not asked: the store has no epochs to compare with a broker's; leave address out",
        )


CLASSIC_LOG = ClassicLog()


def require_allowed(files: Files, *, allow_uncommitted: bool) -> None:
    """Raise UncommittedRefused for a classic store unless `allow_uncommitted`."""
    if not allow_uncommitted:
        raise UncommittedRefused(files.root, WHY)
