"""Held pulls whose tags do not come: they sleep on, and the queue is not read for each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from messagestore.messages import GetResult, QueueEntry, QueueGrew, TagFilter
from remoting.codes import ResponseCode
from tests.unit.broker.pullbench import HOLD, Bench, ScriptedQueues, pull
from tests.unit.broker.recordingpeer import RecordingPeer


class WatchedQueues(ScriptedQueues):
    """Tells from where it was read, and its entries looked at; some of these are as `listed` says, by their
    offset, and those of one look end where `listed_end` says."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []
        self.looks: list[int] = []
        self.listed: dict[int, QueueEntry] = {}
        self.listed_end: int | None = None

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: TagFilter | None = None
    ) -> GetResult:
        self.reads.append(offset)
        return super().get(topic, queue_id, offset, count, size, wanted)

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[QueueEntry]:
        self.looks.append(offset)
        entries = super().entries(topic, queue_id, offset, count)[: self.listed_end]
        return [self.listed.get(at, entry) for at, entry in enumerate(entries, offset)]


@dataclass
class Crowd:
    """One pull for each of `subscriptions`, which waits behind the one message of its queue."""

    subscriptions: list[str]
    queues: WatchedQueues = field(default_factory=WatchedQueues)

    def __post_init__(self) -> None:
        self.queues.messages = [("A", b"one")]
        self.bench = Bench(queues=self.queues)
        self.peers = [RecordingPeer() for _ in self.subscriptions]
        for peer, subscription in zip(self.peers, self.subscriptions, strict=True):
            asked = pull(queueOffset=1, subscription=subscription, **HOLD)
            assert self.bench.processor.handle(cast(Any, peer), asked) is None
        self.queues.reads.clear()

    def comes(self, *messages: tuple[str, bytes]) -> None:
        self.queues.messages += messages
        self.bench.processor.arrived([QueueGrew("orders", 0, len(self.queues.messages))])

    @property
    def bodies(self) -> list[list[bytes | None]]:
        """What each was answered."""
        return [[cast(Any, reply.body) for reply in peer.replies] for peer in self.peers]


def test_of_several_only_those_are_read_for_whose_tags_came() -> None:
    crowd = Crowd(["B", "C", "B || C", "*"])
    crowd.comes(("A", b"two"))
    assert crowd.bodies == [[], [], [], [b"two"]]
    assert (crowd.queues.looks, crowd.queues.reads) == ([1], [1])
    crowd.comes(("A", b"three"), ("C", b"four"))
    assert crowd.bodies == [[], [b"four"], [b"four"], [b"two"]]
    assert (crowd.queues.looks, crowd.queues.reads) == ([1, 2], [1, 2, 2])


def test_those_passed_over_get_what_comes_later_and_nothing_twice() -> None:
    crowd = Crowd(["A || B", "B", "C"])
    crowd.comes(("D", b"two"))
    crowd.comes(("D", b"three"))
    crowd.comes(("B", b"four"))
    crowd.comes(("B", b"five"))
    assert crowd.bodies == [[b"four"], [b"four"], []]
    crowd.comes(("C", b"six"))
    assert crowd.bodies == [[b"four"], [b"four"], [b"six"]]
    assert len(crowd.bench.held) == 0


def test_at_the_end_of_their_time_they_are_told_to_go_on_behind_what_was_passed_over() -> None:
    crowd = Crowd(["B", "C"])
    crowd.comes(("A", b"two"), ("A", b"three"))
    crowd.bench.processor.expire(15_000)
    for peer in crowd.peers:
        (reply,) = peer.replies
        assert (reply.code, reply.ext["nextBeginOffset"], reply.ext["maxOffset"]) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "3",
            "3",
        )


def test_one_alone_is_read_for_without_a_look() -> None:
    crowd = Crowd(["B"])
    crowd.comes(("A", b"two"))
    assert (crowd.bodies, crowd.queues.looks, crowd.queues.reads) == ([[]], [], [1])


@pytest.mark.parametrize("listed", [QueueEntry(0, 0x7FFFFFFF, 0), QueueEntry(0, 0, 0)], ids=["gap", "damage"])
def test_where_a_queue_lists_no_message_it_is_read_for_all(listed: QueueEntry) -> None:
    crowd = Crowd(["B", "C"])
    crowd.queues.listed = {1: listed}
    crowd.comes(("A", b"two"), ("A", b"three"))
    assert crowd.queues.reads == [1, 1]


@pytest.mark.parametrize("listed_end", [0, 1])
def test_where_a_queue_lists_fewer_messages_than_came_it_is_read_for_all(listed_end: int) -> None:
    crowd = Crowd(["B", "C"])
    crowd.queues.listed_end = listed_end
    crowd.comes(("A", b"two"), ("B", b"three"))
    assert crowd.queues.reads == [1, 1]
    assert crowd.bodies == [[b"three"], []]


@pytest.mark.parametrize(("count", "reads"), [(100, []), (101, [1, 1])])
def test_no_more_than_a_hundred_are_looked_at(count: int, reads: list[int]) -> None:
    crowd = Crowd(["B", "C"])
    crowd.comes(*[("A", b"x")] * count)
    assert crowd.queues.reads == reads
