"""Answers whose cost grows with a table: made, shared and sent on a loop without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from mqruntime.slices import Steps
from remoting.bulk import BulkAnswers
from remoting.command import RemotingCommand
from remoting.header import Header
from remoting.limits import Limits
from remoting.peer import Peer
from tests.unit.remoting.connectionbench import Bench, wire

STEPS = 3


class Making:
    """Counts the steps of answers. Each answer is its own number."""

    def __init__(self) -> None:
        self.begun = 0
        self.steps: list[int] = []

    def make(self) -> Steps[tuple[bytes, Header | None]]:
        self.begun += 1
        number = self.begun
        for _ in range(STEPS):
            self.steps.append(number)
            yield
        return b"%d" % number, None


def bodies(peer: Peer) -> list[tuple[int, bytes]]:
    return [(each.opaque, bytes(each.body or b"")) for each in wire(peer).answers]


async def begun(making: Making) -> None:
    while not making.steps:  # noqa: ASYNC110 - a step is no event
        await asyncio.sleep(0)


async def until_quiet() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def ask(bulk: BulkAnswers, making: Making, peer: Peer, opaque: int, key: str = "all") -> asyncio.Task[None]:
    return asyncio.ensure_future(bulk.answer(peer, RemotingCommand(43, opaque), key, making.make))


def test_requests_before_an_answer_is_begun_share_it_and_later_ones_do_not() -> None:
    async def story() -> None:
        bench, bulk, making = Bench(), BulkAnswers(), Making()
        peers = [bench.connect(name) for name in "abc"]
        asked = [ask(bulk, making, peer, 1) for peer in peers[:2]]
        await begun(making)
        asked.append(ask(bulk, making, peers[2], 1))
        await asyncio.gather(*asked)
        assert [bodies(peer) for peer in peers[1:]] in (
            [[(1, b"1")], [(1, b"2")]],
            [[(1, b"2")], [(1, b"2")]],
        )
        assert bodies(peers[0]) == [(1, b"1")] and bodies(peers[2]) == [(1, b"2")]

    asyncio.run(story())


def test_one_bulk_answer_is_made_at_a_time_and_other_tasks_run_between_steps() -> None:
    async def story() -> None:
        bench, bulk, making, turns = Bench(), BulkAnswers(), Making(), list[int]()
        asked = [ask(bulk, making, bench.connect(f"peer {key}"), 1, key) for key in "xyz"]
        while not all(task.done() for task in asked):
            turns.append(len(making.steps))
            await asyncio.sleep(0)
        assert making.steps == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        assert max(after - before for before, after in zip(turns, turns[1:], strict=False)) == 1

    asyncio.run(story())


def test_a_connection_gets_the_next_bulk_answer_after_it_read_the_last() -> None:
    async def story() -> None:
        bench, bulk, making = Bench(Limits()), BulkAnswers(), Making()
        slow, other = bench.connect("slow"), bench.connect("other")
        slow.pause_writing()
        asked = [ask(bulk, making, slow, opaque) for opaque in (1, 2)]
        await until_quiet()
        assert bodies(slow) == [] and making.begun == 0
        await ask(bulk, making, other, 1)
        assert bodies(other) == [(1, b"1")]
        slow.resume_writing()
        await asyncio.gather(*asked)
        assert bodies(slow) == [(1, b"2"), (2, b"3")]

    asyncio.run(story())


def test_no_bulk_answer_is_made_for_a_closed_connection() -> None:
    async def story() -> None:
        bench, bulk, making = Bench(), BulkAnswers(), Making()
        gone = bench.connect("gone")
        gone.pause_writing()
        asked = ask(bulk, making, gone, 1)
        await asyncio.sleep(0)
        gone.connection_lost(None)
        await asked
        assert making.begun == 0

    asyncio.run(story())


def test_an_error_reaches_all_requests_of_an_answer_and_the_next_is_made() -> None:
    def broken() -> Generator[None, None, Any]:
        yield
        raise ValueError("broken")

    async def story() -> None:
        bulk, making = BulkAnswers(), Making()
        asked = [asyncio.ensure_future(bulk.get("all", broken)) for _ in range(2)]
        for task in asked:
            with pytest.raises(ValueError, match="broken"):
                await task
        assert await bulk.get("all", making.make) == (b"1", None)

    asyncio.run(story())


def test_a_cancelled_bulk_answer_does_not_block_the_next() -> None:
    async def story() -> None:
        bulk, making = BulkAnswers(), Making()
        first = asyncio.ensure_future(bulk.get("all", making.make))
        await begun(making)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await bulk.get("all", making.make) == (b"2", None)

    asyncio.run(story())
