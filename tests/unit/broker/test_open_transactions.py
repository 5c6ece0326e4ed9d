"""A master's tables of transactions, and their restoration from the log."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from broker.tables.consumeroffsets import TRANSACTIONS_GROUP
from broker.transactions.donequeue import MARKS_MAX, DoneQueue
from broker.transactions.openhalves import Half, OpenHalves
from broker.transactions.outcomes import OUTCOMES_MAX, Outcomes, TransactionOutcome
from broker.transactions.records import ROOT, done_offsets, put_back
from broker.transactions.transactions import MARK_BYTES
from messagestore.messages import MessageToStore, PutResult, PutStatus
from messagestore.properties import format_properties, parse_properties
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC
from tests.unit.broker.transactionbench import (
    Bench,
    half_message,
    replace_half,
)


def test_open_half_messages_are_ordered_by_queue_offset() -> None:
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


def test_an_open_half_message_takes_less_than_200_bytes() -> None:
    tracemalloc.start()
    try:
        table = OpenHalves()
        for offset in range(100_000, 150_000):
            table.put(offset, offset, 1_000 * offset, 10_000_000, "PG")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / 50_000 < 200


def test_producer_groups_are_forgotten_with_their_last_half_message() -> None:
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


def test_ended_half_messages_are_recorded_in_batches() -> None:
    done = DoneQueue(3_000)
    assert done.due_ms is None
    done.add(7, 1_000)
    done.add(9, 2_000)
    assert (done.due_ms, done.waiting) == (4_000, [7, 9])
    for offset in range(1_000_000, 1_000_600):
        done.add(offset, 2_500)
    assert done.due_ms == 0, "a full record is written at once"
    done.written(602)
    assert (done.due_ms, done.waiting) == (None, [])
    done.add(8, 5_000)
    done.add(9, 6_000, at_once=True)
    assert done.due_ms == 0, "no other record of the log shows a rollback"


def test_the_op_queue_is_kept_from_the_first_record_of_a_half_message_not_past() -> None:
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


def test_a_new_master_finds_the_open_half_messages_in_the_log() -> None:
    bench = Bench()
    log = bench.log
    first, second, third, fourth = (log.half(body) for body in (b"a", b"b", b"c", b"d"))
    log.done(second)
    log.commit(third)  # no op record names its end
    again = log._append(put_back(log.at(fourth.physical_offset), root=3, asks=True))
    assert bench.lead() == [0, 3]
    table = bench.transactions.open
    assert table is not None and (half := table.find(3)) is not None
    assert (half.queue_offset, half.place) == (again.queue_offset, again.physical_offset)
    # the ended half messages are recorded again, for the next master
    bench.clock.ms += 3_000
    bench.step()
    (recorded,) = [log.at(entry.physical_offset).body for entry in log.queues[OP_HALF_TOPIC][1:]]
    assert sorted(recorded.decode().strip(",").split(",")) == ["2", "3"]
    assert bench.kept(HALF_TOPIC) is None, "the first half message is open"
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    bench.clock.ms += 3_000
    bench.step()
    assert bench.kept(HALF_TOPIC) == 4
    assert bench.lead() == [3]
    assert first.queue_offset == 0


def test_the_search_for_commits_starts_at_an_earlier_op_record_than_the_newest() -> None:
    bench = Bench()
    log = bench.log
    log.half(b"old")
    done = [log.half(f"{number}".encode()) for number in range(20)]
    for half in done[:10]:
        log.commit(half)
    earlier = log.done(*done[:10])
    bench.clock.ms += 10_000
    newest = log.done(done[0])
    log.commit(done[10])
    assert bench.lead() == [0, *range(12, 21)]
    assert min(log.looks) == earlier.physical_offset < newest.physical_offset


def test_the_search_for_commits_starts_before_a_full_op_record() -> None:
    """The broker may have died before the next record: a commit that neither names would be repeated."""
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


def test_open_half_messages_are_unknown_until_the_whole_log_is_confirmed() -> None:
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


def test_progress_is_stored_only_for_confirmed_records() -> None:
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


def test_no_half_message_is_passed_before_an_op_record_names_it() -> None:
    """Otherwise the next master never records it, and a later master with an older table reopens it."""
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
    # the next master has this table, and records the end
    assert bench.lead() == [1]
    bench.log.commit(again)
    bench.transactions.ended(replace_half(bench, 1), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    assert [
        done_offsets(bench.log.at(entry.physical_offset).body) for entry in bench.log.queues[OP_HALF_TOPIC]
    ] == [[0, 1, 2]]
    assert (bench.kept(HALF_TOPIC), bench.kept(OP_HALF_TOPIC)) == (3, 1)
    # a later master has an older table
    bench.offsets.keep(HALF_TOPIC, 0, 0)
    bench.offsets.keep(OP_HALF_TOPIC, 0, 0)
    assert bench.lead() == []


def test_offsets_of_a_former_master_still_wait_for_the_log_that_they_rest_on() -> None:
    """The table is written periodically: after a power cut it must not be ahead of the log."""
    bench = Bench()
    half = bench.log.half(b"a")
    bench.lead()
    bench.log.commit(half)
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    bench.transactions.acknowledged()
    rests_on = bench.offsets.rests_on
    assert bench.kept(HALF_TOPIC) == 1 and rests_on > half.physical_offset
    bench.transactions.role_taken(leads=False)
    assert bench.offsets.rests_on == rests_on


def test_slaves_of_a_pair_get_progress_once_one_holds_the_log_and_retention_does_not_wait() -> None:
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
    assert bench.copied() == ({"orders@CG": {0: 9}}, 0), "no slave is known to hold the log"
    end = bench.followed = len(bench.log.bytes)
    bench.transactions.acknowledged()
    own = {f"{topic}@{TRANSACTIONS_GROUP}": {0: 1} for topic in (HALF_TOPIC, OP_HALF_TOPIC)}
    assert bench.copied() == ({"orders@CG": {0: 9}, **own}, end)
    bench.lead()
    assert bench.copied() == ({"orders@CG": {0: 9}, **own}, end), "a slave holds the whole log at the start"
    bench.followed = 0
    bench.lead()
    assert bench.copied()[0] == {"orders@CG": {0: 9}}
    bench.transactions.role_taken(leads=False)
    assert bench.copied() == ({"orders@CG": {0: 9}, **own}, end), "a slave has a copy"


def test_the_stored_offsets_rest_on_the_last_op_record() -> None:
    """A set under controllers, whose slaves get the master's own offsets."""
    bench = Bench(in_pair=False)
    halves = [bench.log.half(name) for name in (b"a", b"b")]
    bench.lead()
    assert bench.copied() == ({}, 0), "the broker has no own offsets yet"
    bench.log.commit(halves[0])
    bench.transactions.ended(replace_half(bench, 0), TransactionOutcome.COMMIT)
    end = bench.transactions.write_ops()
    assert bench.copied()[1] == bench.offsets.rests_on == end == len(bench.log.bytes)


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_HALF_TOPIC])
def test_transaction_offsets_beyond_the_log_are_ignored(topic: str) -> None:
    bench = Bench()
    halves = [bench.log.half(name) for name in (b"a", b"b", b"c")]
    bench.lead()
    bench.log.commit(halves[1])
    bench.transactions.ended(replace_half(bench, 1), TransactionOutcome.COMMIT)
    bench.transactions.write_ops()
    bench.offsets.keep(HALF_TOPIC, 0, 2)
    bench.offsets.keep(topic, 0, 9)
    assert bench.lead() == [0, 2]


