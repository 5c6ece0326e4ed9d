"""The delivery of delayed messages against a scripted log: due times, waits and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from broker.metrics.totals import Totals
from broker.sends.delaydelivery import IN_FLIGHT_MAX, RETRY_MS, SIGHTINGS_PER_DELAY, DelayDelivery
from broker.sends.scheduling import scheduled
from broker.tables.delayoffsets import DelayOffsets
from messagestore.errors import RecordDamaged
from messagestore.messages import MessageToStore, PutResult, PutStatus, QueueEntry
from messagestore.record import Message, encode, pack_host
from remoting.bodies.offsets import DelayOffsetWrapper
from tests.support.doubles import ManualClock

LEVELS_MS = [1_000, 5_000]
HOST = pack_host("10.0.0.1", 10911)
OF_A_TOPIC = 99
QUEUE_ID_AT = 12


class ScriptedLog:
    """A schedule topic whose records are 1,000 bytes apart; appended messages are 10 bytes long."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.queues: dict[int, list[QueueEntry]] = {}
        self.records: dict[int, bytes] = {}
        self.put: list[MessageToStore] = []
        self.errors: list[PutStatus | None] = []
        self.end = 0
        self.confirmed = 1 << 40
        self.first = 0
        self.damaged: set[int] = set()

    def schedule(self, body: bytes, level: int) -> None:
        waiting = scheduled(MessageToStore("orders", 3, body, b"KEYS\x01k\x02"), level, len(LEVELS_MS))
        phy, place = len(self.records) * 1_000, len(self.queues.get(level - 1, []))
        record = encode(
            Message(
                topic=waiting.topic, queue_id=waiting.queue_id, queue_offset=place, physical_offset=phy, total_size=0,
                flag=0, sys_flag=0, body_crc=0, born_timestamp=1, born_host=HOST,
                store_timestamp=self.clock.now_ms(), store_host=HOST, reconsume_times=0,
                prepared_transaction_offset=0, body=body, properties=waiting.properties,
            )
        )  # fmt: skip
        self.records[phy] = record
        due_ms = self.clock.now_ms() + LEVELS_MS[level - 1]
        self.queues.setdefault(level - 1, []).append(QueueEntry(phy, len(record), due_ms))

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]:
        if topic != "SCHEDULE_TOPIC_XXXX":
            queue_id = OF_A_TOPIC
        return self.queues.get(queue_id, [])[queue_offset : queue_offset + count_max]

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.first

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get(queue_id, []))

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.max_queue_offset(topic, queue_id)

    def confirm_offset(self) -> int:
        return self.confirmed

    def max_offset(self) -> int:
        return self.end

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None:
        if physical_offset in self.damaged:
            raise RecordDamaged("00000000000000000000", physical_offset, "the body has another CRC")
        record = self.records.get(physical_offset)
        return None if record is None else memoryview(record)

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        return [self._append(message) for message in messages]

    def _append(self, message: MessageToStore) -> PutResult:
        if self.errors and (error := self.errors.pop(0)) is not None:
            return PutResult(-1, -1, -1, 0, -1, error)
        self.put.append(message)
        self.end += 10
        return PutResult(self.end - 10, self.end, 0, 1, 0)


class ScriptedRole:
    accepts_sends = True
    is_slave = False
    enough = True
    acked = 1 << 40

    def enough_in_sync(self) -> bool:
        return self.enough

    def acked_end(self) -> int:
        return self.acked


class Bench:
    def __init__(self, *, in_pair: bool = False) -> None:
        self.followed = 0
        self.clock = ManualClock()
        self.log = ScriptedLog(self.clock)
        self.role = ScriptedRole()
        self.offsets = DelayOffsets()
        self.totals = Totals(with_sizes=False)
        self.delivery = DelayDelivery(
            store=self.log,
            role=self.role,
            replication=self.role,
            offsets=self.offsets,
            clock=self.clock,
            levels_ms=LEVELS_MS,
            totals=self.totals,
            followed=(lambda: self.followed) if in_pair else None,
        )

    def after(self, ms: int) -> int | None:
        """Runs a round `ms` later, and further rounds until one returns a wait."""
        self.clock.ms += ms
        while (wait_ms := asyncio.run(self.delivery.deliver_due())) == 0:
            continue
        return wait_ms

    @property
    def copied(self) -> int | None:
        """The offset of level 1 that slaves get."""
        given = self.offsets.for_slaves()
        return None if given is None else DelayOffsetWrapper.decode(given[0]).offset_table.get(1, 0)

    @property
    def delivered(self) -> list[bytes]:
        return [bytes(message.body) for message in self.log.put]


