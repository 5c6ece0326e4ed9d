"""Held pulls whose tags do not arrive: they stay held, and the queue is not read for each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from messagestore.messages import GetResult, QueueEntry, QueueGrew, TagFilter
from remoting.codes import ResponseCode
from tests.support.pullbench import HOLD, Bench, ScriptedQueues, pull
from tests.support.recordingpeer import RecordingPeer


class WatchedQueues(ScriptedQueues):
    """Records the offsets of reads and of entry listings.

    `listed` replaces entries by offset; `listed_end` limits the length of a listing."""

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
    """One held pull for each of `subscriptions`, at the end of a queue with one message."""

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

    def arrives(self, *messages: tuple[str, bytes]) -> None:
        self.queues.messages += messages
        self.bench.processor.arrived([QueueGrew("orders", 0, len(self.queues.messages))])

    @property
    def bodies(self) -> list[list[bytes | None]]:
        """The bodies of the answers to each pull."""
        return [[cast(Any, reply.body) for reply in peer.replies] for peer in self.peers]


def test_the_queue_is_read_only_for_held_pulls_whose_tags_arrived() -> None:
    crowd = Crowd(["B", "C", "B || C", "*"])
    crowd.arrives(("A", b"two"))
    assert crowd.bodies == [[], [], [], [b"two"]]
    assert (crowd.queues.looks, crowd.queues.reads) == ([1], [1])
    crowd.arrives(("A", b"three"), ("C", b"four"))
    assert crowd.bodies == [[], [b"four"], [b"four"], [b"two"]]
    assert (crowd.queues.looks, crowd.queues.reads) == ([1, 2], [1, 2, 2])


def test_skipped_pulls_get_later_messages_and_nothing_twice() -> None:
    crowd = Crowd(["A || B", "B", "C"])
    crowd.arrives(("D", b"two"))
    crowd.arrives(("D", b"three"))
    crowd.arrives(("B", b"four"))
    crowd.arrives(("B", b"five"))
    assert crowd.bodies == [[b"four"], [b"four"], []]
    crowd.arrives(("C", b"six"))
    assert crowd.bodies == [[b"four"], [b"four"], [b"six"]]
    assert len(crowd.bench.held) == 0


def test_expired_pulls_get_a_next_offset_behind_the_skipped_messages() -> None:
    crowd = Crowd(["B", "C"])
    crowd.arrives(("A", b"two"), ("A", b"three"))
    crowd.bench.processor.expire(15_000)
    for peer in crowd.peers:
        (reply,) = peer.replies
        assert (reply.code, reply.ext["nextBeginOffset"], reply.ext["maxOffset"]) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "3",
            "3",
        )


def test_the_queue_is_read_for_a_single_held_pull_without_a_tag_check() -> None:
    crowd = Crowd(["B"])
    crowd.arrives(("A", b"two"))
    assert (crowd.bodies, crowd.queues.looks, crowd.queues.reads) == ([[]], [], [1])


@pytest.mark.parametrize("listed", [QueueEntry(0, 0x7FFFFFFF, 0), QueueEntry(0, 0, 0)], ids=["gap", "damage"])
def test_an_entry_without_a_message_makes_the_queue_be_read_for_every_pull(listed: QueueEntry) -> None:
    crowd = Crowd(["B", "C"])
    crowd.queues.listed = {1: listed}
    crowd.arrives(("A", b"two"), ("A", b"three"))
    assert crowd.queues.reads == [1, 1]


@pytest.mark.parametrize("listed_end", [0, 1])
def test_a_listing_shorter_than_the_arrivals_makes_the_queue_be_read_for_every_pull(listed_end: int) -> None:
    crowd = Crowd(["B", "C"])
    crowd.queues.listed_end = listed_end
    crowd.arrives(("A", b"two"), ("B", b"three"))
    assert crowd.queues.reads == [1, 1]
    assert crowd.bodies == [[b"three"], []]


@pytest.mark.parametrize(("count", "reads"), [(100, []), (101, [1, 1])])
def test_at_most_a_hundred_entries_are_checked_by_tag(count: int, reads: list[int]) -> None:
    crowd = Crowd(["B", "C"])
    crowd.arrives(*[("A", b"x")] * count)
    assert crowd.queues.reads == reads
