"""A master's transactions against a scripted log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.metrics.transactiontotals import TransactionTotals
from broker.settings.transactions import TransactionSettings
from broker.tables.consumeroffsets import TRANSACTIONS_GROUP, ConsumerOffsets
from broker.transactions.openhalves import Half
from broker.transactions.records import committed, done_records, half_of
from broker.transactions.transactions import Transactions
from messagestore.log.commits import CommitsFound, commits_in
from messagestore.messages import MessageToStore, PutResult, QueueEntry
from messagestore.record import Message, decode, encode, pack_host
from messagestore.systemtopics import HALF_TOPIC
from mqruntime.slices import whole
from remoting.bodies.offsets import ConsumerOffsetWrapper
from tests.support.doubles import ManualClock

HOST = pack_host("10.0.0.1", 10911)


class ScriptedLog:
    """A log whose records are all confirmed and dispatched, unless `confirmed` is set."""

    store_host = HOST

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.bytes = bytearray()
        self.queues: dict[str, list[QueueEntry]] = {}
        self.confirmed: int | None = None
        self.first = 0
        self.looks: list[int] = []

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        return [self._append(message) for message in messages]

    def _append(self, message: MessageToStore) -> PutResult:
        queue, place = self.queues.setdefault(message.topic, []), len(self.bytes)
        now_ms = self.clock.now_ms()
        record = encode(
            Message(
                message.topic, message.queue_id, len(queue), place, 0, message.flag, message.sys_flag, 0,
                message.born_timestamp, message.born_host, now_ms, HOST, message.reconsume_times,
                message.prepared_transaction_offset, bytes(message.body), message.properties,
            )
        )  # fmt: skip
        self.bytes += record
        queue.append(QueueEntry(place, len(record), 0))
        return PutResult(place, len(self.bytes), len(queue) - 1, 1, now_ms)

    def at(self, place: int) -> Message:
        return decode(self.bytes, place)

    def half(self, body: bytes, group: str = "PG") -> PutResult:
        properties = f"UNIQ_KEY\x01{body.decode()}\x02PGROUP\x01{group}\x02TRAN_MSG\x01true\x02".encode()
        return self._append(half_of(MessageToStore("orders", 1, body, properties)))

    def commit(self, half: PutResult) -> PutResult:
        message = committed(self.at(half.physical_offset))
        assert message is not None
        return self._append(message)

    def done(self, *halves: PutResult) -> PutResult:
        (message,) = done_records([half.queue_offset for half in halves], HOST, 0)
        return self._append(message)

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]:
        return self.queues.get(topic, [])[queue_offset : queue_offset + count_max]

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.first if topic == HALF_TOPIC else 0

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get(topic, []))

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.max_queue_offset(topic, queue_id)

    def confirm_offset(self) -> int:
        return len(self.bytes) if self.confirmed is None else self.confirmed

    def max_offset(self) -> int:
        return len(self.bytes)

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None:
        return memoryview(bytes(self.bytes))[physical_offset:]

    def begin_of(self, record_offset: int) -> int:
        return record_offset

    async def commits_from(self, position: int, limit: int) -> CommitsFound:
        self.looks.append(position)
        content = bytes(self.bytes[position : min(limit, position + 1_000)])
        return commits_in(content, position, 1 << 30, limit)


class ScriptedRole:
    accepts_sends = True
    is_slave = False

    def enough_in_sync(self) -> bool:
        return True

    def acked_end(self) -> int:
        return 1 << 60


class Bench:
    def __init__(self, *, in_pair: bool = True) -> None:
        self.clock = ManualClock()
        self.followed = 1 << 62
        self.log = ScriptedLog(self.clock)
        self.offsets = ConsumerOffsets()
        self.transactions = Transactions(
            store=self.log,
            role=ScriptedRole(),
            replication=ScriptedRole(),
            followed=(lambda: self.followed) if in_pair else None,
            offsets=self.offsets,
            clock=self.clock,
            settings=TransactionSettings(),
            totals=TransactionTotals(),
            begin=lambda: None,
        )

    def lead(self) -> list[int]:
        """Takes the mastership, and returns the open roots."""
        self.transactions.role_taken(leads=True)
        self.step()
        return self.open

    def step(self) -> int | None:
        async def steps() -> int | None:
            while (wait_ms := await self.transactions._step()) == 0:
                pass
            return wait_ms

        return asyncio.run(steps())

    @property
    def open(self) -> list[int]:
        assert self.transactions.open is not None
        return self.transactions.open.roots()

    def copied(self) -> tuple[dict[str, dict[int, int]], int]:
        """The offsets for slaves, and the log end that they rest on."""
        body, rests_on = whole(self.offsets.for_slaves())
        return ConsumerOffsetWrapper.decode(body).offset_table, rests_on

    def kept(self, topic: str) -> int | None:
        return self.offsets.find(TRANSACTIONS_GROUP, topic, 0)


def half_message(bench: Bench, appended: PutResult) -> MessageToStore:
    half = bench.log.at(appended.physical_offset)
    return MessageToStore(half.topic, 0, half.body, half.properties)


def replace_half(bench: Bench, root: int) -> Half:
    table = bench.transactions.open
    assert table is not None
    half = table.find(root)
    assert half is not None
    return half
