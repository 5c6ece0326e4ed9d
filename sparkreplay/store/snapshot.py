"""A reader's snapshot of a store: segments, epochs, the committed bound. Nothing in the store is ever written.

Invariant: all parts of a snapshot belong to one state of the log, because the epochs were the same before and after the other
parts were read. `bound` does not change. After reading up to `bound`, the reader calls `check_epochs` to confirm that the log
was not truncated meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from messagestore import contractmark
from messagestore.contractmark import ContractMark, ContractMarkDamaged
from sparkreplay.errors import (
    EpochChanged,
    LiveBrokerFailed,
    OptionError,
    StoreUnreadable,
    UncommittedRefused,
)
from sparkreplay.store.bound import resolve
from sparkreplay.store.classic import ClassicLog, require_allowed
from sparkreplay.store.epochs import Epochs, common_part, epochs_within
from sparkreplay.store.files import Files
from sparkreplay.store.livebroker import BrokerView, look_at
from sparkreplay.store.log import PLAIN_LOG, Log
from sparkreplay.store.logs import log_of
from sparkreplay.store.remotefiles import files_at
from sparkreplay.store.segments import Segment as Segment

IDENTITY_FILE = "brokerIdentity"
LOOKS_MAX = 5


@dataclass(frozen=True)
class StoreIdentity:
    """The store's identity: `cluster#brokerName#id`."""

    cluster_name: str
    broker_name: str
    replica_id: int


@dataclass(frozen=True)
class StoreSnapshot:
    """The view of a store that the driver takes once and uses for the whole job."""

    files: Files
    broker_name: str
    segments: tuple[Segment, ...]
    epochs: Epochs
    bound: int
    bound_source: str = "checkpoint"
    """`checkpoint`, `broker HOST:PORT`, `given` or `latest`."""
    bound_note: str = ""
    """How the bound was chosen, for the user; often empty."""
    contract: str = ""
    """`A` if the store has the mark of contract A, and still holds data written under it."""
    cluster_name: str = ""
    """Empty if neither an identity file nor a broker names the cluster."""
    address: str | None = None
    """The live brokers (`HOST:PORT;...`), whose epochs are read again."""
    committed: int | None = None
    """The committed end if `bound` is another one, because it was given or is `latest`."""
    log: Log = PLAIN_LOG

    @property
    def root(self) -> str:
        return self.files.root

    @property
    def min_offset(self) -> int:
        return self.segments[0].start_offset if self.segments else 0

    def epochs_below(self, offset: int) -> Epochs:
        return tuple(entry for entry in self.epochs if entry[1] < offset)


def open_store(
    path: str | Files, *, address: str | None = None, allow_uncommitted: bool = False
) -> StoreSnapshot:
    """The store at `path` (see files_at) with its committed bound. `address` names live brokers, `HOST:PORT;HOST:PORT`; the
    first of the store's set that answers is used.

    Raises StoreUnreadable, OptionError, LiveBrokerFailed, and UncommittedRefused for a store that ran contract A, or has no
    epochs, unless `allow_uncommitted`."""
    files = files_at(path) if isinstance(path, str) else path
    identity = read_identity(files)
    set_named = (identity.cluster_name, identity.broker_name) if identity else ("", "")
    log = log_of(files)
    classic = isinstance(log, ClassicLog)
    if classic:
        require_allowed(files, allow_uncommitted=allow_uncommitted)
    for _ in range(LOOKS_MAX):
        epochs = log.epochs(files)
        view = None if address is None else log.look_at(address, *set_named)
        confirm = log.committed(files)
        segments = log.segments(files)
        log_min = segments[0].start_offset if segments else 0
        bound = resolve(files, confirm, segments, epochs, view, identity.replica_id if identity else None)
        if view is not None:
            require_same_log(files, log_min, epochs, bound.offset, view)
        if log.epochs(files) == epochs:
            break
    else:
        raise StoreUnreadable(files.root, "its epochs change all the time; run the job after the elections")
    contract = contract_of(files, log_min, view)
    if contract and not allow_uncommitted:
        raise UncommittedRefused(
            files.root,
            "ran contract A (allAckInSyncStateSet=false), under which no bound is replication-safe",
        )
    named = identity or view
    store = StoreSnapshot(
        files,
        named.broker_name if named else files.root.rstrip("/").rpartition("/")[2],
        segments,
        epochs,
        bound.offset,
        bound.source,
        bound.note,
        contract,
        named.cluster_name if named else "",
        address,
        log=log,
    )
    return up_to_latest(store, allow_uncommitted=allow_uncommitted) if classic else store


