"""The reader of one queue, at a broker of the test: what it commits, and what moves and ends at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from mqclient.consumer import PullResult, PullStatus
from mqclient.message import StoredMessage
from mqclient.queuepuller import QueuePuller, StartPosition
from mqclient.route import MessageQueue
from mqclient.selectors import Selector
from tests.support.doubles import ManualClock

QUEUE = MessageQueue("orders", "broker-a", 0)


def message(offset: int) -> StoredMessage:
    return StoredMessage("orders", 0, offset, 0, b"", {}, 0, 0, 0, "h:1", 0, "h:1", 0, 0, 100)


class Broker:
    """The part of PullConsumer that a puller uses. A pull without an answer waits."""

    def __init__(self, *answers: PullResult, committed: int | None = None) -> None:
        self.answers = list(answers)
        self.commits: list[int] = []
        self.asked: list[int] = []
        self.known = committed
        self.slow_commits: asyncio.Event | None = None

    async def committed(self, queue: MessageQueue, *, zero_if_none: bool) -> int | None:
        return self.known

    async def max_offset(self, queue: MessageQueue) -> int:
        return 7

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        if self.slow_commits is not None:
            await self.slow_commits.wait()
        self.commits.append(offset)

    async def pull(self, queue: MessageQueue, offset: int, **how: Any) -> PullResult:
        self.asked.append(offset)
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        return self.answers.pop(0)


class Owner:
    def arrived(self, puller: QueuePuller) -> None: ...

    async def room(self, puller: QueuePuller) -> None: ...

    def failed(self, task: asyncio.Task[None]) -> None:
        assert task.cancelled() or task.exception() is None


def played(broker: Broker, story: Callable[[QueuePuller], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        puller = QueuePuller(
            QUEUE, Selector(), StartPosition(), cast(Any, Owner()),
            consumer=cast(Any, broker), locks=None, clock=ManualClock(), commits=True,
        )  # fmt: skip
        puller.begin()
        await settled()
        await story(puller)
        await puller.end()

    asyncio.run(play())


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_first_offset_of_a_new_group_is_committed_before_anything_is_read() -> None:
    """Else a member that dies at once is followed by one that begins at a later end, and the messages between are skipped."""
    broker = Broker()

    async def story(puller: QueuePuller) -> None:
        assert (broker.commits, broker.asked) == ([7], [7])

    played(broker, story)
    known = Broker(committed=3)

    async def nothing(puller: QueuePuller) -> None:
        assert (known.commits, known.asked) == ([], [3])

    played(known, nothing)


def test_messages_in_memory_are_given_though_the_broker_deleted_what_follows() -> None:
    found = PullResult(PullStatus.FOUND, 5, 0, 9, [message(3), message(4)])
    deleted = PullResult(PullStatus.OFFSET_ILLEGAL, 100, 100, 200, [])
    broker = Broker(found, deleted, committed=3)

    async def story(puller: QueuePuller) -> None:
        assert puller.progress is not None
        assert (puller.progress.next_offset, puller.progress.committed, puller.progress.count) == (100, 3, 2)

    played(broker, story)
    assert broker.asked == [3, 5, 100]


def test_a_group_that_was_moved_back_drops_what_is_in_memory() -> None:
    found = PullResult(PullStatus.FOUND, 5, 0, 9, [message(3), message(4)])
    moved = PullResult(PullStatus.OFFSET_ILLEGAL, 1, 0, 9, [])
    broker = Broker(found, moved, committed=3)

    async def story(puller: QueuePuller) -> None:
        assert puller.progress is not None
        assert (puller.progress.next_offset, puller.progress.count) == (1, 0)

    played(broker, story)
    assert (broker.asked, broker.commits) == ([3, 5, 1], [1])


def test_a_puller_that_ends_while_the_group_is_moved_stays_ended() -> None:
    broker = Broker(committed=3)

    async def story(puller: QueuePuller) -> None:
        broker.slow_commits = asyncio.Event()
        moving = asyncio.create_task(puller.move(0))
        await settled()
        await puller.end()
        broker.slow_commits.set()
        await moving
        await settled()
        assert broker.asked == [3]

    played(broker, story)
    assert broker.commits == [0]


def test_two_moves_at_the_same_time_leave_one_reader_at_the_last_offset() -> None:
    broker = Broker(committed=3)

    async def story(puller: QueuePuller) -> None:
        await asyncio.gather(puller.move(0), puller.move(2))
        await settled()
        assert broker.asked == [3, 2]

    played(broker, story)
    assert broker.commits[-1] == 2
