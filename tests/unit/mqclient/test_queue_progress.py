"""The offset that a consumer commits, from what it has taken and finished."""

from __future__ import annotations

import pytest

from mqclient.message import StoredMessage
from mqclient.queueprogress import QueueProgress


def messages(*offsets: int) -> list[StoredMessage]:
    return [
        StoredMessage("orders", 0, offset, 0, b"", {}, 0, 0, 0, "h:1", 0, "h:1", 0, 0, 100)
        for offset in offsets
    ]


def taken(progress: QueueProgress, count: int) -> list[StoredMessage]:
    return [progress.take() for _ in range(count)]


def test_the_committed_offset_passes_over_no_unfinished_message() -> None:
    progress = QueueProgress(5)
    assert (progress.committed, progress.waits) == (5, False)
    progress.add(messages(5, 6, 9), 12)
    assert (progress.committed, progress.next_offset, progress.count, progress.size_bytes) == (5, 12, 3, 300)
    first, second, third = taken(progress, 3)
    assert (progress.waits, progress.last_offset) == (False, 9)
    assert progress.finish(second)
    assert progress.committed == 5
    assert progress.finish(first)
    assert (progress.committed, progress.count, progress.size_bytes) == (9, 1, 100)
    assert progress.finish(third)
    assert (progress.committed, progress.count, progress.last_offset) == (12, 0, 0), (
        "what was filtered counts"
    )


def test_messages_that_come_twice_are_taken_once() -> None:
    progress = QueueProgress(5)
    progress.add(messages(3, 4, 5), 6)
    progress.add(messages(5, 6), 7)
    assert [message.queue_offset for message in taken(progress, 2)] == [5, 6]
    assert not progress.waits
    progress.add([], 3)
    assert progress.next_offset == 7


def test_a_message_that_is_given_back_comes_before_later_ones() -> None:
    progress = QueueProgress(0)
    progress.add(messages(0, 1, 2, 3), 4)
    first, second, third = taken(progress, 3)
    assert progress.give_back(second) and progress.give_back(first)
    assert [message.queue_offset for message in taken(progress, 3)] == [0, 1, 3]
    assert progress.finish(third) and progress.committed == 0


@pytest.mark.parametrize("end", [QueueProgress.finish, QueueProgress.give_back])
def test_only_a_message_in_hand_is_finished_or_given_back(end: object) -> None:
    progress = QueueProgress(0)
    progress.add(messages(0, 1), 2)
    first = progress.take()
    (other,) = messages(0)
    assert not end(progress, other), "of an earlier reading of the queue"  # type: ignore[operator]
    assert end(progress, first)  # type: ignore[operator]
    assert not end(progress, first)  # type: ignore[operator]
