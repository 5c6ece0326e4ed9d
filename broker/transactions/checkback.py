"""Checks of open halves: asks producers for the outcome (CHECK_TRANSACTION_STATE, 39). A half is the stored message of a
transaction, open until the transaction ends. Upstream: TransactionalMessageCheckService.

Invariant: only a master that may write sends checks. Before the check of a half is sent, the half is put back: it is stored
again with a higher count, and the new copy is confirmed. So each half is checked at most transactionCheckMax times, across
all masters. If the producer group of a half has no connected producer, there is no check and the count stays. Such a half
is abandoned once it is fileReservedTime overdue. Until then it is stored again at the end of its queue, with the same
count, when many halves follow it. If too many bytes sent to every producer of the group are still unread, the halves of the
group wait until a producer has read some. Halves of other groups are checked meanwhile. A half that is too long to be put
back (a Java broker may have stored it) is checked without being stored again. Its checks are counted only in memory, so
each new master may check it up to transactionCheckMax times again. Halves that no producer ended are copied to a topic of
their own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.clients.groups import GroupClient
from broker.replication.writegate import ReplicationView, RoleView
from broker.settings.broker import BrokerSettings
from broker.tables.topics import Topics
from broker.transactions.openhalves import Half
from broker.transactions.producerturns import ProducerTurns
from broker.transactions.records import QUEUE_ID, asked_for, facts_of, given_up, put_back, real_topic
from broker.transactions.transactions import TransactionLog, Transactions
from messagestore.errors import RecordDamaged, StoreError
from messagestore.messages import NEVER_STORED, PutStatus
from messagestore.record import Message, decode
from messagestore.systemtopics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.transactions import CheckTransactionStateHeader

logger = logging.getLogger("broker.transactions")

LOOKS_A_TURN = 1_000
READ_A_TURN = 32
IN_FLIGHT_MAX = 1_024
IN_FLIGHT_BYTES_MAX = 64 << 20
DAMAGES_LOGGED_MAX = 1_000
IN_PLACE_MAX = 1_000
"""Limit of the halves that are checked in place at the same time."""
RETRY_MS = 100
FRAME_BYTES = 1_024
"""The size of a check without the half, about. Because of it a limit of bytes also limits the number of checks."""
DRAIN_MS = 20
"""Interval between two looks at halves whose producers have no room."""
SPAN_MIN = 100_000
"""A half moves to the end of its queue when this many halves, plus twice the open ones, follow it. A new master reads all."""


class Asked(NamedTuple):
    """A half that was put back, or is checked in place. Its check is sent once the log is confirmed up to `end_offset`."""

    end_offset: int
    root: int
    group: str
    half: Message
    client: GroupClient


class CheckBack:
    """The rounds of checks of one broker. `producers` returns the connected producers of a group.
    `may_end(client, topic)`: whether a producer may end halves of a topic."""

    def __init__(
        self,
        transactions: Transactions,
        *,
        store: TransactionLog,
        role: RoleView,
        replication: ReplicationView,
        topics: Topics,
        producers: Callable[[str], Sequence[GroupClient]],
        may_end: Callable[[GroupClient, str], bool],
        clock: Clock,
        settings: BrokerSettings,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._role = role
        self._replication = replication
        self._topics = topics
        self._turns = ProducerTurns(producers, may_end)
        self._may_end = may_end
        self._clock = clock
        self._settings = settings
        self._asked: deque[Asked] = deque()
        self._asked_bytes = 0
        self._failure = RepeatedFailure()
        self._damaged: set[int] = set()  # positions of the damaged halves that were logged in this role
        self._in_place: dict[int, int] = {}  # root -> number of checks in place in this role

    def role_taken(self) -> None:
        self._damaged.clear()
        self._in_place.clear()
        self._asked.clear()
        self._asked_bytes = 0
        self._turns.role_taken()

    def acknowledged(self) -> None:
        """Send the checks that waited for the confirmed end."""
        if not self._asked:
            return
        end = self._transactions.confirmed_end()
        while self._asked and self._asked[0].end_offset <= end:
            asked = self._asked.popleft()
            self._asked_bytes -= len(asked.half.body)
            self._turns.release(asked.client, _cost(asked.half))
            table = self._transactions.open
            half = None if table is None else table.find(asked.root)
            if half is not None and half.place == asked.half.physical_offset:
                self._ask(asked)

    async def run(self) -> None:
        waited = False
        while True:
            await asyncio.sleep(0 if waited else self._settings.transaction_check_interval / 1000)
            try:
                waited = await self.round()
            except (StoreError, OSError) as error:
                waited = False
                if self._failure.failed(str(error), self._clock.monotonic_ms()):
                    logger.error("halves cannot be read, retrying", extra=fields(why=error))

    async def round(self) -> bool:
        """Look once at every half that is open now, then at the halves whose producers had no room, until
        transactionCheckInterval has passed. Returns whether halves still wait; then the next round begins at once. Raises
        StoreError, OSError."""
        transactions, term = self._transactions, self._transactions.term
        if transactions.open is None:
            return False
        now_ms, looked = self._clock.monotonic_ms(), 0
        waiting: dict[str, deque[int]] = {}
        for number, root in enumerate(transactions.open.roots(), 1):
            if number % LOOKS_A_TURN == 0 or looked == READ_A_TURN:
                looked = 0
                await asyncio.sleep(0)
            await self._room(term)
            if not self._goes_on(term):
                return False
            half = transactions.open.find(root)
            if half is None or half.due_ms > now_ms:
                continue
            group = transactions.open.group_name(half)
            if group in waiting or self._turns.is_full(group):
                waiting.setdefault(group, deque()).append(root)
            else:
                looked += await self._look(half, group, now_ms, term)
        while waiting and self._clock.monotonic_ms() - now_ms < self._settings.transaction_check_interval:
            await asyncio.sleep(DRAIN_MS / 1000)
            for group in list(waiting):
                if not await self._look_where_room(group, waiting[group], now_ms, term):
                    return False
                if not waiting[group]:
                    del waiting[group]
        transactions.note_progress()
        return bool(waiting)

    def _goes_on(self, term: int) -> bool:
        transactions = self._transactions
        return transactions.term == term and transactions.open is not None and self._role.accepts_sends

    async def _look_where_room(self, group: str, roots: deque[int], now_ms: int, term: int) -> bool:
        """Look at halves of `group` while its producers have room. Returns False if the round has to end."""
        for _ in range(READ_A_TURN):
            await self._room(term)
            table = self._transactions.open
            if table is None or not self._goes_on(term):
                return False
            if not roots or self._turns.is_full(group):
                return True
            half = table.find(roots.popleft())
            if half is not None:
                await self._look(half, group, now_ms, term)
        return True

    async def _room(self, term: int) -> None:
        """Wait until this master may store more halves, or is no longer master."""
        while True:
            full = (
                len(self._asked) >= IN_FLIGHT_MAX
                or self._asked_bytes >= IN_FLIGHT_BYTES_MAX
                or not self._replication.enough_in_sync()
            )
            if not full or self._transactions.term != term or not self._role.accepts_sends:
                return
            await asyncio.sleep(RETRY_MS / 1000)

    async def _look(self, half: Half, group: str, now_ms: int, term: int) -> bool:
        """Put back or abandon a half that is due. Returns whether the half's record was read, which takes time."""
        asks = self._turns.has_any(group)
        is_old = not asks and self._is_old(half, now_ms)
        if not (asks or is_old or self._lags(half)):
            return False
        try:
            content = await self._store.message_at(half.place)
        except RecordDamaged as damage:  # other halves do not wait for it
            self._note_damaged(half.place, str(damage))
            return True
        table = self._transactions.open
        if self._transactions.term != term or table is None or table.find(half.root) != half:
            return True  # meanwhile the transaction ended or the role changed
        if not self._role.accepts_sends:
            return True
        if content is None:
            self._note_damaged(half.place, "no record found")
            return True
        found = decode(content, verify_body=False)
        topic = real_topic(found)
        if asks and not self._turns.has_any(group, topic):  # those who are connected may not end it
            asks, is_old = False, self._is_old(half, now_ms)
            if not (is_old or self._lags(half)):
                return True
        client = self._turns.next(group, topic) if asks else None
        if asks and client is None:
            return True  # meanwhile no producer is connected or has room
        if is_old or (
            asks and facts_of(found.properties).check_times >= self._settings.transaction_check_max
        ):
            self._give_up(half, found)
        else:
            self._put_back(half, found, group, client)
        return True

    def _note_damaged(self, place: int, why: str) -> None:
        if place in self._damaged or len(self._damaged) >= DAMAGES_LOGGED_MAX:
            return
        self._damaged.add(place)
        logger.error(
            "open half is damaged, its transaction waits for repair from a replica",
            extra=fields(offset=place, why=why),
        )

    def _is_old(self, half: Half, now_ms: int) -> bool:
        return now_ms - half.due_ms >= self._settings.retention.reserved_ms

    def _lags(self, half: Half) -> bool:
        table = self._transactions.open
        assert table is not None
        behind = self._store.next_queue_offset(HALF_TOPIC, QUEUE_ID) - half.queue_offset
        return behind > SPAN_MIN + 2 * len(table)

    def _give_up(self, half: Half, found: Message) -> None:
        self._topics.ensure(CHECKED_TOO_OFTEN_TOPIC, 1)
        (appended,) = self._store.append([given_up(found)])
        if appended.error is not None and appended.error not in NEVER_STORED:
            self._note_refused(appended.error)
            return
        facts = facts_of(found.properties)
        about = {"group": facts.group, "key": facts.key, "checks": facts.check_times}
        if appended.error is None:
            about["topic"] = CHECKED_TOO_OFTEN_TOPIC
            logger.error("half abandoned, no producer ended it", extra=fields(**about))
        else:  # without this the half would keep the log from retention forever
            about |= {"topic": HALF_TOPIC, "queue_offset": half.queue_offset, "offset": half.place}
            logger.error(
                "half abandoned without a copy, no producer ended it and no record has room for one; kept until retention "
                "deletes it",
                extra=fields(**about, why=appended.error.name),
            )
        self._transactions.ended(half, None, 0 if appended.error else appended.end_offset)

    def _put_back(self, half: Half, found: Message, group: str, client: GroupClient | None) -> None:
        """Store `found` again at the end of its queue. `client` is the producer to ask; None if the half only moves."""
        asks = client is not None
        message = put_back(found, root=half.root, asks=asks)
        (appended,) = self._store.append([message])
        if appended.error in NEVER_STORED:
            if client is not None:
                self._ask_in_place(half, found, group, client, appended.error)
            return
        if appended.error is not None:
            self._note_refused(appended.error)
            return
        due_ms = self._clock.monotonic_ms() if asks else half.due_ms
        self._transactions.half_stored(message, appended, due_ms)
        self._transactions.mark_done(half.queue_offset)
        if client is not None:
            again = replace(
                found,
                properties=message.properties,
                queue_offset=appended.queue_offset,
                physical_offset=appended.physical_offset,
                store_timestamp=appended.store_timestamp,
                store_host=self._store.store_host,
            )
            self._will_ask(Asked(appended.end_offset, half.root, group, again, client))

    def _ask_in_place(
        self, half: Half, found: Message, group: str, client: GroupClient, why: PutStatus
    ) -> None:
        """Check a half without putting it back. No record counts these checks."""
        times = self._in_place.get(half.root)
        if times is None:
            if not self._room_in_place():
                return  # retried when another such half has ended
            times = facts_of(found.properties).check_times
            about = fields(offset=half.place, group=group, key=facts_of(found.properties).key, why=why.name)
            logger.error("half cannot be stored again, checked in place", extra=about)
        if times >= self._settings.transaction_check_max:
            self._give_up(half, found)
            return
        self._in_place[half.root] = times + 1
        self._will_ask(Asked(self._transactions.stored_end, half.root, group, found, client))

    def _room_in_place(self) -> bool:
        if len(self._in_place) >= IN_PLACE_MAX:
            table = self._transactions.open
            assert table is not None
            self._in_place = {root: times for root, times in self._in_place.items() if table.find(root)}
        return len(self._in_place) < IN_PLACE_MAX

    def _will_ask(self, asked: Asked) -> None:
        self._asked.append(asked)
        self._asked_bytes += len(asked.half.body)
        self._turns.reserve(asked.client, _cost(asked.half))
        self.acknowledged()

    def _note_refused(self, why: PutStatus) -> None:
        if self._failure.failed(why, self._clock.monotonic_ms()):
            logger.error("half cannot be stored again, retrying", extra=fields(why=why.name))

    def _ask(self, asked: Asked) -> None:
        topic, client = real_topic(asked.half), asked.client if not asked.client.peer.closed else None
        if client is None or not self._may_end(client, topic):
            client = self._turns.next(asked.group, topic)
        if client is None:
            return  # the producers have just disconnected: this check counts, and the next round checks again
        half, key = asked.half, facts_of(asked.half.properties).key
        header = CheckTransactionStateHeader(
            half.queue_offset,
            half.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=half.message_id,
            topic=half.topic,
            broker_name=self._settings.broker_name,
        )
        request = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, asked_for(half))
        client.peer.one_way(request)


def _cost(half: Message) -> int:
    """The bytes that the half's check takes of a producer's room."""
    return len(half.body) + len(half.properties) + FRAME_BYTES
