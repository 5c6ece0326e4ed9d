"""Which connection makes room when clients leave too much unread."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from remoting.limits import Limits
from remoting.peer import Peer
from remoting.unsent import TOO_MUCH, Unsent
from tests.unit.remoting.connectionbench import Bench, wire


class Connection:
    def __init__(self) -> None:
        self.cuts: list[str] = []

    def cut(self, why: str) -> None:
        self.cuts.append(why)


def test_the_connection_that_is_behind_for_the_longest_time_makes_room() -> None:
    unsent, connections = Unsent(10), [Connection() for _ in range(4)]
    first, second, third, fourth = connections
    for each in (first, second):
        unsent.has(each, 4)
    unsent.has(first, 0)
    unsent.has(first, 5)
    unsent.has(third, 1)
    assert not any(each.cuts for each in connections)
    unsent.has(third, 2)
    assert [each.cuts for each in connections] == [[], [TOO_MUCH], [], []]
    unsent.has(second, 0)  # its connection has ended
    unsent.has(fourth, 3)
    assert not first.cuts
    unsent.has(fourth, 20)
    assert [len(each.cuts) for each in connections] == [1, 1, 1, 0], "one connection may have more"


def test_a_client_that_reads_nothing_makes_room_for_others() -> None:
    async def story() -> None:
        bench = Bench(Limits(unsent_of_all_max=1_000))
        peers = [bench.connect(name) for name in ("silent", "slow", "reads")]
        silent, slow, reads = peers

        def leaves(peer: Peer, size: int) -> None:
            wire(peer).unsent = size
            peer.pause_writing()
            peer.write([b""])

        leaves(silent, 400)
        leaves(slow, 400)
        wire(slow).unsent = 0
        slow.resume_writing()
        leaves(reads, 400)
        assert not any(peer.closed for peer in peers)
        leaves(slow, 400)
        assert [peer.closed for peer in peers] == [True, False, False]
        for peer in peers:
            peer.connection_lost(None)
        assert cast(Any, bench.connections)._unsent._bytes == 0

    asyncio.run(story())
