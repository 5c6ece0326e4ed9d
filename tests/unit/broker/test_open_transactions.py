"""What a master knows of its transactions: the tables, and what it reads of a log."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.metrics.transactiontotals import TransactionTotals
from broker.settings.transactions import TransactionSettings
from broker.tables.consumeroffsets import TRANSACTIONS_GROUP, ConsumerOffsets
from broker.transactions.donequeue import MARKS_MAX, DoneQueue
from broker.transactions.openhalves import Half, OpenHalves
from broker.transactions.outcomes import OUTCOMES_MAX, Outcomes, TransactionOutcome
from broker.transactions.records import ROOT, committed, done_offsets, done_records, half_of, put_back
from broker.transactions.transactions import MARK_BYTES, Transactions
from messagestore.log.commits import CommitsFound, commits_in
from messagestore.messages import MessageToStore, PutResult, PutStatus, QueueEntry
from messagestore.properties import format_properties, parse_properties
from messagestore.record import Message, decode, encode, pack_host
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC
from mqruntime.slices import whole
from remoting.bodies.offsets import ConsumerOffsetWrapper
from tests.unit.doubles import ManualClock

HOST = pack_host("10.0.0.1", 10911)


def test_open_halves_stand_in_the_order_of_their_queue_offsets() -> None:
    table = OpenHalves()
    for offset in range(4):
        table.put(offset, offset, 100 * offset, 7, f"G{offset % 2}")
    table.close(0)
    table.put(1, 4, 400, 9, "G1")
    assert table.first() == Half(2, 2, 200, 7, 0)
    assert table.find(1) == Half(1, 4, 400, 9, 1)
    assert table.roots() == [2, 3, 1]
    assert table.group_name(Half(1, 4, 400, 9, 1)) == "G1"
    behind = OpenHalves()
    for offset in (5, 6, 7):
        behind.put(offset, offset, 100 * offset, 7, "G1")
    table.take(behind, 2)
    assert (table.roots(), behind.roots()) == ([2, 3, 1, 5, 6], [7])
    assert table.find(6) == Half(6, 6, 600, 7, 1)
    for root in (1, 2, 3, 3, 5, 6):
        table.close(root)
    assert (len(table), table.first(), table.find(1)) == (0, None, None)


def test_an_open_half_takes_less_than_200_bytes() -> None:
    tracemalloc.start()
    try:
        table = OpenHalves()
        for offset in range(100_000, 150_000):
            table.put(offset, offset, 1_000 * offset, 10_000_000, "PG")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / 50_000 < 200


def test_groups_that_producers_make_up_are_forgotten_with_their_halves() -> None:
    table, behind = OpenHalves(), OpenHalves()
    for offset in range(6):
        table.put(offset, offset, 0, 0, f"G{offset // 2}")
    table.put(0, 7, 0, 0, "G9")
    assert [table.group_name(half) for root in table.roots() if (half := table.find(root))] == [
        "G0", "G1", "G1", "G2", "G2", "G9",
    ]  # fmt: skip
    behind.take(table, 3)
    for root in table.roots():
        table.close(root)
        table.close(root)
    half = behind.find(1)
    assert half is not None and behind.group_name(half) == "G0"
    for root in behind.roots():
        behind.close(root)
    for each in (table, behind):
        assert not any(kept for kept in vars(each).values() if hasattr(kept, "__len__"))


def test_outcomes_are_bounded() -> None:
    outcomes = Outcomes()
    for root in range(OUTCOMES_MAX + 1):
        outcomes.note(root, TransactionOutcome.COMMIT)
    outcomes.note(1, TransactionOutcome.ROLLBACK)
    assert (outcomes.of(0), outcomes.of(1), outcomes.of(2)) == (
        None,
        TransactionOutcome.ROLLBACK,
        TransactionOutcome.COMMIT,
    )


def test_done_halves_are_told_together() -> None:
    done = DoneQueue(3_000)
    assert done.due_ms is None
    done.add(7, 1_000)
    done.add(9, 2_000)
    assert (done.due_ms, done.waiting) == (4_000, [7, 9])
    for offset in range(1_000_000, 1_000_600):
        done.add(offset, 2_500)
    assert done.due_ms == 0, "a record's worth of them does not wait"
    done.written(602)
    assert (done.due_ms, done.waiting) == (None, [])
    done.add(8, 5_000)
    done.add(9, 6_000, at_once=True)
    assert done.due_ms == 0, "a rollback is nowhere else in the log"


def test_the_queue_of_what_is_done_is_needed_while_it_names_a_half_that_is_not_past() -> None:
    done = DoneQueue(0)
    done.recorded(10, [3, 8])
    done.recorded(11, [4])
    done.recorded(12, [])
    assert done.needed_from(8, 13) == 10
    assert done.needed_from(9, 13) == 13
    for number in range(2 * MARKS_MAX):
        done.recorded(20 + number, [100 + number])
    assert 20 <= done.needed_from(100 + MARKS_MAX, 1 << 40) <= 20 + MARKS_MAX
    assert done.needed_from(1 << 40, 99_999) == 99_999


class ScriptedLog:
    """A log of records, all of which are confirmed and dispatched; `confirmed` may say otherwise."""

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
        """Takes the mastership; the roots that are open then."""
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
        """What slaves get, and what that rests on."""
        body, rests_on = whole(self.offsets.for_slaves())
        return ConsumerOffsetWrapper.decode(body).offset_table, rests_on

    def kept(self, topic: str) -> int | None:
        return self.offsets.find(TRANSACTIONS_GROUP, topic, 0)


def test_a_new_master_reads_which_halves_are_open() -> None:
    bench = Bench()
    log = bench.log
    first, second, third, fourth = (log.half(body) for body in (b"a", b"b", b"c", b"d"))
    log.done(second)
    log.commit(third)  # and its end was not told
    again = log._append(put_back(log.at(fourth.physical_offset), root=3, asks=True))
    assert bench.lead() == [0, 3]
    table = bench.transactions.open
    assert table is not None and (half := table.find(3)) is not None
    assert (half.queue_offset, half.place) == (again.queue_offset, again.physical_offset)
    # what is done with is told once more, for whoever reads next
    bench.clock.ms += 3_000
    bench.step()
    (told,) = [log.at(entry.physical_offset).body for entry in log.queues[OP_HALF_TOPIC][1:]]
    assert sorted(told.decode().strip(",").split(",")) == ["2", "3"]
    assert bench.kept(HALF_TOPIC) is None, "the first one is open"
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    bench.clock.ms += 3_000
    bench.step()
    assert bench.kept(HALF_TOPIC) == 4
    assert bench.lead() == [3]
    assert first.queue_offset == 0


def replace_half(bench: Bench, root: int) -> Half:
    table = bench.transactions.open
    assert table is not None
    half = table.find(root)
    assert half is not None
    return half


def test_commits_are_looked_for_from_the_last_record_that_tells_what_is_done() -> None:
    bench = Bench()
    log = bench.log
    log.half(b"old")
    done = [log.half(f"{number}".encode()) for number in range(20)]
    for half in done[:10]:
        log.commit(half)
    told = log.done(*done[:10])
    bench.clock.ms += 10_000
    newest = log.done(done[0])
    log.commit(done[10])
    assert bench.lead() == [0, *range(12, 21)]
    assert min(log.looks) == told.physical_offset < newest.physical_offset


def test_behind_a_full_record_of_what_is_done_commits_are_looked_for_before_it() -> None:
    """The broker that wrote it may have died before the next one: a commit that neither names would be carried out twice."""
    bench = Bench()
    log = bench.log
    log.half(b"open")
    named, unnamed = log.half(b"named"), log.half(b"unnamed")
    log.commit(named)
    log.commit(unnamed)
    log._append(MessageToStore(OP_HALF_TOPIC, 0, b"1," * 2_048, b"TAGS\x01d\x02"))
    bench.clock.ms += 10_000
    log.done(named)
    assert bench.lead() == [0]


def test_nothing_is_known_before_all_of_the_log_is_confirmed() -> None:
    bench = Bench()
    bench.log.half(b"a")
    bench.log.confirmed = 0
    bench.transactions.role_taken(leads=True)
    assert bench.step() is None and bench.transactions.open is None
    fresh = bench.log.half(b"b")
    bench.transactions.half_stored(half_message(bench, fresh), fresh)
    bench.log.confirmed = None
    bench.step()
    assert bench.open == [0, 1]


def half_message(bench: Bench, appended: PutResult) -> MessageToStore:
    half = bench.log.at(appended.physical_offset)
    return MessageToStore(half.topic, 0, half.body, half.properties)


def test_progress_is_kept_only_of_what_is_confirmed() -> None:
    bench = Bench()
    half = bench.log.half(b"a")
    bench.lead()
    bench.log.confirmed = len(bench.log.bytes)
    bench.log.commit(half)
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    bench.transactions.acknowledged()
    assert bench.kept(HALF_TOPIC) is None
    bench.log.confirmed = None
    bench.transactions.acknowledged()
    assert (bench.kept(HALF_TOPIC), bench.kept(OP_HALF_TOPIC)) == (1, 1)


def test_no_half_is_past_before_it_is_told_done() -> None:
    """Else the next master does not see it, and tells what came later: one with an older table opens it again."""
    bench = Bench()
    first = bench.log.half(b"a")
    second = bench.log.half(b"b")
    bench.lead()
    again = bench.log._append(put_back(bench.log.at(second.physical_offset), root=1, asks=True))
    bench.transactions.half_stored(half_message(bench, again), again)
    bench.transactions.mark_done(second.queue_offset)
    bench.log.commit(first)
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    bench.transactions.note_progress()
    assert bench.kept(HALF_TOPIC) is None
    # the next one has this table, and tells
    assert bench.lead() == [1]
    bench.log.commit(again)
    bench.transactions.ended(replace_half(bench, 1), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    assert [
        done_offsets(bench.log.at(entry.physical_offset).body) for entry in bench.log.queues[OP_HALF_TOPIC]
    ] == [[0, 1, 2]]
    assert (bench.kept(HALF_TOPIC), bench.kept(OP_HALF_TOPIC)) == (3, 1)
    # and a later one has a table of before
    bench.offsets.keep(HALF_TOPIC, 0, 0)
    bench.offsets.keep(OP_HALF_TOPIC, 0, 0)
    assert bench.lead() == []


def test_who_leads_no_more_has_its_table_written_behind_what_it_rests_on_all_the_same() -> None:
    """It is written by and by: a power cut in the seconds between would leave it ahead of the log."""
    bench = Bench()
    half = bench.log.half(b"a")
    bench.lead()
    bench.log.commit(half)
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    bench.transactions.acknowledged()
    told = bench.offsets.rests_on
    assert bench.kept(HALF_TOPIC) == 1 and told > half.physical_offset
    bench.transactions.role_taken(leads=False)
    assert bench.offsets.rests_on == told


def test_a_pairs_slaves_get_its_progress_when_one_has_the_log_and_retention_waits_for_none() -> None:
    bench = Bench()
    bench.followed = 0
    half = bench.log.half(b"a")
    bench.lead()
    bench.offsets.commit("CG", "orders", 0, 9)
    bench.log.commit(half)
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    bench.transactions.acknowledged()
    assert (bench.kept(HALF_TOPIC), bench.kept(OP_HALF_TOPIC), bench.transactions.first_open()) == (
        1,
        1,
        None,
    )
    assert bench.copied() == ({"orders@CG": {0: 9}}, 0), "nothing is known to be followed"
    end = bench.followed = len(bench.log.bytes)
    bench.transactions.acknowledged()
    own = {f"{topic}@{TRANSACTIONS_GROUP}": {0: 1} for topic in (HALF_TOPIC, OP_HALF_TOPIC)}
    assert bench.copied() == ({"orders@CG": {0: 9}, **own}, end)
    bench.lead()
    assert bench.copied() == ({"orders@CG": {0: 9}, **own}, end), "all that it begins with is followed"
    bench.followed = 0
    bench.lead()
    assert bench.copied()[0] == {"orders@CG": {0: 9}}
    bench.transactions.role_taken(leads=False)
    assert bench.copied() == ({"orders@CG": {0: 9}, **own}, end), "a slave has a copy"


def test_the_kept_offsets_rest_on_the_last_record_that_tells() -> None:
    """Of a set under controllers, which gives slaves what stands here."""
    bench = Bench(in_pair=False)
    halves = [bench.log.half(name) for name in (b"a", b"b")]
    bench.lead()
    assert bench.copied() == ({}, 0), "nothing of the broker's own is there"
    bench.log.commit(halves[0])
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    end = bench.transactions.write_ops()
    assert bench.copied()[1] == bench.offsets.rests_on == end == len(bench.log.bytes)


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_HALF_TOPIC])
def test_a_table_that_tells_of_ends_beyond_the_log_is_not_believed(topic: str) -> None:
    bench = Bench()
    halves = [bench.log.half(name) for name in (b"a", b"b", b"c")]
    bench.lead()
    bench.log.commit(halves[1])
    bench.transactions.ended(replace_half(bench, 1), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    bench.offsets.keep(HALF_TOPIC, 0, 2)
    bench.offsets.keep(topic, 0, 9)
    assert bench.lead() == [0, 2]


def test_an_offset_below_the_queue_is_no_place_to_begin() -> None:
    bench = Bench()
    bench.log.half(b"a")
    bench.offsets.keep(HALF_TOPIC, 0, 0)
    bench.log.half(b"b")
    bench.log.first = 1
    assert bench.lead() == [1]


def test_who_is_no_master_knows_nothing_and_names_the_first_half_that_may_be_open() -> None:
    bench = Bench()
    assert bench.transactions.first_open() is None
    bench.log.half(b"a")
    second = bench.log.half(b"b")
    bench.transactions.role_taken(leads=False)
    assert bench.step() is None and bench.transactions.open is None
    bench.offsets.keep(HALF_TOPIC, 0, 1)
    assert bench.transactions.first_open() == second.physical_offset
    bench.offsets.keep(HALF_TOPIC, 0, 2)
    assert bench.transactions.first_open() is None


def test_long_logs_are_marked_while_a_half_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.transactions.MARK_BYTES", 1_000)
    bench = Bench()
    bench.log.half(b"a")
    bench.lead()
    bench.log._append(MessageToStore("orders", 0, bytes(2_000)))
    bench.transactions.acknowledged()
    bench.step()
    (mark,) = bench.log.queues[OP_HALF_TOPIC]
    assert bench.log.at(mark.physical_offset).body == b"-1,"
    bench.step()
    assert len(bench.log.queues[OP_HALF_TOPIC]) == 1
    assert bench.lead() == [0]
    assert MARK_BYTES == 64 << 20


def test_what_upstream_put_back_stands_for_the_half_before_it() -> None:
    bench = Bench()
    log = bench.log

    def put_back_by_upstream(half: PutResult) -> PutResult:
        again = put_back(log.at(half.physical_offset), root=half.queue_offset, asks=True)
        pairs = {key: value for key, value in parse_properties(again.properties).items() if key != ROOT}
        return log._append(replace(again, properties=format_properties(pairs)))

    first, second, third, same_key = (log.half(body) for body in (b"a", b"b", b"c", b"a"))
    log.done(put_back_by_upstream(first))  # ended since
    open_again = put_back_by_upstream(second)
    bench.clock.ms += 60_000
    fresh = log.half(b"b")
    assert bench.lead() == [
        half.queue_offset for half in (third, same_key, open_again, fresh)
    ]  # the same key again is another transaction


def test_what_a_full_disk_takes_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.lead()
    halves = [bench.log.half(b"%d" % number) for number in range(2_000)]
    for half in halves:
        bench.transactions.half_stored(half_message(bench, half), half)
    for root in bench.open:
        found = bench.transactions.open.find(root) if bench.transactions.open else None
        assert found is not None
        bench.transactions.ended(found, TransactionOutcome.ROLLBACK)
    append, room = bench.log._append, [1]

    def until_full(message: MessageToStore) -> PutResult:
        if not room[0]:
            return PutResult(-1, -1, -1, 0, 0, PutStatus.SERVICE_NOT_AVAILABLE)
        room[0] -= 1
        return append(message)

    monkeypatch.setattr(bench.log, "_append", until_full)
    for _ in range(10):
        assert bench.step() == 1_000
        bench.clock.ms += 1_000
    assert len(bench.log.queues[OP_HALF_TOPIC]) == 1, (
        "the disk is full: what is told already is not told again"
    )
    room[0] = 10
    bench.step()
    told = [
        done_offsets(bench.log.at(entry.physical_offset).body) for entry in bench.log.queues[OP_HALF_TOPIC]
    ]
    assert len(told) > 2 and sum(told, []) == [half.queue_offset for half in halves]
    assert bench.lead() == []
