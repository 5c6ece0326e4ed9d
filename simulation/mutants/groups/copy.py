"""Planted bugs of copies that are made from corrupt records, and of queues and logs that are built over such records."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from broker.sends.delaydelivery import DelayDelivery
from broker.sends.sendback import HandedBack, SendBack
from broker.transactions.ending import EndTransaction
from dledger.storage.entry import stored_check
from dledger.storage.entrylog import EntryLog
from messagestore.messages import QueueEntry
from messagestore.record import Message
from messagestore.store.brokerstore import BrokerStore
from raftstore.ledgerstore import LedgerStore
from remoting.command import RemotingCommand
from remoting.headers.messages import ConsumerSendMsgBackHeader
from remoting.peer import Peer
from simulation.mutants.groups.bugs import BUGS

bug = BUGS.playing("rot that is copied")


class AsItReads:
    """A store whose records are used unchecked."""

    def __init__(self, store: BrokerStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None:
        return await record_compared_once(self._store, physical_offset, size)

    async def listed_at(self, physical_offset: int) -> memoryview | None:
        return await record_compared_once(self._store, physical_offset)


@bug("record-compared-once", BrokerStore, "message_at")
async def record_compared_once(self: BrokerStore, physical_offset: int, size: int = 0) -> memoryview | None:
    """A record that was intact once is copied later without being checked again."""
    return await self._reader.record_at(physical_offset, self._confirm)


async def with_store_as_it_reads(owner: Any, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    store = owner._store
    owner._store = AsItReads(store)
    try:
        return await work()
    finally:
        owner._store = store


record_of = DelayDelivery._record_of  # noqa: SLF001 - to be wrapped


@bug("delayed-copy-of-what-rotted", DelayDelivery, "_record_of")
async def delayed_copy_of_what_rotted(
    self: DelayDelivery, entry: QueueEntry, queue_id: int
) -> Message | None:
    """A delayed message is delivered unchecked, with a new CRC that agrees."""
    found: Message | None = await with_store_as_it_reads(self, lambda: record_of(self, entry, queue_id))
    return found


half_at = EndTransaction._half_at  # noqa: SLF001 - to be wrapped


@bug("committed-copy-of-what-rotted", EndTransaction, "_half_at")
async def committed_copy_of_what_rotted(self: EndTransaction, place: int) -> Message:
    """A transaction is committed with the unchecked half."""
    found: Message = await with_store_as_it_reads(self, lambda: half_at(self, place))
    return found


checked = SendBack._checked  # noqa: SLF001 - to be wrapped


@bug("sent-back-copy-of-what-rotted", SendBack, "_checked")
async def sent_back_copy_of_what_rotted(
    self: SendBack, peer: Peer, command: RemotingCommand, header: ConsumerSendMsgBackHeader
) -> RemotingCommand | HandedBack:
    """A message that a consumer hands back is stored again unchecked."""
    found: RemotingCommand | HandedBack = await with_store_as_it_reads(
        self, lambda: checked(self, peer, command, header)
    )
    return found


@bug("queues-built-over-what-rotted", LedgerStore, "_may_dispatch")
async def queues_built_over_what_rotted(self: LedgerStore, start: int, end: int) -> bool:
    """Queues are rebuilt without waiting for repairs."""
    return True


@bug("cut-behind-what-rotted", EntryLog, "kept")
def cut_behind_what_rotted(self: EntryLog, count: int) -> tuple[int, int]:
    """A truncated log continues from the check value of its last entry, whether that entry is corrupt or not."""
    last = count - 1
    if last == self.begin.index:
        return self.begin.position, self.begin.check
    unit = self.believed_unit(last)
    return unit.end, stored_check(self.data.rest_of_file(unit.position))
