"""Planted bugs of messages in transactions."""

from __future__ import annotations

from broker.transactions import checkback
from broker.transactions.checkback import Asked, CheckBack
from broker.transactions.ending import EndTransaction
from broker.transactions.openhalves import Half, OpenHalves
from broker.transactions.outcomes import TransactionOutcome
from broker.transactions.rebuild import Rebuild
from broker.transactions.records import done_offsets, put_back
from broker.transactions.transactions import Transactions
from messagestore.messages import MessageToStore, PutResult
from messagestore.record import Message
from remoting.command import RemotingCommand
from remoting.peer import Peer
from simulation.mutants.cluster.bugs import BUGS

half_stored = Transactions.half_stored

bug = BUGS.playing("transactions")


@bug("commits-not-looked-for", Rebuild, "_read_commits")
async def commits_not_looked_for(self: Rebuild) -> bool:
    """As upstream: a half counts as open for the next master if its op message is missing, although it was committed."""
    return True


@bug("ended-stays-open", OpenHalves, "close")
def ended_stays_open(self: OpenHalves, root: int) -> None:
    """As upstream: any half that a producer names is ended."""


@bug("stored-while-read-forgotten", Transactions, "half_stored")
def stored_while_read_forgotten(
    self: Transactions, message: MessageToStore, appended: PutResult, due_ms: int | None = None
) -> None:
    """A half that comes while a new master reads its log does not count as open."""
    if self.open is not None:
        half_stored(self, message, appended, due_ms)


@bug("asks-nobody", CheckBack, "_ask")
def asks_nobody(self: CheckBack, asked: Asked) -> None:
    """Halves are put back, and no producer is asked."""


@bug("notified-in-part", Rebuild, "_note_op_record")
def notified_in_part(self: Rebuild, queue_offset: int, record: Message) -> None:
    """If a record lists ended halves, only the first of them counts."""
    for half in done_offsets(record.body)[:1]:
        if 0 <= half - self._span.half_from < len(self._done_marks):
            self._done_marks[half - self._span.half_from] = 1
    self._op_records.append((record.store_timestamp, record.physical_offset))


@bug("second-end-answered", EndTransaction, "_ended_before")
def second_end_answered(
    self: EndTransaction, peer: Peer, command: RemotingCommand, root: int, outcome: TransactionOutcome
) -> RemotingCommand | None:
    """A second end is answered with success, whatever the first one was."""
    return command.reply()


@bug("progress-before-it-is-confirmed", Transactions, "confirmed_end")
def progress_before_it_is_confirmed(self: Transactions) -> int:
    """All records of the master count as confirmed."""
    return self._store.max_offset()


@BUGS.bug("retention-forgets-open-halves", Transactions, "first_open", plays=("abandoned transactions",))
def nothing_is_open(self: Transactions) -> int | None:
    """As upstream: a half is deleted with its segment, whether it is ended or not."""
    return None


@BUGS.bug("given-up-in-silence", CheckBack, "_give_up", plays=("abandoned transactions",))
def forgotten(self: CheckBack, half: Half, found: Message) -> None:
    """A half without an end is dropped, and no copy is kept."""
    self._transactions.ended(half, None)


@bug("given-up-at-once", CheckBack, "_is_old")
def given_up_at_once(self: CheckBack, half: Half, now_ms: int) -> bool:
    """A producer that is away for a moment loses its transactions."""
    return True


@BUGS.bug("put-back-uncounted", checkback, "put_back", plays=("abandoned transactions",))
def as_if_not_asked(half: Message, *, root: int, asks: bool) -> MessageToStore:
    """A half is checked again and again."""
    return put_back(half, root=root, asks=False)
