"""The sender and the consumer of a soak write the book, against a scripted broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from localcluster.history import SendOutcome
from localcluster.soak.book import Book, Fault
from localcluster.soak.consumer import Consumer
from localcluster.soak.message import Messages
from localcluster.soak.sender import DELAYED_EVERY, Sender
from mqclient.consumer import PullResult, PullStatus
from mqclient.errors import PullFailed, SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.producer import SendResult, SendStatus
from mqclient.route import MessageQueue
from tests.support.doubles import ManualClock

MESSAGES = Messages("run", "Soak", "SoakDelayed", 100)
PLAIN, DELAYED = MessageQueue("Soak", "broker-a", 0), MessageQueue("SoakDelayed", "broker-a", 0)


def stored(
    number: int, offset: int, *, queue: MessageQueue = PLAIN, body: bytes | None = None
) -> StoredMessage:
    return StoredMessage(
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        physical_offset=0,
        body=MESSAGES.body(number) if body is None else body,
        properties={"KEYS": MESSAGES.key(number)},
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host="",
        store_timestamp_ms=0,
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
        size_bytes=0,
    )


def found(*messages: StoredMessage, begin: int = 0, end: int) -> PullResult:
    return PullResult(PullStatus.FOUND, messages[-1].queue_offset + 1, begin, end, list(messages))


class ScriptedPulls:
    """Answers the pulls of each queue in turn, then blocks. `asked` are the pulled offsets of PLAIN."""

    def __init__(self, plain: list[PullResult | PullFailed], delayed: list[PullResult]) -> None:
        self.answers: dict[MessageQueue, list[Any]] = {PLAIN: plain, DELAYED: delayed}
        self.asked: list[int] = []
        self.kept: list[StoredMessage] = []
        self.bounds = (0, 0)

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [PLAIN if topic == "Soak" else DELAYED]

    async def pull(self, queue: MessageQueue, offset: int, *, suspend_ms: int) -> PullResult:
        if queue is PLAIN:
            self.asked.append(offset)
        if not self.answers[queue]:
            await asyncio.Event().wait()
        answer = self.answers[queue].pop(0)
        if isinstance(answer, PullFailed):
            raise answer
        return cast(PullResult, answer)

    async def min_offset(self, queue: MessageQueue) -> int:
        return self.bounds[0]

    async def max_offset(self, queue: MessageQueue) -> int:
        return self.bounds[1]

    async def read(self, queue: MessageQueue, start: int, end: int) -> AsyncIterator[StoredMessage]:
        for message in self.kept:
            yield message
        if len(self.kept) < end - start:
            raise PullFailed(str(queue), "gone", int(PullStatus.OFFSET_ILLEGAL))


async def eventually(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0.001)


def consumed(
    plain: list[PullResult | PullFailed], delayed: list[PullResult] | None = None, *, sent: int = 9
) -> tuple[Book, Consumer, ScriptedPulls]:
    """Book, consumer and pulls after the consumer has handled these answers."""
    book, pulls = Book(0), ScriptedPulls(plain, delayed or [])
    for _ in range(sent):
        book.begin()
    consumer, pulls_wanted = Consumer(cast(Any, pulls), MESSAGES, book, ManualClock()), len(plain) + 1

    async def scenario() -> None:
        await consumer.start()
        await eventually(lambda: len(pulls.asked) == pulls_wanted and not pulls.answers[DELAYED])
        consumer.check()
        await consumer.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    return book, consumer, pulls


def test_a_consumer_continues_at_its_offset_after_failures() -> None:
    failure = PullFailed("q", "no master")
    book, consumer, pulls = consumed(
        [found(stored(0, 0), stored(1, 1), end=3), failure, found(stored(2, 2), end=5)]
    )
    assert pulls.asked == [0, 2, 2, 3]
    assert (book.read_count, consumer.lag) == (3, 2)
    assert not book.faults.counts


def test_a_consumer_behind_retention_continues_at_the_queues_beginning() -> None:
    behind = PullResult(PullStatus.OFFSET_ILLEGAL, 4, 4, 6, [])
    delayed = [PullResult(PullStatus.OFFSET_ILLEGAL, 7, 7, 8, [])]
    book, consumer, pulls = consumed([behind, found(stored(1, 4), begin=4, end=6)], delayed)
    assert pulls.asked == [0, 4, 5]
    assert (consumer.skipped, consumer.lag) == (7, 2)
    assert not book.faults.counts


def test_a_consumer_sent_back_keeps_its_offset_and_reports_one_fault() -> None:
    back = PullResult(PullStatus.OFFSET_ILLEGAL, 1, 0, 1, [])
    nothing_yet = PullResult(PullStatus.NO_NEW_MESSAGE, 2, 0, 1, [])
    book, _, pulls = consumed([found(stored(0, 0), stored(1, 1), end=2), nothing_yet, back, back])
    assert pulls.asked == [0, 2, 2, 2, 2]
    assert book.faults.lines == ["read, then taken back: Soak/broker-a/0 was read up to 2, ends at 1"]


def test_gaps_and_other_bodies_are_faults() -> None:
    book, _, _ = consumed([found(stored(0, 0), stored(1, 2, body=b"x"), stored(8, 3), end=4)], sent=8)
    assert book.faults.counts == {Fault.GAP: 1, Fault.CHANGED: 1, Fault.STRANGER: 1}


@pytest.mark.parametrize(("kept", "present", "lost"), [([0, 1], 2, 0), ([0], 1, 1)])
def test_the_last_reading_reads_all_retained_messages_again(kept: list[int], present: int, lost: int) -> None:
    book, consumer, pulls = consumed([found(stored(0, 0), stored(1, 1), end=2)])
    for number in range(2):
        book.queue(str(PLAIN)).acknowledge(number, number, 0)
    pulls.kept, pulls.bounds = [stored(number, number) for number in kept], (0, 2)
    assert asyncio.run(consumer.read_retained()) == present
    assert book.faults.counts[Fault.LOST] == lost


class ScriptedProducer:
    """Ends the sends in turn with each of `ends`; `sent` are their topics, queues and delays."""

    def __init__(self, *ends: SendStatus | Exception) -> None:
        self.ends = ends
        self.sent: list[tuple[str, int | None, str | None]] = []

    async def send(
        self, topic: str, body: bytes, *, keys: str, timeout_ms: int, **options: Any
    ) -> SendResult:
        end = self.ends[len(self.sent) % len(self.ends)]
        self.sent.append((topic, options.get("queue_id"), options.get("properties", {}).get("DELAY")))
        if isinstance(end, Exception):
            raise end
        return SendResult(end, PLAIN, len(self.sent), (keys,), "")


def test_the_book_records_each_send_with_the_outcome_of_the_client() -> None:
    ends = (
        SendStatus.SEND_OK,
        SendRefused("t", "why"),
        SendOutcomeUnknown("t", "a", "why"),
        SendStatus.FLUSH_SLAVE_TIMEOUT,
    )
    producer, book = ScriptedProducer(*ends), Book(0)
    sender = Sender(cast(Any, producer), MESSAGES, book, ManualClock(), queues=4, rate=1e6)

    async def scenario() -> None:
        sender.start()
        await eventually(lambda: len(producer.sent) >= 8 * DELAYED_EVERY)
        await sender.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    count = len(producer.sent)
    acknowledged = -(-count // 4)
    assert sender.acknowledged == book.outcomes[SendOutcome.ACKNOWLEDGED] == acknowledged
    assert book.outcomes.total() == count
    assert abs(book.outcomes[SendOutcome.UNKNOWN] - count / 2) < 2
    assert {queue for _, queue, delay in producer.sent if delay is None} == {0, 1, 2, 3}
    assert {delay for topic, _, delay in producer.sent if topic == "SoakDelayed"} == {"1", "2", "3"}


def test_a_bug_in_sender_or_consumer_is_raised_during_the_run_and_at_stop() -> None:
    broken = ScriptedProducer(ZeroDivisionError())
    sender = Sender(cast(Any, broken), MESSAGES, Book(0), ManualClock(), queues=1, rate=1e6)
    pulls = ScriptedPulls([cast(Any, None)], [])
    consumer = Consumer(cast(Any, pulls), MESSAGES, Book(0), ManualClock())

    def is_raised(by: Sender | Consumer) -> bool:
        try:
            by.check()
        except (ZeroDivisionError, AttributeError):
            return True
        return False

    async def scenario() -> None:
        sender.start()
        await consumer.start()
        await eventually(lambda: is_raised(sender) and is_raised(consumer))
        with pytest.raises(ZeroDivisionError):
            await sender.stop()
        with pytest.raises(AttributeError):
            await consumer.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