def up_to(store: StoreSnapshot, end: int) -> StoreSnapshot:
    """The same store with a given bound. Raises OptionError if that is above the committed end."""
    if end > store.bound:
        raise OptionError(
            "endingOffsets", f"{end} lies above the committed bound {store.bound} ({store.bound_source})"
        )
    return bounded_by(store, end, "given")


def up_to_latest(store: StoreSnapshot, *, allow_uncommitted: bool) -> StoreSnapshot:
    """The same store with the end of its records as bound. Raises UncommittedRefused unless `allow_uncommitted`."""
    if store.bound_source == "latest":
        return store
    if not allow_uncommitted:
        raise UncommittedRefused(store.root, "endingOffsets=latest goes beyond what is committed")
    end = store.log.latest(store.files, store.bound, store.segments, store.epochs)
    return bounded_by(store, end, "latest")


def bounded_by(store: StoreSnapshot, end: int, source: str) -> StoreSnapshot:
    """The same store with another bound. The committed end stays known."""
    if isinstance(store.log, ClassicLog):
        committed = "a classic store: nothing says what is committed"
    else:
        committed = f"committed up to {store.bound}, according to: {store.bound_source}"
    note = f"{committed}; {store.bound_note}" if store.bound_note else committed
    return replace(store, bound=end, bound_source=source, bound_note=note, committed=store.bound)


def read_identity(files: Files) -> StoreIdentity | None:
    """The identity of the store; None if there is no identity file, as in a copy. Raises StoreUnreadable."""
    try:
        text = files.read(IDENTITY_FILE).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    parts = text.split("#")
    if (
        len(parts) != 3
        or not all(parts)
        or len(text) > 1024
        or not (parts[2].isascii() and parts[2].isdecimal())
    ):
        raise StoreUnreadable(
            files.shown(IDENTITY_FILE),
            f"{text[:60]!r} is not cluster#brokerName#id; copy it again from the broker",
        )
    return StoreIdentity(parts[0], parts[1], int(parts[2]))


def contract_of(files: Files, log_min: int, view: BrokerView | None) -> str:
    """`A` if the store's broker ran under contract A (an acknowledgement needs only the master), else empty. Java brokers do
    not record their contract."""
    mark = read_contract_mark(files)
    return "A" if (mark and not mark.outlived(log_min)) or (view and view.ran_contract_a) else ""


def read_contract_mark(files: Files) -> ContractMark | None:
    try:
        return contractmark.decode(files.read(contractmark.FILE))
    except FileNotFoundError:
        return None
    except ContractMarkDamaged as error:
        raise StoreUnreadable(files.root, str(error)) from error


def require_same_log(files: Files, log_min: int, epochs: Epochs, bound: int, view: BrokerView) -> None:
    """Raise LiveBrokerFailed if the broker's log differs below the bound, or begins above the bound."""
    end = min(bound, view.max_offset)
    ours, theirs = common_part(epochs, view.epochs, end)
    if not ours and end > log_min:
        raise LiveBrokerFailed(
            view.address,
            f"knows no epoch below {end}, so it cannot vouch for the store {files.root}; name a broker whose log begins "
            "earlier, or leave address out",
        )
    if ours != theirs:
        raise LiveBrokerFailed(
            view.address,
            f"reports the epochs {theirs} where the store {files.root} has {ours}: they are different logs, or the store was "
            "copied before a truncation; read the store of a broker that is in the SyncStateSet now",
        )


def check_epochs(store: StoreSnapshot) -> None:
    """Raise EpochChanged if the log, or the live broker's log, was truncated below the bound since the snapshot was taken.
    Deletions by retention are allowed. Raises StoreUnreadable or LiveBrokerFailed if the epochs cannot be read any more."""
    require_unchanged(store, store.root, store.log.epochs(store.files), store.bound)
    if store.address is not None:
        view = look_at(store.address, store.cluster_name, store.broker_name)
        require_unchanged(store, f"broker {view.address}", view.epochs, min(store.bound, view.max_offset))


def require_unchanged(store: StoreSnapshot, path: str, now: Epochs, end: int) -> None:
    before, after = common_part(store.epochs, now, end)
    was, found = epochs_within(store.epochs, 0, end), epochs_within(now, 0, end)
    nothing_in_common = not before and end > store.min_offset and bool(was or found)
    if before != after or nothing_in_common:
        raise EpochChanged(path, store.bound, was, found)
