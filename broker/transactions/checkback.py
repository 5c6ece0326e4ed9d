"""Asks producers what became of halves that they did not end (39).

Invariant: only a master that may write asks, and a half is put back, counted, and confirmed before it is asked for; so it is
asked for transactionCheckMax times at most, whoever is master. One whose group has no producer connected is not counted: it
waits for fileReservedTime, moved up in its queue when much has come behind it. Nor is one whose producers have not read what
they were asked before: it waits for room, and the other groups' do not. One that no record has room for once it is put
back, as a Java broker may have stored it, is asked for where it stands, as often by each master. What nobody ended is kept in
a topic of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.clients.groups import Client
from broker.sends.writegate import Replicated, Standing
from broker.settings.broker import BrokerSettings
from broker.tables.topics import Topics
from broker.transactions.openhalves import Half
from broker.transactions.producerturns import ProducerTurns
from broker.transactions.records import QUEUE_ID, asked_for, facts_of, given_up, put_back
from broker.transactions.transactions import Log, Transactions
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
DAMAGES_TOLD_MAX = 1_000
IN_PLACE_MAX = 1_000
"""Of those that cannot be put back so many are asked for at a time."""
RETRY_MS = 100
FRAME_BYTES = 1_024
"""Of a check beside the half, about; so a bound of bytes is one of their number, too."""
DRAIN_MS = 20
"""How often those that wait for their producers' room are looked at."""
SPAN_MIN = 100_000
"""A half is moved up when so many came behind it, and twice as many as are open: a new master reads all that came since."""


class Asked(NamedTuple):
    """A half that was put back, to be asked for when that is confirmed; or one that cannot be."""

    end_offset: int
    root: int
    group: str
    half: Message
    client: Client


class CheckBack:
    """`producers` gives those of a group that are connected."""

    def __init__(
        self,
        transactions: Transactions,
        *,
        store: Log,
        role: Standing,
        replication: Replicated,
        topics: Topics,
        producers: Callable[[str], Sequence[Client]],
        clock: Clock,
        settings: BrokerSettings,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._role = role
        self._replication = replication
        self._topics = topics
        self._turns = ProducerTurns(producers)
        self._clock = clock
        self._settings = settings
        self._asked: deque[Asked] = deque()
        self._asked_bytes = 0
        self._failure = RepeatedFailure()
        self._damaged: set[int] = set()  # places of halves that were told of in this role
        self._in_place: dict[
            int, int
        ] = {}  # root -> times asked in this role, of those that cannot be put back

    def role_taken(self) -> None:
        self._damaged.clear()
        self._in_place.clear()
        self._asked.clear()
        self._asked_bytes = 0
        self._turns.role_taken()

    def acknowledged(self) -> None:
        """More of the log may be confirmed: ask for the halves that were put back below that."""
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
                    logger.error("halves cannot be read, trying on", extra=fields(why=error))

    async def round(self) -> bool:
        """Looks at every half that is open now, once; at those whose producers have no room until transactionCheckInterval has
        passed, and tells whether it has: then the next round is due, for others do not wait. StoreError, OSError."""
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
        """Whether the round goes on."""
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
        """Until this master may store more, or is none any more."""
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
        """Whether it was read, which takes time."""
        asks = self._turns.has_any(group)
        is_old = not asks and self._is_old(half, now_ms)
        if not (asks or is_old or self._lags(half)):
            return False
        try:
            content = await self._store.message_at(half.place)
        except RecordDamaged as damage:  # the others do not wait for it
            self._note_damaged(half.place, str(damage))
            return True
        table = self._transactions.open
        if self._transactions.term != term or table is None or table.find(half.root) != half:
            return True  # ended meanwhile, or not ours any more
        if not self._role.accepts_sends:
            return True
        if content is None:
            self._note_damaged(half.place, "no record stands there")
            return True
        found = decode(content, verify_body=False)
        client = self._turns.next(group) if asks else None
        if asks and client is None:
            return True  # gone or full meanwhile
        if is_old or (
            asks and facts_of(found.properties).check_times >= self._settings.transaction_check_max
        ):
            self._give_up(half, found)
        else:
            self._put_back(half, found, group, client)
        return True

    def _note_damaged(self, place: int, why: str) -> None:
        if place in self._damaged or len(self._damaged) >= DAMAGES_TOLD_MAX:
            return
        self._damaged.add(place)
        logger.error(
            "a half that is open is damaged, its transaction waits for a sound copy of another replica",
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
        told = {"group": facts.group, "key": facts.key, "checks": facts.check_times}
        if appended.error is None:
            told["topic"] = CHECKED_TOO_OFTEN_TOPIC
            logger.error("a half message was not ended, and is given up", extra=fields(**told))
        else:  # it would keep the log from retention for good
            told |= {"topic": HALF_TOPIC, "queue_offset": half.queue_offset, "offset": half.place}
            logger.error(
                "a half message was not ended, and is given up without a copy, for no record has room for one; it stands "
                "there until retention deletes it",
                extra=fields(**told, why=appended.error.name),
            )
        self._transactions.ended(half, None, 0 if appended.error else appended.end_offset)

    def _put_back(self, half: Half, found: Message, group: str, client: Client | None) -> None:
        """`client` is who is to be asked; None: it is moved up alone."""
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
        self._transactions.done_with(half.queue_offset)
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

    def _ask_in_place(self, half: Half, found: Message, group: str, client: Client, why: PutStatus) -> None:
        """It stays where it is, and no record counts how often it is asked for."""
        times = self._in_place.get(half.root)
        if times is None:
            if not self._room_in_place():
                return  # its turn comes when another one is ended
            times = facts_of(found.properties).check_times
            told = fields(offset=half.place, group=group, key=facts_of(found.properties).key, why=why.name)
            logger.error("a half cannot be stored again, it is asked for where it is", extra=told)
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
            logger.error("a half cannot be stored again, trying on", extra=fields(why=why.name))

    def _ask(self, asked: Asked) -> None:
        client = self._turns.next(asked.group) if asked.client.peer.closed else asked.client
        if client is None:
            return  # gone just now: counted, and asked for in the next round
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
    """Bytes that asking for it takes of its producer's room."""
    return len(half.body) + len(half.properties) + FRAME_BYTES
