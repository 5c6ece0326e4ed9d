"""Where masters stored the messages of clients, and whether an elected broker may have been missing them.

Invariant: if only the master had to hold a message, the loss of the message is excused only if a later master, which is another
broker, began its epoch without the message. If the same broker becomes master again after a kill, it still has the message,
unless it lost memory and was elected nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from broker.app import BrokerApp
from epochfile.history import EpochHistory
from ha.epochs import KeptEpochs
from localcluster.history import SendAttempt, SendOutcome
from messagestore.messages import MessageToStore, PlainAppended, PutResult
from messagestore.properties import REAL_TOPIC, parse_properties
from messagestore.record import Message, decode
from messagestore.store.messagestore import MessageStore
from simulation.kernel.node import Node

append = MessageStore.append
append_plain = MessageStore.append_plain
store = KeptEpochs.store


@dataclass(frozen=True)
class Append:
    """One record, as its master wrote it."""

    broker_id: int | None
    epoch: int
    start: int
    end: int


@dataclass
class Appends:
    by_key: dict[tuple[str, str], list[Append]] = field(default_factory=dict)
    """(topic that clients know, key) -> the records written for the message. A delayed message is written at least twice."""
    began: dict[int, EpochHistory] = field(default_factory=dict)
    """Epoch -> the history of its master's log when the epoch began."""
    elected_incomplete: Set[int] = frozenset()
    """Epochs whose masters were elected although they had lost memory."""

    def noting(
        self, brokers: Sequence[Node]
    ) -> Callable[[MessageStore, Sequence[MessageToStore]], list[PutResult]]:
        """A replacement of MessageStore.append, which also notes here the records that `brokers` write."""

        def noted(store: MessageStore, messages: Sequence[MessageToStore]) -> list[PutResult]:
            written = append(store, messages)
            for node in brokers:
                if isinstance(node.app, BrokerApp) and node.app.store is store:
                    self.wrote(node.app, zip(messages, written, strict=True))
            return written

        return noted

    def noting_plain(self, brokers: Sequence[Node]) -> Callable[..., PlainAppended | None]:
        """Do the same for MessageStore.append_plain."""

        def noted(store: MessageStore, *arguments: Any) -> PlainAppended | None:
            written = append_plain(store, *arguments)
            if written is not None:
                for node in brokers:
                    if isinstance(node.app, BrokerApp) and node.app.store is store:
                        self.wrote(node.app, records_in(store, written))
            return written

        return noted

    def wrote(self, app: BrokerApp, records: Iterable[tuple[MessageToStore | Message, PutResult]]) -> None:
        for message, at in records:
            if at.error is None:
                properties = parse_properties(message.properties)
                key = properties.get(REAL_TOPIC, message.topic), properties.get("KEYS", "")
                noted = Append(
                    app.membership.broker_id,
                    app.ha.history.last_epoch(),
                    at.physical_offset,
                    at.end_offset,
                )
                self.by_key.setdefault(key, []).append(noted)

    def beginning(self) -> Callable[[KeptEpochs, EpochHistory], Coroutine[Any, Any, None]]:
        """A replacement of KeptEpochs.store, which also notes here how each epoch begins. The first broker that stores an epoch
        is its master."""

        async def noted(epochs: KeptEpochs, history: EpochHistory) -> None:
            self.began.setdefault(history.last_epoch(), history)
            await store(epochs, history)

        return noted

    def may_be_gone(self, topic: str, key: str, master_of: dict[int, int]) -> bool:
        """Whether an election may have lost one of the message's records. `master_of` maps an epoch to the broker that was
        elected."""
        return any(self.excuse(record, master_of) for record in self.by_key.get((topic, key), []))

    def excuse(self, record: Append, master_of: dict[int, int]) -> bool:
        """Whether the first later epoch that began without the record is that of another broker, or of a broker that lost
        memory."""
        for epoch in sorted(self.began):
            if epoch > record.epoch and not self.had(self.began[epoch], record):
                return epoch in self.elected_incomplete or master_of.get(epoch) != record.broker_id
        return False

    def had(self, history: EpochHistory, record: Append) -> bool:
        """Whether a log that had this history when its last epoch began held the record."""
        entry = history.entry_at(record.start)
        if entry is None or entry.epoch != record.epoch:
            return False
        return all(later.start_offset >= record.end for later in history if later.epoch > record.epoch)

    def promised(
        self, topic: str, attempts: Iterable[SendAttempt], master_of: dict[int, int]
    ) -> list[SendAttempt]:
        """The attempts as the contract judges them: the outcome of an acknowledged attempt becomes unknown if its message may
        be gone."""
        return [
            replace(attempt, outcome=SendOutcome.UNKNOWN)
            if attempt.outcome is SendOutcome.ACKNOWLEDGED
            and self.may_be_gone(topic, attempt.message_id, master_of)
            else attempt
            for attempt in attempts
        ]


def records_in(store: MessageStore, written: PlainAppended) -> Iterator[tuple[Message, PutResult]]:
    at = written.start_offset
    while at < written.end_offset:
        record = decode(store.read(at, written.end_offset - at))
        end = at + record.total_size
        yield record, PutResult(at, end, record.queue_offset, 1, record.store_timestamp)
        at = end
