"""Errors of a store or of a request. Each error says what is wrong, where, and what to do."""

from __future__ import annotations

from typing import Any


class ReplayError(Exception):
    """The base of all errors: the request cannot be carried out exactly. Nothing was skipped or guessed."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its facts, whatever its constructor takes, because workers send errors."""
        return restored, (type(self), self.args, self.__dict__)


def restored(kind: type[ReplayError], message: tuple[Any, ...], facts: dict[str, Any]) -> ReplayError:
    error = kind.__new__(kind, *message)
    error.__dict__.update(facts)
    return error


class OptionError(ReplayError):
    """An option has an unusable value, or two options contradict each other."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"option {option}: {why}")
        self.option = option


class WriteRefused(ReplayError):
    """The caller tried to write rows, but this source can only be read."""

    def __init__(self) -> None:
        super().__init__(
            "format rocketmq only reads stores, and writes to none; send messages to a running cluster with a producer, or "
            "those of a store with mqreplay resend"
        )


class StoreUnreadable(ReplayError):
    """The folder is no store, or parts of it are missing or malformed."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class LogCorrupted(ReplayError):
    """Bytes below the committed bound are not the records that they should be."""

    def __init__(self, path: str, offset: int, why: str) -> None:
        super().__init__(
            f"{path}: at physical offset {offset}: {why}; "
            "read another replica of the set, or bound a batch read below it (endingOffsets)"
        )
        self.path = path
        self.offset = offset
        self.why = why


class SeamMisplaced(LogCorrupted):
    """No record begins at a split point of the plan: bytes inside a body looked like a record, or the log is damaged."""

    def __init__(self, path: str, offset: int, why: str, seam: int) -> None:
        ReplayError.__init__(
            self,
            f"{path}: at physical offset {offset}: {why} the seam at {seam}, where a record forged inside another's body, or "
            "damage, was taken for one; give splitBytes as large as a segment, so that no seams are searched for",
        )
        self.path = path
        self.offset = offset
        self.why = why


class SegmentGone(ReplayError):
    """A planned segment was deleted (retention) before its worker opened it."""

    def __init__(self, path: str) -> None:
        self.why = f"{path}: was deleted after the read was planned"
        super().__init__(
            f"{self.why}; run the job again, or with failOnDataLoss=false from the log's new beginning"
        )
        self.path = path


class EpochChanged(ReplayError):
    """The log was truncated below the bound while it was read, so the rows that were read must be discarded."""

    def __init__(self, path: str, bound: int, before: object, after: object) -> None:
        self.why = (
            f"{path}: the epochs below the bound {bound} changed while it was read, from {before} to {after}"
        )
        super().__init__(f"{self.why}; run the job again for a new bound")


class OffsetUnreadable(ReplayError):
    """A stream's checkpoint holds an offset that this source did not write."""

    def __init__(self, value: object, why: str) -> None:
        super().__init__(
            f"the checkpoint's offset {value!r} cannot be used: {why}; "
            "name the checkpointLocation that this query has written, or a new one to start over"
        )


class LogTruncated(ReplayError):
    """A log was cut below a stream's position, so rows that the stream delivered may have been taken back."""

    def __init__(
        self, name: str, path: str, offset: int, was: tuple[int, int], found: tuple[int, int], intact: int
    ) -> None:
        super().__init__(
            f"broker set {name}: the stream has read up to offset {offset} in epoch {was[0]} (from {was[1]}), but in "
            f"{path} epoch {found[0]} (from {found[1]}) holds the byte below it: the log was truncated, and [{intact}, "
            f"{offset}) is not what was read. Nothing is read again by itself: name another replica of the set if this "
            "one is not its log; else remove the rows of that range from the output and start a new query, with a "
            f"new checkpointLocation and startingOffsets at {intact}"
        )
        self.offset = offset
        self.intact = intact


