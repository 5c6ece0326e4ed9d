"""The drill's client makes one attempt for each message; and the printed summary."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from localcluster.drill import HEADING, DrillKind, DrillReport, DrillResult
from localcluster.drillcli import summary
from localcluster.history import MessagePlace, SendAttempt, SendOutcome, judge
from localcluster.load import SteadyLoad, read_back, wait_readable
from localcluster.partitions import Roles, Shape, draw
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.producer import SendResult, SendStatus
from mqclient.route import MessageQueue
from mqruntime.clock import SystemClock
from scripts.peers.waits import WAIT_MS


class ScriptedProducer:
    """Answers the n-th send with `answer(n)`: a status to return, or an error to raise."""

    def __init__(self, answer: Callable[[int], SendStatus | Exception]) -> None:
        self.answer = answer
        self.keys: list[str] = []

    async def send(self, topic: str, body: bytes, *, keys: str, queue_id: int, timeout_ms: int) -> SendResult:
        number = len(self.keys)
        self.keys.append(keys)
        answer = self.answer(number)
        if isinstance(answer, Exception):
            raise answer
        return SendResult(answer, MessageQueue(topic, "broker-a", queue_id), number, (keys,), "")


def sent_by(producer: ScriptedProducer, count: int) -> list[SendAttempt]:
    async def session() -> list[SendAttempt]:
        load = SteadyLoad(
            producer,  # type: ignore[arg-type]
            "T",
            queues=4,
            clock=SystemClock(),
            random=random.Random(1),
            interval_ms=1,
        )
        load.start()
        assert await load.acknowledged_after(0, 10_000, count)
        await load.stop()
        return load.attempts

    return asyncio.run(session())


def test_every_message_has_its_own_id_and_goes_to_the_queues_in_turn() -> None:
    producer = ScriptedProducer(lambda number: SendStatus.SEND_OK)
    attempts = sent_by(producer, 12)
    assert [attempt.message_id for attempt in attempts] == producer.keys
    assert len(set(producer.keys)) == len(producer.keys) >= 12
    assert {attempt.place.queue for attempt in attempts if attempt.place} == {
        f"T/broker-a/{number}" for number in range(4)
    }
    assert attempts[5].place == MessagePlace("T/broker-a/1", 5)


def test_only_send_ok_counts_as_acknowledged() -> None:
    answers: list[SendStatus | Exception] = [
        SendStatus.FLUSH_SLAVE_TIMEOUT,
        SendRefused("T", "no master"),
        SendOutcomeUnknown("T", "127.0.0.1:1", "lost"),
    ]
    producer = ScriptedProducer(
        lambda number: answers[number] if number < len(answers) else SendStatus.SEND_OK
    )
    outcomes = [attempt.outcome for attempt in sent_by(producer, 1)[:4]]
    assert outcomes == [
        SendOutcome.UNKNOWN,
        SendOutcome.REFUSED,
        SendOutcome.UNKNOWN,
        SendOutcome.ACKNOWLEDGED,
    ]


def test_waiting_for_an_acknowledgement_has_a_limit() -> None:
    async def session() -> None:
        load = SteadyLoad(
            ScriptedProducer(lambda number: SendRefused("T", "no")),  # type: ignore[arg-type]
            "T",
            queues=1,
            clock=SystemClock(),
            random=random.Random(1),
            interval_ms=1,
        )
        load.start()
        assert not await load.acknowledged_after(0, 30)
        await load.stop()

    asyncio.run(session())


def result(outage_ms: int) -> DrillResult:
    return DrillResult(
        DrillKind.KILL,
        "broker-0",
        "broker-1",
        3,
        4,
        {"detected": 2, "writable": 60},
        71,
        outage_ms,
        900,
        outage_ms,
    )


def test_a_timeline_shows_known_steps_only() -> None:
    assert result(80).timeline() == "fault 0 · detected +2 · writable +60 · first ack +71 · whole +900 ms"


def test_a_drill_is_a_row_of_a_table() -> None:
    assert HEADING.split() == [
        "drill", "master", "epoch", "detected", "elected", "notified", "writable", "first", "ack", "whole", "client", "set",
    ]  # fmt: skip
    row = result(80).row(2, 20)
    assert row.split() == [
        "2/20", "broker-0", "->", "broker-1", "3", "->", "4", "2", "-", "-", "60", "71", "900", "80", "80",
    ]  # fmt: skip
    for heading, cell in (("writable", "60"), ("whole", "900"), ("set", "80")):
        assert row[HEADING.index(heading) :].split()[0] == cell


def test_the_summary_gives_outages_and_counts_and_each_fault() -> None:
    attempts = [SendAttempt("a", "h", SendOutcome.ACKNOWLEDGED, 0, 1, MessagePlace("q", 0))]
    report = DrillReport([result(80), result(70), result(400)], judge(attempts, []))
    lines = summary(report)
    assert lines[0] == "client outage of 3 drills: min 70, median 80, max 400 ms"
    assert lines[1] == "longest time without an acknowledging master, of 3 drills that allow 15000 ms: 400 ms"
    assert lines[2].startswith(
        "acknowledged 1 · lost 1 · changed 0 · moved 0 · duplicated 0 · unknown outcome 0"
    )
    assert lines[3] == "a was acknowledged at q@0 and is nowhere"
    assert not report.passed


def test_a_run_that_was_cut_short_does_not_pass() -> None:
    report = DrillReport([], judge([], []), "no acknowledgement within 60000 ms")
    assert not report.passed
    assert summary(report)[-1] == "not all drills were done: no acknowledgement within 60000 ms"
    assert DrillReport([], judge([], [])).passed


def test_too_long_without_an_acknowledging_master_is_a_failure() -> None:
    report = DrillReport([result(80), result(15_001)], judge([], []))
    assert not report.passed
    assert "broker-0's set was without an acknowledging master for 15001 ms" in summary(report)
    assert DrillReport([result(15_000)], judge([], [])).passed


def test_outages_by_partitions_are_summed_for_each_shape() -> None:
    roles = Roles("broker-0", ["broker-1", "broker-2"], "controller-0", ["controller-1", "controller-2"])
    by_shape = [
        replace(result(outage_ms), partition=draw(shape, roles, random.Random(1)))
        for shape, outage_ms in ((Shape.MASTER_ALONE, 9), (Shape.SLAVE_ALONE, 20), (Shape.MASTER_ALONE, 5))
    ]
    assert summary(DrillReport(by_shape, judge([], [])))[:3] == [
        "client outage of 3 drills: min 5, median 9, max 20 ms",
        "  2 x master from all: min 5, median 7, max 9 ms",
        "  1 x slave from all: min 20, median 20, max 20 ms",
    ]


class ScriptedQueues:
    """Two queues; each call of max_offset takes the next of `ends`, and then repeats the last."""

    def __init__(self, ends: list[int]) -> None:
        self.ends = ends

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "broker-a", number) for number in (0, 1)]

    async def max_offset(self, queue: MessageQueue) -> int:
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]


def test_reading_back_waits_until_each_queue_reaches_its_acknowledged_end() -> None:
    attempts = [
        SendAttempt("a", "h", SendOutcome.ACKNOWLEDGED, 0, 1, MessagePlace("T/broker-a/0", 4)),
        SendAttempt("b", "h", SendOutcome.ACKNOWLEDGED, 0, 1, MessagePlace("T/broker-a/1", 2)),
        SendAttempt("c", "h", SendOutcome.UNKNOWN, 0, 1, MessagePlace("T/broker-a/1", 9)),
    ]
    late = ScriptedQueues([4, 5, 2, 5, 3])
    asyncio.run(wait_readable(late, "T", attempts, WAIT_MS))  # type: ignore[arg-type]
    assert late.ends == [3]
    never = ScriptedQueues([4])
    asyncio.run(wait_readable(never, "T", attempts, 10))  # type: ignore[arg-type]


class TwoReplicas(ScriptedQueues):
    """One replica reports ends that the next one has not reached. `asked` are the ranges read."""

    def __init__(self, ends: list[int]) -> None:
        super().__init__(ends)
        self.asked: list[tuple[int, int, int]] = []

    async def min_offset(self, queue: MessageQueue) -> int:
        return 0

    async def read(
        self, queue: MessageQueue, start: int, end: int, *, patience_ms: int
    ) -> AsyncIterator[StoredMessage]:
        self.asked.append((queue.queue_id, start, end))
        return
        yield


def test_reading_back_reads_to_the_largest_end_though_a_replica_is_behind() -> None:
    """Earlier, a message that only the first replica had listed was reported as lost."""
    attempts = [SendAttempt("a", "h", SendOutcome.ACKNOWLEDGED, 0, 1, MessagePlace("T/broker-a/0", 4))]
    replicas = TwoReplicas([5, 3, 4, 6])
    asyncio.run(read_back(replicas, "T", attempts, WAIT_MS))  # type: ignore[arg-type]
    assert replicas.asked == [(0, 0, 5), (1, 0, 6)]