def test_a_transaction_offset_below_the_queue_is_raised_to_its_first_entry() -> None:
    bench = Bench()
    bench.log.half(b"a")
    bench.offsets.keep(HALF_TOPIC, 0, 0)
    bench.log.half(b"b")
    bench.log.first = 1
    assert bench.lead() == [1]


def test_a_slave_tracks_no_half_messages_but_names_the_first_possibly_open_one() -> None:
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


def test_a_long_log_gets_a_mark_while_a_half_message_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_half_message_put_back_by_upstream_replaces_the_earlier_one() -> None:
    bench = Bench()
    log = bench.log

    def put_back_by_upstream(half: PutResult) -> PutResult:
        again = put_back(log.at(half.physical_offset), root=half.queue_offset, asks=True)
        pairs = {key: value for key, value in parse_properties(again.properties).items() if key != ROOT}
        return log._append(replace(again, properties=format_properties(pairs)))

    first, second, third, same_key = (log.half(body) for body in (b"a", b"b", b"c", b"a"))
    log.done(put_back_by_upstream(first))  # the half message ended meanwhile
    open_again = put_back_by_upstream(second)
    bench.clock.ms += 60_000
    fresh = log.half(b"b")
    assert bench.lead() == [
        half.queue_offset for half in (third, same_key, open_again, fresh)
    ]  # a repeated key is another transaction


def test_op_records_written_before_the_disk_filled_up_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
        "the disk is full, and the written record is not repeated"
    )
    room[0] = 10
    bench.step()
    recorded = [
        done_offsets(bench.log.at(entry.physical_offset).body) for entry in bench.log.queues[OP_HALF_TOPIC]
    ]
    assert len(recorded) > 2 and sum(recorded, []) == [half.queue_offset for half in halves]
    assert bench.lead() == []
