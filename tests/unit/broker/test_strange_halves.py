"""Half messages with properties that only brokers may set, and commits to the broker's own offsets."""

from __future__ import annotations

import pytest

from broker.tables.consumeroffsets import TRANSACTIONS_GROUP, ConsumerOffsets
from broker.transactions.outcomes import TransactionOutcome
from broker.transactions.records import CHECK_TIMES, IMMUNITY_S, ROOT, facts_of, half_of
from messagestore.messages import MessageToStore, PutResult, PutStatus
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC
from tests.unit.broker.transactionbench import Bench, replace_half


def sent(**properties: str) -> MessageToStore:
    pairs = {"UNIQ_KEY": "k", "PGROUP": "PG", "TRAN_MSG": "true"} | properties
    text = "".join(f"{key}\x01{value}\x02" for key, value in pairs.items())
    return MessageToStore("orders", 1, b"x", text.encode())


def stored(bench: Bench, message: MessageToStore) -> PutResult:
    half = half_of(message)
    appended = bench.log._append(half)
    bench.transactions.half_stored(half, appended)
    return appended


def test_a_half_message_with_copied_transaction_properties_begins_its_own_transaction() -> None:
    bench = Bench()
    bench.lead()
    stored(bench, sent())
    stored(bench, sent(UNIQ_KEY="l", **{ROOT: "0", CHECK_TIMES: "15"}))
    assert bench.open == [0, 1]
    assert bench.lead() == [0, 1]
    assert facts_of(half_of(sent(**{CHECK_TIMES: "15"})).properties).check_times == 0


def test_an_excessive_immunity_time_stops_no_broker() -> None:
    bench = Bench()
    bench.lead()
    stored(bench, sent(**{IMMUNITY_S: "9" * 18}))
    assert bench.open == [0]
    assert bench.lead() == [0]


def test_marks_of_a_long_log_are_read_by_the_next_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.transactions.MARK_BYTES", 1_000)
    bench = Bench()
    stored(bench, sent())
    bench.lead()
    for _ in range(4):
        bench.log._append(MessageToStore("orders", 0, bytes(2_000)))
        bench.transactions.acknowledged()
        bench.step()
        bench.clock.ms += 20_000
    marks = bench.log.queues[OP_HALF_TOPIC]
    assert len(marks) == 4
    bench.log.looks.clear()
    assert bench.lead() == [0]
    assert min(bench.log.looks) >= marks[1].physical_offset


def test_an_offset_beyond_the_half_queue_is_set_back_before_half_messages_are_stored() -> None:
    """The offset remains from before an election that lost messages."""
    bench = Bench()
    bench.offsets.keep(HALF_TOPIC, 0, 5)
    assert bench.lead() == []
    bench.transactions.acknowledged()
    for _ in range(6):
        stored(bench, sent())
    assert bench.lead() == [0, 1, 2, 3, 4, 5]


def test_a_client_cannot_commit_offsets_of_the_brokers_own_group() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(TRANSACTIONS_GROUP, HALF_TOPIC, 0, 9)
    assert offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) is None
    offsets.keep(HALF_TOPIC, 0, 3)
    offsets.commit(TRANSACTIONS_GROUP, HALF_TOPIC, 0, 9)
    assert offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) == 3


def test_a_disk_that_fills_up_between_two_op_records_hides_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first op record is stored, the next one finds no room in the next segment."""
    bench = Bench()
    bench.lead()
    halves = [stored(bench, sent(UNIQ_KEY=f"{number}")) for number in range(1_100)]
    for half in halves:
        committed = bench.log.commit(half)
        bench.transactions.ended(
            replace_half(bench, half.queue_offset), TransactionOutcome.COMMIT, committed.end_offset
        )
    append, room = bench.log._append, [1]

    def until_full(message: MessageToStore) -> PutResult:
        if not room[0]:
            return PutResult(-1, -1, -1, 0, 0, PutStatus.SERVICE_NOT_AVAILABLE)
        room[0] -= 1
        return append(message)

    monkeypatch.setattr(bench.log, "_append", until_full)
    for _ in range(15):
        assert bench.transactions.write_ops() is None
        bench.clock.ms += 1_000
    monkeypatch.undo()
    assert len(bench.log.queues[OP_HALF_TOPIC]) == 1
    assert bench.lead() == []
