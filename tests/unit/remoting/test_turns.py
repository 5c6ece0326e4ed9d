"""The number of requests of one connection per turn, and the order of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from remoting.codes import ResponseCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.dispatch import REPLIES_BYTES_MAX
from remoting.frame import encode
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.turns import ROUND_US, SLICE_US, STARTS_MAX, Turns
from tests.unit.remoting.connectionbench import (
    ASK,
    BIG,
    COST_US,
    LATER,
    SEND,
    Bench,
    WorkingClock,
    wire,
)

IN_A_SLICE = SLICE_US // COST_US


def requests(code: int, count: int, *, flag: int = 0, body: bytes | None = None) -> bytes:
    made = b""
    for opaque in range(1, count + 1):
        command = RemotingCommand.request(code, body=body)
        command.opaque, command.flag = opaque, flag
        made += b"".join(map(bytes, encode(command)))
    return made


def fill(peer: Peer, data: bytes) -> None:
    """One receive."""
    buffer = peer.get_buffer(-1)
    while len(buffer) < len(data):  # the transport would have read twice
        peer._reader._grow()
        buffer = peer.get_buffer(-1)
    buffer[: len(data)] = data
    peer.buffer_updated(len(data))


def play(story: Callable[[Bench], Any], limits: Limits | None = None) -> None:
    async def whole() -> None:
        bench = Bench(limits)
        await story(bench)
        bench.release.set()
        await bench.connections._dispatcher.stop()

    asyncio.run(whole())


@pytest.mark.parametrize("flag", [0, ONEWAY_BIT])
def test_a_flood_of_requests_is_handled_one_slice_per_turn(flag: int) -> None:
    async def story(bench: Bench) -> None:
        flood = bench.connect("flood")
        fill(flood, requests(ASK, 10, flag=flag))
        assert bench.handled == ["flood"] * IN_A_SLICE
        assert not wire(flood).reads
        assert await bench.turn() == ["flood"] * IN_A_SLICE
        assert not wire(flood).reads
        assert await bench.turn() == ["flood"] * (10 - 2 * IN_A_SLICE)
        assert wire(flood).reads
        assert [each.opaque for each in wire(flood).answers] == ([] if flag else list(range(1, 11)))

    assert IN_A_SLICE == 4
    play(story)


def test_another_connection_is_answered_in_the_turn_of_its_request() -> None:
    async def story(bench: Bench) -> None:
        flood, other = bench.connect("flood"), bench.connect("other")
        fill(flood, requests(ASK, 1000))
        fill(other, requests(ASK, 1))
        assert bench.handled == ["flood"] * IN_A_SLICE + ["other"]
        assert len(wire(other).answers) == 1 and wire(other).reads

    play(story)


def test_waiting_connections_take_turns_in_order() -> None:
    async def story(bench: Bench) -> None:
        floods = [bench.connect(name) for name in "abcdef"]
        for flood in floods:
            fill(flood, requests(ASK, 9))
        in_a_round = ROUND_US // SLICE_US
        assert "".join(bench.handled) == "aaaabbbbccccdddd"  # the requests of the other connections wait
        assert len(bench.handled) == in_a_round * IN_A_SLICE
        assert "".join(await bench.turn()) == "aaaabbbbccccdddd"
        assert "".join(await bench.turn()) == "eeeeffffab" + "cd"
        assert "".join(await bench.turn()) == "eeeeffff"
        assert "".join(await bench.turn()) == "ef"
        assert all(wire(flood).reads for flood in floods)

    play(story)


def test_a_request_after_a_full_round_waits_behind_earlier_ones() -> None:
    async def story(bench: Bench) -> None:
        floods, late = [bench.connect(name) for name in "abcd"], bench.connect("late")
        for flood in floods:
            fill(flood, requests(ASK, 5))
        fill(late, requests(ASK, 1))
        assert "late" not in bench.handled and not wire(late).reads
        assert await bench.turn() == ["a", "b", "c", "d", "late"]

    play(story)


def test_only_a_few_asynchronous_handlers_begin_in_a_turn() -> None:
    async def story(bench: Bench) -> None:
        flood = bench.connect("flood")
        fill(flood, requests(LATER, 3 * STARTS_MAX))
        begun = [len(await bench.turn()) for _ in range(4)]
        assert begun == [STARTS_MAX, STARTS_MAX, STARTS_MAX, 0]

    play(story)


def test_a_connection_with_too_many_open_handlers_is_not_read() -> None:
    async def story(bench: Bench) -> None:
        flood, other = bench.connect("flood"), bench.connect("other")
        fill(flood, requests(LATER, 5))
        begun = [len(await bench.turn()) for _ in range(3)]
        assert begun == [3, 0, 0] and not wire(flood).reads
        fill(other, requests(ASK, 1))
        assert [each.code for each in wire(other).answers] == [ResponseCode.SUCCESS]
        bench.release.set()
        while len(wire(flood).answers) < 5:
            await bench.turn()
        assert wire(flood).reads

    play(story, Limits(running_of_one_max=3))


def test_requests_of_a_client_that_reads_no_answers_are_not_handled() -> None:
    async def story(bench: Bench) -> None:
        slow = bench.connect("slow")
        fill(slow, requests(BIG, 3))
        assert len(bench.handled) == 1
        assert [len(await bench.turn()) for _ in range(3)] == [0, 0, 0] and not wire(slow).reads
        slow.resume_writing()
        assert [len(await bench.turn()) for _ in range(3)] == [1, 0, 0]
        slow.resume_writing()
        assert [len(await bench.turn()) for _ in range(3)] == [1, 0, 0]
        slow.resume_writing()
        await bench.turn()
        assert wire(slow).reads

    play(story)


def test_long_answers_are_sent_before_more_requests_are_handled() -> None:
    async def story(bench: Bench) -> None:
        def answer(peer: Peer, command: RemotingCommand) -> RemotingCommand:
            bench.handled.append(peer.remote_address)
            return command.reply(body=bytes(REPLIES_BYTES_MAX // 2))

        bench.connections._dispatcher._router.add(61_000, answer)
        slow, other = bench.connect("slow"), bench.connect("other")
        write, writes = wire(slow).writelines, list[int]()

        def writelines(buffers: list[bytes]) -> None:
            write(buffers)
            writes.append(sum(map(len, buffers)))
            if len(writes) == 2:
                slow.pause_writing()

        wire(slow).writelines = writelines  # type: ignore[method-assign]
        fill(slow, requests(61_000, 64))
        assert (len(bench.handled), len(writes)) == (4, 2) and max(writes) < 2 * REPLIES_BYTES_MAX
        fill(other, requests(61_000, 5))
        assert [each.opaque for each in wire(other).answers] == [1, 2, 3, 4, 5]
        slow.resume_writing()
        while len(wire(slow).answers) < 64:
            await bench.turn()
        assert [each.opaque for each in wire(slow).answers] == [*range(1, 65)]

    play(story)


def test_bodies_that_wait_for_their_turn_are_kept() -> None:
    got: list[bytes] = []

    async def story(bench: Bench) -> None:
        def keep(peer: Peer, command: RemotingCommand) -> None:
            got.append(bytes(command.body or b""))
            bench.clock.us += SLICE_US

        bench.connections._dispatcher._router.add(61_000, keep)
        flood = bench.connect("flood")
        fill(flood, b"".join(requests(61_000, 1, body=b"%d" % number) for number in range(5)))
        assert len(got) == 1
        flood._reader._view[: len(flood._reader._view)] = bytes(len(flood._reader._view))  # no longer valid
        for _ in range(5):
            await bench.turn()

    play(story)
    assert got == [b"0", b"1", b"2", b"3", b"4"]


def test_sends_are_stored_together_and_the_rest_of_a_receive_waits() -> None:
    async def story(bench: Bench) -> None:
        producer = bench.connect("producer")
        fill(producer, requests(SEND, 100))
        assert bench.batches == [64]
        await bench.turn()
        assert bench.batches == [64, 36]

    play(story)


def test_a_malformed_frame_closes_the_connection_after_earlier_requests() -> None:
    async def story(bench: Bench) -> None:
        flood = bench.connect("flood")
        fill(flood, requests(ASK, 6) + b"\x00\x00\x00\x01")
        assert len(bench.handled) == 4 and not wire(flood).cut
        assert len(await bench.turn()) == 2
        assert wire(flood).cut

    play(story)


def test_a_closed_waiting_connection_is_skipped() -> None:
    async def story(bench: Bench) -> None:
        gone, other = bench.connect("gone"), bench.connect("other")
        fill(gone, requests(ASK, 5))
        fill(other, requests(ASK, 5))
        gone.cut("test")
        assert await bench.turn() == ["other"]

    play(story)


def test_a_round_begins_once_for_any_number_of_waiting_connections() -> None:
    due: list[Callable[[], None]] = []
    order: list[str] = []

    class One:
        def __init__(self, name: str) -> None:
            self.name = name

        def go_on(self) -> None:
            order.append(self.name)
            turns.spent_us += 5_000

    turns = Turns(WorkingClock(), round_us=8_000, call_soon=due.append)
    for name in "abc":
        turns.wait(One(name))
    assert len(due) == 1
    due.pop()()
    assert order == ["a", "b"] and turns.number == 1 and len(due) == 1
    due.pop()()
    assert order == ["a", "b", "c"] and turns.number == 2 and not due