def test_each_level_is_delivered_when_due_and_the_round_returns_the_next_wait() -> None:
    bench = Bench()
    assert bench.after(0) is None, "no message waits"
    bench.log.schedule(b"five", 2)
    bench.log.schedule(b"one", 1)
    assert bench.after(0) == 1_000
    assert (bench.after(999), bench.delivered) == (1, [])
    assert (bench.after(1), bench.delivered) == (4_000, [b"one"])
    assert (bench.after(4_000), bench.delivered) == (None, [b"one", b"five"])
    (message, _) = bench.log.put
    assert (message.topic, message.queue_id) == ("orders", 3)
    assert bench.totals.stored["orders"].messages == 2, "they are in the topic now"
    assert [bench.offsets.next_offset(level) for level in (1, 2)] == [1, 1]


def test_a_levels_offset_moves_only_when_the_replicas_hold_the_delivered_record() -> None:
    bench = Bench()
    bench.role.acked, bench.log.confirmed = 0, 0
    for number in range(3):
        bench.log.schedule(b"%d" % number, 1)
    bench.after(1_000)
    assert len(bench.delivered) == 3
    assert bench.offsets.next_offset(1) == 0
    bench.role.acked = 20
    bench.delivery.acknowledged()
    assert bench.offsets.next_offset(1) == 0, "an acknowledged record must be confirmed too"
    bench.log.confirmed = 20
    bench.delivery.acknowledged()
    assert bench.offsets.next_offset(1) == 2


def test_a_new_mastership_delivers_unconfirmed_messages_again() -> None:
    bench = Bench()
    bench.role.acked = 10
    bench.log.schedule(b"held by all", 1)
    bench.log.schedule(b"in flight", 1)
    bench.after(1_000)
    bench.delivery.role_taken(leads=True)
    bench.after(0)
    assert bench.delivered == [b"held by all", b"in flight", b"in flight"]


def test_a_slave_delivers_nothing() -> None:
    bench = Bench()
    bench.log.schedule(b"waits", 1)
    bench.role.accepts_sends = False
    assert (bench.after(2_000), bench.delivered) == (None, [])


def test_a_set_without_enough_replicas_delivers_later() -> None:
    bench = Bench()
    bench.log.schedule(b"waits", 1)
    bench.role.enough = False
    assert (bench.after(1_000), bench.delivered) == (RETRY_MS, [])
    bench.role.enough = True
    bench.after(RETRY_MS)
    assert bench.delivered == [b"waits"]


def test_clocks_that_disagree_delay_a_message_no_longer_than_its_level() -> None:
    bench = Bench()
    bench.log.schedule(b"from the future", 1)
    bench.clock.wall_ms -= 3_600_000  # this master's clock is an hour behind
    assert bench.after(0) == 1_000
    bench.clock.wall_ms -= 3_600_000
    bench.after(1_000)
    assert bench.delivered == [b"from the future"]


def test_a_delayed_message_with_a_corrupt_due_time_in_its_entry_waits_its_own_delay() -> None:
    bench = Bench()
    for body in (b"first", b"early", b"last"):
        bench.log.schedule(body, 1)
    bench.clock.ms += 400
    bench.log.queues[0][1] = bench.log.queues[0][1]._replace(tags_code=1 << 20)
    bench.log.schedule(b"alone", 2)
    bench.log.queues[1][0] = bench.log.queues[1][0]._replace(tags_code=0)
    assert bench.after(0) == 600
    assert bench.delivered == []
    bench.after(600)
    assert bench.delivered == [b"first", b"early", b"last"]
    bench.after(LEVELS_MS[1] - 601)
    assert bench.delivered[3:] == []
    bench.after(1)
    assert bench.delivered[3:] == [b"alone"]


