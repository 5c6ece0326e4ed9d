"""END_TRANSACTION (37): a producer commits or rolls back a half (the stored message of a transaction). Upstream:
EndTransactionProcessor.

Invariant: an end is answered OK only once it is confirmed. A second end changes nothing. If it has the same outcome, it gets
the same answer; otherwise the answer names the first outcome. As long as no end succeeds, the broker asks the producer for the
outcome again."""

from __future__ import annotations

from accesscontrol.guard import Access
from broker.access.needs import PUB, topic_need
from broker.clients.refusals import REJECTED, ClientRefused, put_refusal
from broker.replication.pending import PendingSend
from broker.replication.writegate import WriteGate
from broker.transactions.openhalves import Half
from broker.transactions.outcomes import TransactionOutcome
from broker.transactions.records import committed, facts_of
from broker.transactions.transactions import TransactionLog, Transactions
from messagestore.errors import RecordDamaged
from messagestore.record import Message, decode
from messagestore.systemtopics import HALF_TOPIC
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.transactions import EndTransactionHeader
from remoting.peer import Peer
from remoting.router import Router

WAIT_MS_MAX = 2_500
"""Limit of the wait until the half is confirmed and a new master has read the open halves."""
SLAVE = "Message store is slave mode, so end transaction is forbidden. "
NO_OUTCOME = "commitOrRollback {} ends nothing: 8 commits, 12 rolls back; the transaction stays open"
NOT_FOUND = "Find prepared transaction message failed"
GROUP_WRONG = "The producer group wrong"
QUEUE_OFFSET_WRONG = "The transaction state table offset wrong"
ENDED = "the transaction is ended"
SAYS = {
    TransactionOutcome.COMMIT: ResponseCode.TRANSACTION_SHOULD_COMMIT,
    TransactionOutcome.ROLLBACK: ResponseCode.TRANSACTION_SHOULD_ROLLBACK,
}


