"""A sync covers only consume queues that have grown or were truncated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.queues.consumequeue import ConsumeQueue
from messagestore.queues.table import QueueTable
from messagestore.record import QueueFacts
from mqruntime.segments import RealSegmentDirectory

LEVELS = "1s 5s"
SIZE = 100


class Scene:
    def __init__(self, root: Path) -> None:
        self.queues = QueueTable(RealSegmentDirectory(root), 4_000)
        self.dispatcher = Dispatcher(self.queues, LEVELS)
        self.synced: list[str] = []

    def put(self, *topics: str, taken: bool = True) -> None:
        """Dispatch one step, which announces grown queues at its end."""
        for topic in topics:
            queue_offset = self.queues.end_of(topic.encode(), 0)
            position = self.dispatcher.position
            self.dispatcher.put(position, QueueFacts(SIZE, topic.encode(), 0, queue_offset, 0, 1, b""))
        if taken:
            self.dispatcher.take_grown()

    def sync(self) -> list[str]:
        """The topics whose queues were synced."""
        del self.synced[:]
        sync = ConsumeQueue.sync

        async def seen(queue: ConsumeQueue) -> None:
            self.synced.append(queue.topic)
            await sync(queue)

        self.dispatcher.note_grown()
        with patch.object(ConsumeQueue, "sync", seen):
            asyncio.run(self.queues.sync())
        return [*self.synced]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.queues.close()


def test_idle_queues_are_not_synced(scene: Scene) -> None:
    scene.put("a", "b", "c")
    assert scene.sync() == ["a", "b", "c"]
    assert scene.sync() == []
    scene.put("b")
    assert scene.sync() == ["b"]


def test_a_queue_that_was_not_announced_yet_is_synced(scene: Scene) -> None:
    """As after a step that a full disk interrupted."""
    scene.sync()
    scene.put("a", "b", taken=False)
    assert scene.sync() == ["a", "b"]


def test_a_truncated_queue_is_synced(scene: Scene) -> None:
    scene.put("a", "b", "a")
    scene.sync()
    asyncio.run(scene.queues.truncate(2 * SIZE))
    assert scene.sync() == ["a"]


def test_after_a_failed_sync_all_queues_are_synced(scene: Scene) -> None:
    scene.put("a", "b")
    scene.sync()
    scene.put("b")
    with (
        patch.object(ConsumeQueue, "sync", side_effect=OSError(5, "Input/output error")),
        pytest.raises(OSError, match="Input/output"),
    ):
        asyncio.run(scene.queues.sync())
    assert scene.sync() == ["a", "b"]