def test_a_backlog_from_a_fast_clock_is_delivered_together() -> None:
    bench = Bench()
    for number in range(100):
        bench.log.schedule(b"%d" % number, 1)
    bench.clock.wall_ms -= 3_600_000
    bench.after(0)
    bench.log.schedule(b"own", 1)
    bench.after(500)
    bench.clock.wall_ms -= 3_600_000
    bench.after(500)
    assert bench.delivered == [b"%d" % number for number in range(100)]
    bench.after(500 + LEVELS_MS[0] // SIGHTINGS_PER_DELAY)
    assert bench.delivered[-1] == b"own"


def test_a_message_refused_by_a_full_disk_and_later_ones_are_delivered_on_retry() -> None:
    bench = Bench()
    bench.log.schedule(b"first", 1)
    bench.log.schedule(b"second", 1)
    bench.log.errors = [None, PutStatus.SERVICE_NOT_AVAILABLE]
    assert (bench.after(1_000), bench.delivered) == (RETRY_MS, [b"first"])
    bench.after(RETRY_MS)
    assert bench.delivered == [b"first", b"second"]
    assert bench.offsets.next_offset(1) == 2


def passed_over(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [
        getattr(record, "fields", {})
        for record in caplog.records
        if "can never be delivered and is skipped" in record.getMessage() and record.levelname == "ERROR"
    ]


def test_an_undeliverable_message_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for body in (b"lost", b"too large", b"last"):
        bench.log.schedule(body, 2)
    del bench.log.records[0]
    bench.log.errors = [PutStatus.MESSAGE_ILLEGAL]
    bench.after(5_000)
    assert bench.delivered == [b"last"]
    assert bench.offsets.next_offset(2) == 3
    queue = {"topic": "SCHEDULE_TOPIC_XXXX", "queue": 1}
    assert passed_over(caplog) == [
        queue | {"queue_offset": 0, "offset": 0, "why": "no delayed message found", "passed_over": 1},
        queue
        | {
            "queue_offset": 1,
            "offset": 1_000,
            "why": "MESSAGE_ILLEGAL",
            "passed_over": 2,
            "meant_for": "orders",
        },
    ]


def test_many_undeliverable_messages_are_logged_at_a_bounded_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    for _ in range(200):
        bench.log.schedule(b"lost", 1)
    bench.log.records.clear()
    bench.after(1_000)
    while bench.offsets.next_offset(1) < 200:
        bench.after(0)
    assert [each["passed_over"] for each in passed_over(caplog)] == list(range(1, 102))
    bench.log.schedule(b"lost", 1)
    bench.log.records.clear()
    bench.after(60_000)
    assert passed_over(caplog)[-1]["passed_over"] == 201


def test_delivery_from_a_trimmed_queue_continues_at_its_first_entry() -> None:
    bench = Bench()
    bench.log.schedule(b"removed", 1)
    bench.log.schedule(b"kept", 1)
    bench.log.first = 1
    bench.after(1_000)
    assert bench.delivered == [b"kept"]


def test_an_offset_beyond_the_queue_of_a_new_master_is_set_back() -> None:
    bench = Bench()
    bench.offsets.advance(1, 5)
    bench.offsets.advance(2, 1)
    bench.log.schedule(b"known", 1)
    bench.log.schedule(b"waits", 2)
    bench.delivery.role_taken(leads=False)
    assert bench.offsets.next_offset(1) == 5
    bench.delivery.role_taken(leads=True)
    assert [bench.offsets.next_offset(level) for level in (1, 2)] == [1, 1]
    bench.log.schedule(b"new", 1)
    bench.after(1_000)
    assert bench.delivered == [b"new"]


def test_offsets_for_slaves_of_a_pair_follow_replication_and_delivery_does_not_wait() -> None:
    bench = Bench(in_pair=True)
    bench.delivery.role_taken(leads=True)
    bench.delivery.acknowledged()
    for number in range(3):
        bench.log.schedule(b"%d" % number, 1)
    bench.after(1_000)
    assert (len(bench.delivered), bench.offsets.next_offset(1), bench.copied) == (3, 3, 0)
    bench.log.schedule(b"3", 1)
    bench.after(1_000)
    bench.followed = 29
    bench.delivery.acknowledged()
    assert (bench.offsets.next_offset(1), bench.copied) == (4, 0)
    bench.followed = 30
    bench.delivery.acknowledged()
    assert bench.copied == 3
    bench.followed = 40
    bench.delivery.acknowledged()
    assert bench.copied == 4


def test_a_new_master_of_a_pair_gives_no_offsets_before_a_slave_holds_its_log() -> None:
    bench = Bench(in_pair=True)
    bench.log.schedule(b"delivered before", 1)
    bench.offsets.advance(1, 1)
    bench.log.end, bench.followed = 10, 9
    bench.delivery.role_taken(leads=True)
    bench.delivery.acknowledged()
    assert bench.copied is None
    bench.followed = 10
    bench.delivery.acknowledged()
    assert bench.copied == 1
    bench.followed = 0
    bench.delivery.role_taken(leads=False)
    bench.offsets.adopt(DelayOffsetWrapper({1: 7}))
    assert bench.copied == 7, "the table of a slave is a copy"


def test_delay_offsets_of_a_pair_ahead_of_the_log_are_ignored() -> None:
    bench = Bench(in_pair=True)
    for body in (b"a", b"b"):
        bench.log.schedule(body, 1)
    bench.log.schedule(b"c", 2)
    bench.offsets.adopt(DelayOffsetWrapper({1: 1, 2: 2}))
    bench.delivery.role_taken(leads=True)
    bench.after(LEVELS_MS[1])
    assert bench.delivered == [b"a", b"b", b"c"]


def test_a_delay_offset_file_ahead_of_the_log_skips_no_message(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for body in (b"a", b"b"):
        bench.log.schedule(body, 1)
    bench.log.schedule(b"c", 2)
    bench.offsets.decode(DelayOffsetWrapper({1: 1, 2: 200}).encode())
    bench.delivery.role_taken(leads=True)
    assert "delay offsets are not of this log" in caplog.text
    bench.after(LEVELS_MS[1])
    assert bench.delivered == [b"a", b"b", b"c"]


@pytest.mark.parametrize("news", [False, True])
def test_delay_offsets_copied_from_a_master_are_trusted_ahead_of_the_log(news: bool) -> None:
    bench = Bench()
    bench.log.schedule(b"a", 1)
    bench.offsets.decode(DelayOffsetWrapper({1: 1, 2: 199 if news else 200}).encode())
    bench.offsets.adopt(DelayOffsetWrapper({1: 1, 2: 200}))
    bench.delivery.role_taken(leads=True)
    bench.after(LEVELS_MS[0])
    assert bench.delivered == []


def test_a_delay_offset_file_with_negative_offsets_or_unknown_levels_skips_nothing() -> None:
    bench = Bench()
    bench.log.schedule(b"a", 1)
    bench.offsets.decode(DelayOffsetWrapper({1: -5, 99: 7, 0: 3}).encode())
    bench.delivery.role_taken(leads=True)
    bench.after(LEVELS_MS[0])
    assert bench.delivered == [b"a"]


def test_delivered_messages_in_flight_are_bounded() -> None:
    bench = Bench()
    bench.role.acked = 0
    for number in range(IN_FLIGHT_MAX + 100):
        bench.log.schedule(b"%d" % number, 1)
    assert bench.after(1_000) is None
    assert len(bench.delivered) == IN_FLIGHT_MAX
    bench.role.acked = 1 << 40
    bench.delivery.acknowledged()
    bench.after(0)
    assert len(bench.delivered) == IN_FLIGHT_MAX + 100


def test_long_messages_are_delivered_with_several_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 messages of 4 MiB would be read and stored without a pause."""
    monkeypatch.setattr("broker.sends.delaydelivery.BATCH_BYTES", 5_000)
    bench, appends = Bench(), list[int]()
    append = bench.log.append

    def counted(messages: Sequence[MessageToStore]) -> list[PutResult]:
        appends.append(len(messages))
        return append(messages)

    bench.log.append = counted  # type: ignore[method-assign]
    for _ in range(5):
        bench.log.schedule(bytes(3_000), 1)
    assert bench.after(1_000) is None
    assert (appends, len(bench.delivered)) == ([2, 2, 1], 5)


@pytest.mark.parametrize("leads_to", [1, 2])
def test_an_entry_that_points_to_a_message_of_another_queue_waits(leads_to: int) -> None:
    """Otherwise that message would be delivered twice or too early, and the one of this entry never."""
    bench = Bench()
    for body, level in ((b"first", 1), (b"another level's", 2), (b"a topic's", 2), (b"last", 1)):
        bench.log.schedule(body, level)
    if leads_to == 2:
        bench.log.records[2_000] = bench.log.records[2_000].replace(
            b"SCHEDULE_TOPIC_XXXX", b"ANOTHER_TOPIC_XXXXX"
        )
        bench.log.queues[OF_A_TOPIC] = bench.log.queues[1]
    own = bench.log.queues[0][1]
    bench.log.queues[0][1] = bench.log.queues[1][leads_to - 1]._replace(tags_code=own.tags_code)
    bench.after(LEVELS_MS[0])
    assert bench.after(RETRY_MS) == RETRY_MS
    assert bench.delivered == [b"first"], "later messages wait, too"
    bench.log.queues[0][1] = own
    bench.after(RETRY_MS)
    assert bench.delivered == [b"first", b"last"]


def test_a_message_whose_record_names_a_corrupt_level_is_delivered() -> None:
    """Only its own queue lists the record."""
    bench = Bench()
    bench.log.schedule(b"corrupt level", 1)
    record = bytearray(bench.log.records[0])
    record[QUEUE_ID_AT + 3] ^= 8
    bench.log.records[0] = bytes(record)
    bench.after(LEVELS_MS[0])
    assert bench.delivered == [b"corrupt level"]


def test_a_damaged_message_waits_for_its_repair_and_delays_only_later_ones() -> None:
    bench = Bench()
    for body in (b"intact", b"damaged", b"behind"):
        bench.log.schedule(body, 1)
    bench.log.damaged.add(1_000)
    assert bench.after(LEVELS_MS[0]) == RETRY_MS
    assert bench.delivered == [b"intact"]
    assert bench.after(RETRY_MS) == RETRY_MS
    bench.log.damaged.clear()
    bench.after(RETRY_MS)
    assert bench.delivered == [b"intact", b"damaged", b"behind"]


def test_each_level_that_waits_for_a_repair_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for level in (1, 2):
        bench.log.schedule(b"damaged", level)
    bench.log.damaged |= {0, 1_000}
    bench.after(LEVELS_MS[1])
    for _ in range(20):
        bench.after(RETRY_MS)
    assert len(caplog.records) == 2