class EndTransaction:
    """The handler of END_TRANSACTION (37)."""

    def __init__(
        self, transactions: Transactions, store: TransactionLog, gate: WriteGate, access: Access
    ) -> None:
        self._access = access
        self._transactions = transactions
        self._store = store
        self._gate = gate

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.END_TRANSACTION, self.handle)

    async def handle(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        """Answer an end. The outcome "unknown" is rejected."""
        header = EndTransactionHeader.from_ext(command.ext)
        if header.commit_or_rollback not in set(TransactionOutcome):
            return command.reply(ResponseCode.INVALID_PARAMETER, NO_OUTCOME.format(header.commit_or_rollback))
        try:
            return await self._end(peer, command, header)
        except ClientRefused as refused:
            return refused.reply_to(command)

    async def _end(
        self, peer: Peer, command: RemotingCommand, header: EndTransactionHeader
    ) -> RemotingCommand | None:
        self._check_role()
        transactions, place = self._transactions, header.commit_log_offset
        if not await transactions.known(0, WAIT_MS_MAX):
            raise ClientRefused(ResponseCode.SYSTEM_BUSY, REJECTED)
        asked = await self._half_at(place)
        _check(asked, header)
        self._check_right(peer, command, asked)
        root = facts_of(asked.properties).root
        root = asked.queue_offset if root is None else root
        outcome = TransactionOutcome(header.commit_or_rollback)
        newest = asked
        while True:
            self._check_role()
            if transactions.open is None:
                raise ClientRefused(ResponseCode.SYSTEM_BUSY, REJECTED)
            half = transactions.open.find(root)
            if half is None:
                return self._ended_before(peer, command, root, outcome)
            if half.place == newest.physical_offset:
                return self._ended_now(peer, command, half, newest, outcome)
            newest = await self._half_at(half.place)  # the half was put back since: end the newer copy
            if not _is_copy(newest, asked):
                raise ClientRefused(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
            self._check_right(peer, command, newest)

    def _check_right(self, peer: Peer, command: RemotingCommand, half: Message) -> None:
        """The topic in the request is optional, so the half's own topic counts. Raises ClientRefused."""
        message = committed(half)
        need = topic_need(half.topic if message is None else message.topic, PUB)
        if (why := self._access.why_not(peer, command, need)) is not None:
            raise ClientRefused(ResponseCode.NO_PERMISSION, why)

    def _check_role(self) -> None:
        refusal = self._gate.refusal()
        if refusal is None:
            return
        if refusal.code == ResponseCode.SYSTEM_BUSY and self._gate.is_slave:
            raise ClientRefused(ResponseCode.SLAVE_NOT_AVAILABLE, SLAVE)
        raise refusal

    async def _half_at(self, place: int) -> Message:
        """The record at `place`, once it is confirmed. With asynchronous acknowledgement its send may be answered before."""
        end = self._transactions.stored_end
        try:
            content = await self._store.listed_at(place)
            if content is None and place < end and await self._transactions.known(end, WAIT_MS_MAX):
                content = await self._store.listed_at(place)
        except RecordDamaged as damage:  # a replica has the record intact; the next check logs the damage
            raise ClientRefused(ResponseCode.SYSTEM_ERROR, str(damage)) from None
        if content is None:
            raise ClientRefused(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        return decode(content, verify_body=False)

    def _ended_now(
        self, peer: Peer, command: RemotingCommand, half: Half, found: Message, outcome: TransactionOutcome
    ) -> RemotingCommand | None:
        transactions = self._transactions
        message = committed(found)
        if message is None:
            raise ClientRefused(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        end: int | None = None
        if outcome is TransactionOutcome.COMMIT:
            (appended,) = self._store.append([message])
            if appended.error is not None:
                raise ClientRefused(*put_refusal(appended))
            end = appended.end_offset
        transactions.ended(half, outcome, end or 0)
        transactions.totals.ended(message.topic, committed=outcome is TransactionOutcome.COMMIT)
        if outcome is TransactionOutcome.ROLLBACK and not command.is_oneway:
            end = transactions.write_ops()
            if end is None:
                raise ClientRefused(
                    ResponseCode.SYSTEM_ERROR, "the end could not be stored; it is checked again"
                )
        return self._answered_at(end, peer, command)

    def _ended_before(
        self, peer: Peer, command: RemotingCommand, root: int, outcome: TransactionOutcome
    ) -> RemotingCommand | None:
        before = self._transactions.outcomes.of(root)
        if before is outcome:
            self._transactions.write_ops()
            end = max(self._transactions.stored_end, self._gate.pending.last_end)
            return self._answered_at(end, peer, command)
        code = ResponseCode.SYSTEM_ERROR if before is None else SAYS[before]
        raise ClientRefused(code, ENDED if before is None else f"{ENDED}: {before.name.lower()}")

    def _answered_at(self, end: int | None, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        """Answer OK when the log is confirmed up to `end`. None: do not answer."""
        if command.is_oneway or end is None:
            return None
        gate = self._gate
        unknown = command.reply(ResponseCode.SYSTEM_ERROR, "FLUSH_SLAVE_TIMEOUT")
        reply = command.reply()
        gate.pending.add(PendingSend(end, gate.deadline_ms(), peer, reply, command.code, unknown))
        gate.settle()
        return None


def _is_copy(newest: Message, asked: Message) -> bool:
    """Whether a half is a later copy of the one that the producer names."""
    first, last = facts_of(asked.properties), facts_of(newest.properties)
    return newest.topic == HALF_TOPIC and (first.group, first.key) == (last.group, last.key)


def _check(half: Message, header: EndTransactionHeader) -> None:
    """Check the half in upstream's order. Also check that it is the half that the producer means. Raises ClientRefused."""
    if half.topic != HALF_TOPIC:
        raise ClientRefused(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
    facts = facts_of(half.properties)
    if facts.group != header.producer_group:
        raise ClientRefused(ResponseCode.SYSTEM_ERROR, GROUP_WRONG)
    if half.queue_offset != header.tran_state_table_offset:
        raise ClientRefused(ResponseCode.SYSTEM_ERROR, QUEUE_OFFSET_WRONG)
    named = [name for name in (header.msg_id, header.transaction_id) if name]
    if named and facts.key not in named:
        raise ClientRefused(ResponseCode.SYSTEM_ERROR, f"{NOT_FOUND}: {named[0]} is not there any more")
