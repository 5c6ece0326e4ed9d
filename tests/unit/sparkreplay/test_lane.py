"""The lane of one queue in a resend: rows wait in order, and the feeder waits while it is full."""

from __future__ import annotations

import asyncio
from typing import Any

from mqclient.message import OutgoingMessage
from mqclient.producer import SendResult, SendStatus
from mqclient.route import MessageQueue
from sparkreplay.resend.lane import BATCH_MESSAGES_MAX, WAITING_LOW, WAITING_MAX, Lane, Parcel
from sparkreplay.resend.rewrite import QueueMessage


def parcel(number: int, *, born_ms: int = 0, sys_flag: int = 0) -> Parcel:
    row = QueueMessage(0, number, 100 * number, 100 * number + 100, born_ms, 0, sys_flag, 1, b"x", {}, True)
    return Parcel(
        row, OutgoingMessage(str(number).encode(), {}, born_timestamp_ms=born_ms, sys_flag=sys_flag)
    )


class Target:
    """Takes one request for each permit that the test gives."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.turns = asyncio.Semaphore(0)

    async def send(self, messages: list[OutgoingMessage]) -> SendResult:
        await self.turns.acquire()
        self.requests.append([int(message.body) for message in messages])
        return SendResult(SendStatus.SEND_OK, MessageQueue("t", "broker-a", 0), 0, (), "")

    def lane(self) -> Lane:
        async def at_once(messages: int, size: int) -> None:
            pass

        def ignore(what: Any) -> None:
            pass

        return Lane(
            "a test",
            self.send,
            wait_for_rate=at_once,
            on_attempt=ignore,
            on_acked=ignore,
            on_unknown=ignore,
            not_taken_s_max=1.0,
        )


def test_a_full_lane_resumes_when_it_has_room_for_many_rows() -> None:
    async def story() -> None:
        target = Target()
        lane = target.lane()
        running = asyncio.create_task(lane.run())
        fed = 0

        async def feed() -> None:
            nonlocal fed
            for number in range(2 * WAITING_MAX):
                await lane.put(parcel(number, born_ms=number))
                fed = number + 1

        feeding = asyncio.create_task(feed())

        async def answer(count: int) -> None:
            for _ in range(count):
                target.turns.release()
            for _ in range(10 * count + 10):
                await asyncio.sleep(0)

        await answer(0)
        assert fed == WAITING_MAX  # before the lane's own task had its first turn
        await answer(WAITING_MAX - WAITING_LOW - 2)
        assert fed == WAITING_MAX
        await answer(1)
        assert fed > WAITING_MAX
        await answer(2 * WAITING_MAX)
        await feeding
        lane.finish()
        await running
        assert target.requests == [[number] for number in range(2 * WAITING_MAX)]

    asyncio.run(story())


def test_a_request_holds_uncompressed_messages_of_one_born_time() -> None:
    async def story() -> None:
        target = Target()
        lane = target.lane()
        rows = [(0, 5, 0), (1, 5, 0), (2, 6, 0), (3, 6, 1), (4, 6, 0), (5, 6, 0)]
        rows += [(number, 7, 0) for number in range(6, 6 + BATCH_MESSAGES_MAX + 1)]
        for number, born_ms, sys_flag in rows:
            await lane.put(parcel(number, born_ms=born_ms, sys_flag=sys_flag))
            target.turns.release()
        lane.finish()
        await lane.run()
        full = list(range(6, 6 + BATCH_MESSAGES_MAX))
        assert target.requests == [[0, 1], [2], [3], [4, 5], full, [full[-1] + 1]]

    asyncio.run(story())


def test_an_empty_lane_ends_when_it_is_finished() -> None:
    async def story() -> None:
        target = Target()
        lane = target.lane()
        running = asyncio.create_task(lane.run())
        await asyncio.sleep(0)
        assert not running.done()
        lane.finish()
        await running
        assert target.requests == []

    asyncio.run(story())