class ForeignLog(ReplayError):
    """A stream's offset belongs to another log than the log that has the broker set's name now."""

    def __init__(self, name: str, path: str, offset: int, why: str) -> None:
        super().__init__(
            f"broker set {name}: the log of {path} is not the one that the stream has read up to offset {offset}: {why}. "
            "The store is another cluster's, was created again, set back to an older state or damaged, or the checkpoint was "
            "changed. Nothing is read: name a replica of the log that was read, or read this one with a new query and a new "
            "checkpointLocation"
        )
        self.name = name
        self.path = path
        self.offset = offset


class DataLost(ReplayError):
    """Retention deleted records that the stream has not read yet."""

    def __init__(self, name: str, path: str, start: int, end: int, messages: str) -> None:
        super().__init__(
            f"broker set {name}: [{start}, {end}) of {path} was deleted before the stream read it: "
            f"{end - start} bytes, {messages}; name another replica of the set that still holds them, "
            f"or set failOnDataLoss=false to continue at {end} without them"
        )
        self.start = start
        self.end = end


class BrokerSetMissing(ReplayError):
    """A stream has read from a broker set that is no longer among the stores of `path`."""

    def __init__(self, name: str, offset: int, present: list[str], end: int | None = None) -> None:
        """`end` is the end of a planned batch that cannot be read."""
        planned = "" if end is None else f" and to leave out [{offset}, {end}), which this batch was to read"
        super().__init__(
            f"broker set {name}, read up to offset {offset}, is not among the stores that path names "
            f"({', '.join(present) or 'none'}); add a replica of it, or set failOnDataLoss=false to go on without it{planned}"
        )
        self.name = name


class ReplicaBehind(ReplayError):
    """A batch planned from one replica cannot be repeated from another replica that does not hold all of the batch yet."""

    def __init__(self, name: str, path: str, bound: int, end: int) -> None:
        super().__init__(
            f"broker set {name}: a batch that ends at offset {end} has to be repeated, but {path} is committed up to "
            f"{bound} only; start the query again when it has caught up, or name another replica of the set"
        )
        self.bound = bound
        self.end = end


class EngineFailed(ReplayError):
    """Workers failed for a reason outside the read: they were killed, ran out of memory, or were lost by the cluster."""


class ExportRefused(ReplayError):
    """The folder holds another export, or an export that cannot be continued."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(f"{folder}: {why}")
        self.folder = folder


class UncommittedRefused(ReplayError):
    """An election may take back the requested rows, and the user has not permitted that."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path}: {why}; set allowUncommitted=true to read what a failover may take back all the same"
        )
        self.path = path


class LiveBrokerFailed(ReplayError):
    """The live broker that should report its confirm offset does not answer, or is not a broker of the store's set."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"broker {address}: {why}")
        self.address = address


class MessagesGone(ReplayError):
    """Requested messages are no longer in the log, or never were."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}; with failOnDataLoss=false the read continues with what is left")
        self.path = path


class TopicMissing(ReplayError):
    """No store has a topic that the request names: the name is misspelled, or the topic is not created yet."""

    def __init__(self, topics: list[str], paths: list[str], hint: str) -> None:
        named = f"topic {topics[0]} is" if len(topics) == 1 else f"topics {', '.join(topics)} are"
        super().__init__(
            f"{', '.join(paths)}: {named} unknown there, and no record up to the bound is of "
            f"{'it' if len(topics) == 1 else 'them'}; {hint + ' ' if hint else ''}failOnMissingTopic=false reads without, and "
            "a stream waits for it"
        )
        self.topics = topics


class NotText(ReplayError):
    """A topic's name in a record is not UTF-8. A client wrote that name, so another replica has it too."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(
            f"{path}: at physical offset {offset}: a record's topic is bytes that are not UTF-8, and no broker has such a "
            "topic; read up to it with endingOffsets, and from behind it with startingOffsets"
        )
        self.path = path
        self.offset = offset


class IndexUnusable(ReplayError):
    """The consume queues do not lead to the right records; the log itself may be whole."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path}: {why}; read without index=consumequeue, or let the broker recover its queues first"
        )
        self.path = path
