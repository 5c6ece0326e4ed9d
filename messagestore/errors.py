"""What can be wrong with a store on disk or stop it while it runs.

Invariant: each error carries its facts and says what to do; none of them is raised for a caller's mistake. No event
loop or settings here: readers outside a broker import this module too."""

from __future__ import annotations


class StoreError(Exception):
    """Anything that keeps a store from starting or going on."""


class LogTakesNothing(StoreError):
    """The log takes no append now: whoever wrote to it leads no more, or too much waits to be replicated."""


class BadSegments(StoreError):
    """Files of a log or queue that do not form one sequence of equal sizes."""

    def __init__(self, folder: str, name: str, why: str) -> None:
        super().__init__(f"{folder}/{name}: {why}")
        self.folder = folder
        self.name = name
        self.why = why


class StoreCorrupted(StoreError):
    """A record that was stored safely is no longer readable. Nothing is cut: that would lose acknowledged messages."""

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
    """A store whose log is in a folder of DLedger. A log that began beside it would be empty, and empty the queues."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"storePathRootDir holds {folder}, the log of a broker in Raft mode, which this one does not read; let it name a "
            "new folder, and take the messages over with `python -m raftstore adopt`"
        )
        self.folder = folder


class LogsPart(StoreError):
    """A plain log from before Raft mode beside a log of Raft mode that does not go on where it ends."""

    def __init__(self, ledger: str, begins: int, plain: str, ends: int) -> None:
        super().__init__(
            f"{ledger} goes on from a log that ends at {begins}, and {plain} ends at {ends}; it is another's, or files of it "
            f"are missing: put a copy of {plain} of another member in its place (it does not change any more), or empty the "
            "store and let its group fill it"
        )
        self.begins = begins
        self.ends = ends


class RecordDamaged(StoreError):
    """A record that was sound once and is not any more, below the end of a running store's log."""

    def __init__(self, segment: str, offset: int, why: str) -> None:
        super().__init__(
            f"commitlog/{segment}: the record at {offset} is damaged: {why}; read it from another replica (mqadmin electMaster)"
        )
        self.segment = segment
        self.offset = offset
        self.why = why


class QueueDamaged(StoreError):
    """An entry of a consume queue that can lead to no record of the log as it is."""

    def __init__(self, topic: str, queue_id: int, offset: int, size: int) -> None:
        super().__init__(
            f"consumequeue/{topic}/{queue_id}: the entry of {size} bytes at {offset} leads to no record; stop the broker, "
            "delete the folder consumequeue and start it: queues are built anew from the log"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.size = size


class QueueUnmendable(StoreError):
    """Consume queues that list less than the log holds, and a log that is damaged where they are to be built anew."""

    def __init__(self, first: str, count: int, why: str) -> None:
        others = f" and {count - 1} others" if count > 1 else ""
        super().__init__(
            f"consumequeue/{first}{others}: less is listed there than the log holds, and the log cannot be read for it: {why}"
        )
        self.first = first
        self.count = count
        self.why = why


class LogMissing(StoreError):
    """A store whose confirmed messages have no file any more. To begin anew under the same id would tell the set that they
    never were."""

    def __init__(self, folder: str, confirm_offset: int) -> None:
        super().__init__(
            f"{folder} holds no segment, but everything below {confirm_offset} was confirmed. If it is on a disk of its "
            "own, mount that and start again; if it is lost, empty storePathRootDir, brokerIdentity included, and the broker "
            "fetches the log from its master as a new replica"
        )
        self.folder = folder
        self.confirm_offset = confirm_offset


class QueueOffsetGap(StoreError):
    """A record whose queue offset is beyond the end of its consume queue, which lacks records that the log holds."""

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
    """The disk failed under a running store, which accepts nothing more."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the store stopped: {cause}; replace the disk or free it, then restart the broker")
        self.cause = cause


class OffsetOutOfRange(StoreError):
    """A position that this log does not hold."""

    def __init__(self, offset: int, min_offset: int, max_offset: int, why: str = "") -> None:
        super().__init__(f"offset {offset} is outside the log [{min_offset}, {max_offset}){why}")
        self.offset = offset
        self.min_offset = min_offset
        self.max_offset = max_offset


class LogReplaced(OffsetOutOfRange):
    """What stood there is gone, for another member's log is taking this one's place: nothing is wrong with the disk. The store
    is opened anew, by itself, once that is done; who wants to read comes again."""

    def __init__(self, offset: int, begins: int) -> None:
        super().__init__(
            offset,
            begins,
            begins,
            ": another member's log replaces it, and this store is about to be opened anew",
        )
