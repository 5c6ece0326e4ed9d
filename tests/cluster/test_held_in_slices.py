"""Many held pulls that are answered together: in slices, and each once, despite events in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from broker.pulls.held import HeldPulls
from broker.pulls.processor import PullProcessor
from messagestore.messages import GetResult, QueueGrew
from mqruntime.inslices import InSlices
from mqruntime.tasks import Tasks
from remoting.codes import ResponseCode
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.support.doubles import ManualClock
from tests.support.pullbench import HOLD, Bench, ScriptedQueues, pull
from tests.support.recordingpeer import RecordingPeer

NOT_FOUND, BUSY, FOUND = ResponseCode.PULL_NOT_FOUND, ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS
End = Callable[[PullProcessor], None]


def expire(processor: PullProcessor) -> None:
    processor.expire(15_000)


ENDS = pytest.mark.parametrize(
    ("end", "code"),
    [
        (expire, NOT_FOUND),
        (PullProcessor.ask_again, NOT_FOUND),
        (PullProcessor.check_again, NOT_FOUND),
        (PullProcessor.release_all, BUSY),
    ],
    ids=["expire", "ask-again", "check-again", "release-all"],
)


def crowd(count: int, *peers: RecordingPeer, room: int = 1_000) -> Bench:
    """`count` held pulls of one queue, over these connections in turn, with opaques 0, 1, 2, ..."""
    bench = Bench(held=HeldPulls(room))
    hold(bench, range(count), *peers)
    return bench


def hold(bench: Bench, opaques: range, *peers: RecordingPeer, **fields: Any) -> None:
    for opaque in opaques:
        asked = pull(**HOLD, **fields)
        asked.opaque = opaque
        peer = peers[opaque % len(peers)] if peers else bench.peer
        assert bench.processor.handle(cast(Any, peer), asked) is None


def answers_of(peer: RecordingPeer) -> list[tuple[int, int]]:
    """Opaque and code of each answer."""
    return [(reply.opaque, reply.code) for reply in peer.replies]


async def to_the_end(bench: Bench) -> list[int]:
    """Counts of answers after each turn of the loop, until all pulls are answered."""
    counts = [len(bench.peer.replies)]
    while len(bench.held):
        assert len(counts) < 1_000, f"{len(bench.held)} pulls are never answered"
        await asyncio.sleep(0)
        counts.append(len(bench.peer.replies))
    await bench.processor.drained()
    return counts


@ENDS
def test_many_pulls_are_answered_in_order_and_at_most_a_hundred_per_turn(end: End, code: int) -> None:
    async def scenario() -> tuple[list[int], Bench]:
        bench = crowd(250)
        end(bench.processor)
        return await to_the_end(bench), bench

    counts, bench = asyncio.run(scenario())
    assert sorted(set(counts)) == [100, 200, 250]
    assert answers_of(bench.peer) == [(opaque, code) for opaque in range(250)]


@ENDS
def test_a_few_pulls_are_answered_at_once(end: End, code: int) -> None:
    bench = crowd(99)
    end(bench.processor)  # no loop runs that could continue it
    assert answers_of(bench.peer) == [(opaque, code) for opaque in range(99)] and len(bench.held) == 0


@ENDS
def test_a_connection_that_ends_in_between_gets_no_more_answers(end: End, code: int) -> None:
    first, second = RecordingPeer(), RecordingPeer()

    async def scenario() -> None:
        bench = crowd(250, first, second)
        end(bench.processor)
        second.closed = True
        (closed,) = second.close_callbacks
        closed(second)
        await bench.processor.drained()
        assert len(bench.held) == 0

    asyncio.run(scenario())
    assert answers_of(first) == [(opaque, code) for opaque in range(0, 250, 2)]
    assert answers_of(second) == [(opaque, code) for opaque in range(1, 100, 2)]


def test_a_message_that_arrives_while_rights_are_checked_again_goes_to_no_pull_of_before() -> None:
    async def scenario() -> Bench:
        bench = crowd(250)
        bench.processor.check_again()
        bench.queues.messages = [("A", b"after the revocation")]
        bench.processor.arrived([QueueGrew("orders", 0, 1)])
        await to_the_end(bench)
        return bench

    peer = asyncio.run(scenario()).peer
    assert answers_of(peer) == [(opaque, NOT_FOUND) for opaque in range(250)]
    assert {reply.ext["nextBeginOffset"] for reply in peer.replies} == {"0"}, "the next pulls get it"


def test_a_message_that_arrives_during_expiry_goes_to_pulls_still_waiting() -> None:
    async def scenario() -> Bench:
        bench = crowd(250)
        expire(bench.processor)
        bench.queues.messages = [("A", b"one")]
        bench.processor.arrived([QueueGrew("orders", 0, 1)])
        await to_the_end(bench)
        return bench

    answers = answers_of(asyncio.run(scenario()).peer)
    assert answers == [(opaque, NOT_FOUND if opaque < 100 else FOUND) for opaque in range(250)]


@pytest.mark.parametrize(
    ("end", "code"),
    [(PullProcessor.ask_again, FOUND), (PullProcessor.release_all, BUSY)],
    ids=["ask-again", "release-all"],
)
def test_a_message_and_a_deadline_in_between_answer_no_pull_before_its_turn(end: End, code: int) -> None:
    async def scenario() -> Bench:
        bench = crowd(250)
        end(bench.processor)
        bench.queues.messages = [("A", b"one")]
        bench.processor.arrived([QueueGrew("orders", 0, 1)])
        bench.processor.moved("CG", "orders", [0])
        bench.processor.expire(15_000)
        assert len(bench.peer.replies) == 100
        await to_the_end(bench)
        return bench

    first = BUSY if code == BUSY else NOT_FOUND
    answers = answers_of(asyncio.run(scenario()).peer)
    assert answers == [(opaque, first if opaque < 100 else code) for opaque in range(250)]


def test_a_pull_that_comes_in_between_waits_for_its_own_message() -> None:
    """As after a role that changed back."""

    async def scenario() -> Bench:
        bench = crowd(250)
        bench.processor.release_all()
        hold(bench, range(250, 252))
        await bench.processor.drained()
        assert answers_of(bench.peer) == [(opaque, BUSY) for opaque in range(250)] and len(bench.held) == 2
        bench.queues.messages = [("A", b"one")]
        bench.processor.arrived([QueueGrew("orders", 0, 1)])
        return bench

    assert answers_of(asyncio.run(scenario()).peer)[250:] == [(250, FOUND), (251, FOUND)]


def test_two_role_changes_in_a_row_answer_each_pull_once_and_in_order() -> None:
    async def scenario() -> Bench:
        bench = crowd(250)
        bench.processor.ask_again()
        hold(bench, range(250, 500))
        bench.processor.release_all()
        assert len(bench.peer.replies) == 100
        await to_the_end(bench)
        return bench

    answers = answers_of(asyncio.run(scenario()).peer)
    assert answers == [(opaque, NOT_FOUND if opaque < 250 else BUSY) for opaque in range(500)]


def test_pulls_whose_turn_has_not_come_count_against_the_limit() -> None:
    async def scenario() -> None:
        bench = crowd(250, room=250)
        bench.processor.release_all()
        assert len(bench.held) == 150
        hold(bench, range(250, 350))
        refused = bench.pull(**HOLD)
        assert refused is not None and refused.code == NOT_FOUND, "held pulls are bounded"
        await bench.processor.drained()
        assert len(bench.held) == 100

    asyncio.run(scenario())


def arrives(bench: Bench, *messages: tuple[str, bytes]) -> None:
    bench.queues.messages += messages
    bench.processor.arrived([QueueGrew("orders", 0, len(bench.queues.messages))])


def test_a_message_wakes_many_pulls_in_order_and_at_most_a_hundred_per_turn() -> None:
    async def scenario() -> tuple[list[int], Bench]:
        bench = crowd(250)
        arrives(bench, ("A", b"one"))
        return await to_the_end(bench), bench

    counts, bench = asyncio.run(scenario())
    assert sorted(set(counts)) == [100, 200, 250]
    assert answers_of(bench.peer) == [(opaque, FOUND) for opaque in range(250)]


def test_messages_of_many_queues_wake_at_most_a_hundred_pulls_per_turn() -> None:
    async def scenario() -> tuple[list[int], Bench]:
        bench = crowd(0)
        bench.topics.ensure("wide", 250)
        for queue_id in range(250):
            assert bench.pull(topic="wide", queueId=queue_id, **HOLD) is None
        bench.queues.messages = [("A", b"one")]
        bench.processor.arrived([QueueGrew("wide", queue_id, 1) for queue_id in range(250)])
        return await to_the_end(bench), bench

    counts, bench = asyncio.run(scenario())
    assert sorted(set(counts)) == [100, 200, 250]


def test_a_message_wakes_a_few_pulls_at_once() -> None:
    bench = crowd(99)
    arrives(bench, ("A", b"one"))  # no loop runs that could continue it
    assert answers_of(bench.peer) == [(opaque, FOUND) for opaque in range(99)] and len(bench.held) == 0


def test_a_connection_that_ends_before_its_turn_is_given_nothing() -> None:
    first, second = RecordingPeer(), RecordingPeer()

    async def scenario() -> None:
        bench = crowd(250, first, second)
        arrives(bench, ("A", b"one"))
        (closed,) = second.close_callbacks
        closed(second)
        await to_the_end(bench)

    asyncio.run(scenario())
    assert answers_of(first) == [(opaque, FOUND) for opaque in range(0, 250, 2)]
    assert answers_of(second) == [(opaque, FOUND) for opaque in range(1, 100, 2)]


@ENDS
def test_pulls_that_end_before_their_wake_up_are_answered_once(end: End, code: int) -> None:
    """They end with the message if the queue is read for them."""

    async def scenario() -> Bench:
        bench = crowd(250)
        arrives(bench, ("A", b"one"))
        end(bench.processor)
        await to_the_end(bench)
        return bench

    later = FOUND if end in (expire, PullProcessor.ask_again) else code
    answers = answers_of(asyncio.run(scenario()).peer)
    assert answers == [(opaque, FOUND if opaque < 100 else later) for opaque in range(250)]


class CountedQueues(ScriptedQueues):
    reads = 0

    def get(self, topic: str, queue_id: int, *place: Any) -> GetResult:
        self.reads += 1
        return super().get(topic, queue_id, *place)


def test_messages_that_arrive_during_a_wake_up_are_read_together_and_none_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.pulls.arrivals.LOOKED_AT_MAX", 0)  # the queue is read for each pull
    queues = CountedQueues()

    async def scenario() -> Bench:
        bench = Bench(queues=queues, held=HeldPulls(1_000))
        hold(bench, range(250), subscription="B")
        queues.reads = 0
        for _ in range(10):
            arrives(bench, ("A", b"nobody's"))
        arrives(bench, ("B", b"theirs"))
        assert (queues.reads, bench.peer.replies) == (100, [])
        await to_the_end(bench)
        return bench

    answers = answers_of(asyncio.run(scenario()).peer)
    assert sorted(answers) == [(opaque, FOUND) for opaque in range(250)]
    assert queues.reads == 100 + 150 + 100, "pulls woken before the match arrived are read for again"


def test_another_queue_gets_its_turn_between_rounds_of_a_growing_one() -> None:
    async def scenario() -> Bench:
        bench = crowd(0)
        hold(bench, range(250), subscription="B")
        hold(bench, range(250, 251), queueId=1)
        arrives(bench, ("A", b"one"))
        bench.processor.arrived([QueueGrew("orders", 1, 1)])
        for _ in range(4):
            arrives(bench, ("A", b"more"))
            await asyncio.sleep(0)
        return bench

    assert answers_of(asyncio.run(scenario()).peer) == [(250, FOUND)]


def test_pulls_in_many_queues_of_a_reset_group_are_answered_in_slices() -> None:
    async def scenario() -> tuple[list[int], Bench]:
        bench = crowd(0)
        bench.topics.ensure("wide", 250)
        for queue_id in range(250):
            assert bench.pull(topic="wide", queueId=queue_id, **HOLD) is None
        bench.offsets.reset({("CG", "wide", queue_id): 3 for queue_id in range(250)})
        bench.processor.moved("CG", "wide", range(250))
        return await to_the_end(bench), bench

    counts, bench = asyncio.run(scenario())
    assert sorted(set(counts)) == [100, 200, 250]
    assert {reply.remark for reply in bench.peer.replies} == {"OFFSET_RESET"}


def test_a_slice_ends_early_if_its_steps_take_long() -> None:
    async def scenario() -> list[int]:
        clock, done, seen = ManualClock(), 0, []
        slices = InSlices(Tasks(lambda error: None), clock, name="steps")

        def work() -> Iterator[None]:
            nonlocal done
            for _ in range(7):
                done += 1
                clock.ms += 2
                yield

        slices.do(work())
        while slices.goes_on:
            seen.append(done)
            await asyncio.sleep(0)
        return [*seen, done]

    assert sorted(set(asyncio.run(scenario()))) == [3, 6, 7]


@pytest.mark.parametrize("slave_reads", [False, True])
def test_a_stopping_broker_answers_every_held_pull(
    slave_reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqruntime.inslices.SLICE", 1)
    monkeypatch.setattr("broker.neighbours.neighbours.LEAVE_MS", 0)  # no other part delays the stop
    with World(41) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1, slaveReadEnable=slave_reads)
        cluster.start_up()
        address = cluster.app(cluster.master).address

        async def scenario() -> list[int]:
            async with cluster.client() as client:
                calls = [client.remoting.call(address, pull(**HOLD), 15_000) for _ in range(300)]
                waiting = asyncio.gather(*calls)
                await asyncio.sleep(0.1)
                assert cluster.app(cluster.master).requests.pulls_held == 300
                await asyncio.gather(cluster.master.stop())
                return [reply.code for reply in await waiting]

        assert cluster.run(scenario()) == [BUSY] * 300
