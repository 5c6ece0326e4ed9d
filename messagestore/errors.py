"""Errors of a store, on disk or running.

Invariant: each error carries its facts and says what to do. No error is raised for a caller's mistake. This module imports no
event loop and no settings, because readers outside a broker import it too."""

from __future__ import annotations


class StoreError(Exception):
    """An error that keeps a store from starting or running."""


class LogTakesNothing(StoreError):
    """The log takes no append now: this member is no longer the leader, or too much data waits to be replicated."""


class BadSegments(StoreError):
    """Files of a log or queue that do not form one sequence of equal sizes."""

    def __init__(self, folder: str, name: str, why: str) -> None:
        super().__init__(f"{folder}/{name}: {why}")
        self.folder = folder
        self.name = name
        self.why = why


class OtherSegmentSize(BadSegments):
    """All `files` files of a log or queue have `size` bytes, and the settings give another size."""

    def __init__(self, folder: str, why: str, size: int, files: int) -> None:
        super().__init__(folder, "*", why)
        self.size = size
        self.files = files


class StoreCorrupted(StoreError):
    """A record that was stored safely is no longer readable. Nothing is cut, because a cut would lose acknowledged messages."""

    def __init__(self, offset: int, limit: int, why: str) -> None:
        super().__init__(
            f"commit log at {offset}: {why}; everything below {limit} was confirmed, so this is damage and not a torn "
            "end. Check the disk; then restore this store from a copy, or empty its directory, brokerIdentity included, "
            "and let the broker fetch the log from its master as a new replica"
        )
        self.offset = offset
        self.limit = limit
        self.why = why


class RaftModeStore(StoreError):
    """The store's log is in a DLedger folder. A new log next to that folder would be empty, and so would the queues."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"storePathRootDir holds {folder}, the log of a broker in Raft mode, which this one does not read; let it name a "
            "new folder, and take the messages over with `python -m raftstore adopt`"
        )
        self.folder = folder


class LogsPart(StoreError):
    """The log of Raft mode does not begin where the plain log, written before Raft mode, ends."""

    def __init__(self, ledger: str, begins: int, plain: str, ends: int) -> None:
        super().__init__(
            f"{ledger} continues a log that ends at {begins}, but {plain} ends at {ends}: it is of another store, or files "
            f"are missing. Copy {plain} from another member (it does not change any more), or empty the store and let its "
            "group fill it"
        )
        self.begins = begins
        self.ends = ends


class RecordDamaged(StoreError):
    """A record in the log of a running store was intact once and is now corrupt."""

    def __init__(self, segment: str, offset: int, why: str) -> None:
        super().__init__(
            f"commitlog/{segment}: the record at {offset} is damaged: {why}; read it from another replica (mqadmin electMaster)"
        )
        self.segment = segment
        self.offset = offset
        self.why = why


class QueueDamaged(StoreError):
    """A consume queue entry leads to no record of the log."""

    def __init__(self, topic: str, queue_id: int, offset: int, size: int) -> None:
        super().__init__(
            f"consumequeue/{topic}/{queue_id}: the entry of {size} bytes at {offset} leads to no record; if the scrub does not "
            "repair it, stop the broker, delete the folder consumequeue and start it: queues are rebuilt from the log"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.size = size


class QueueUnmendable(StoreError):
    """Consume queues are missing entries of records, and the part of the log from which they would be rebuilt is damaged."""

    def __init__(self, first: str, count: int, why: str) -> None:
        others = f" and {count - 1} others" if count > 1 else ""
        super().__init__(
            f"consumequeue/{first}{others}: entries for records of the log are missing, and the log cannot be read for them: "
            f"{why}"
        )
        self.first = first
        self.count = count
        self.why = why


class LogMissing(StoreError):
    """The store's log files are missing although messages were confirmed. A start with an empty log and the same id would
    report to the broker set that these messages never existed."""

    def __init__(self, folder: str, confirm_offset: int) -> None:
        super().__init__(
            f"{folder} holds no segment, but everything below {confirm_offset} was confirmed. If it is on a disk of its "
            "own, mount that and start again; if it is lost, empty storePathRootDir, brokerIdentity included, and the broker "
            "fetches the log from its master as a new replica"
        )
        self.folder = folder
        self.confirm_offset = confirm_offset


class QueueOffsetGap(StoreError):
    """A record's queue offset is beyond the end of its consume queue: the queue is missing records that the log holds."""

    def __init__(
        self, topic: str, queue_id: int, physical_offset: int, queue_offset: int, expected: int
    ) -> None:
        super().__init__(
            f"record at {physical_offset}: queue offset {queue_offset} of {topic}/{queue_id} follows {expected - 1}; "
            "delete the folder consumequeue and start again, it is rebuilt from the commit log"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.physical_offset = physical_offset
        self.queue_offset = queue_offset
        self.expected = expected


class StoreFailed(StoreError):
    """The disk failed while the store was running. The store accepts nothing more."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the store stopped: {cause}; replace the disk or free it, then restart the broker")
        self.cause = cause


class OffsetOutOfRange(StoreError):
    """An offset that this log does not hold."""

    def __init__(self, offset: int, min_offset: int, max_offset: int, why: str = "") -> None:
        super().__init__(f"offset {offset} is outside the log [{min_offset}, {max_offset}){why}")
        self.offset = offset
        self.min_offset = min_offset
        self.max_offset = max_offset


class LogReplaced(OffsetOutOfRange):
    """Another member's log is replacing this log, which held the offset. The disk is fine. The store reopens itself after the
    replacement, and readers can try again."""

    def __init__(self, offset: int, begins: int) -> None:
        super().__init__(
            offset,
            begins,
            begins,
            ": another member's log replaces it, and this store is about to be reopened",
        )
