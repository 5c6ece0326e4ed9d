"""All consume queues of a store, by (topic, queue id).

Invariant: a queue exists here from its first entry on. A queue that was never written has no files. Keys have the topic's
bytes, as records hold them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator, Sequence

from messagestore.errors import BadSegments, OtherSegmentSize
from messagestore.queues.consumequeue import ConsumeQueue, file_size_for
from messagestore.queues.ends import Key, OffsetSpan, QueueEnds
from messagestore.queues.openqueues import OpenQueues
from messagestore.record import TOPIC_BYTES_MAX
from mqruntime.segments import BadSegmentName, SegmentDirectory, check_component

FOLDER = "consumequeue"
LOADED_IN_A_SLICE = 32


class QueueTable:
    def __init__(self, directory: SegmentDirectory, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size_for(file_size)
        self._opened = OpenQueues(directory.open_max)
        self.broken: set[Key] = set()
        """Queues whose files are inconsistent, and were not opened."""
        self._kept_ends: dict[
            Key, int
        ] = {}  # ends of queues that list less, because retention deleted their messages
        self._kept_until = 0  # a cut below this log offset makes _kept_ends invalid
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._assigned_ends: dict[
            tuple[bytes, int], int
        ] = {}  # ends of queues whose messages were deleted before this log began
        self._lives: dict[str, int] = {}
        """By deleted topic: where the log ended at the deletion. If the topic exists again, its queues hide the older
        messages."""
        self._disk = asyncio.Lock()  # a sync and a truncation exclude each other
        self._unsynced: dict[tuple[bytes, int], None] | None = None  # None: any queue may be unsynced

    async def load(self, log_min: int, phy_limit: int, *, trusted: bool) -> None:
        """Open every queue on disk and drop entries of records that end above `phy_limit`. Raises OtherSegmentSize if these
        files were made with another setting, BadSegments for a file name that is no queue's, or OSError."""
        other: list[OtherSegmentSize] = []
        opened = 0
        for topic in self.directory.subdirectories():
            folder, encoded = self.directory.subdirectory(topic), topic.encode()
            for name in folder.subdirectories():
                if not name.isdigit():
                    continue
                queue = ConsumeQueue(
                    folder.subdirectory(name), self.file_size, topic, int(name), self._opened
                )
                self._queues[encoded, int(name)] = queue
                opened += 1
                if opened % LOADED_IN_A_SLICE == 0:
                    await asyncio.sleep(0)
                try:
                    await queue.load(log_min, phy_limit, trusted=trusted)
                except BadSegments as damage:
                    if isinstance(damage, OtherSegmentSize):
                        other.append(damage)
                    queue.leave_unopened()
                    self.broken.add((encoded, int(name)))
        if len(self.broken) == len(self._queues) and self._setting_is_wrong(other):
            raise other[0]

    def _setting_is_wrong(self, other: Sequence[OtherSegmentSize]) -> bool:
        """No queue could be opened. Several files of one size show that the setting was another; a single file is just
        corrupt."""
        return sum(found.files for found in other if found.size == other[0].size) > 1

    async def reset(self) -> None:
        """Delete all queues: the log was replaced by another one. Raises OSError."""
        for key in list(self._queues):
            await self._queues.pop(key).delete()

    async def discard(self, key: Key) -> None:
        """Delete the queue's files, so that the queue can be rebuilt. Raises OSError."""
        await self._queues.pop(key).delete()

    def drop_empty(self, keys: Iterable[Key]) -> None:
        """Drop the queues among `keys` that got no entry."""
        for key in keys:
            if key in self._queues and not self._queues[key].max_queue_offset:
                self._queues.pop(key).close()

    def keep_ends(self, ends: QueueEnds, *, but: Container[Key]) -> None:
        """Remember the end of each queue whose files list fewer offsets than the queue had assigned below `ends.position`,
        because its messages and files may have been deleted. The queues `but` are left out. If the log is cut below
        `ends.position`, these ends are forgotten."""
        self._kept_until = ends.position
        self._kept_ends = {
            key: span.end
            for key, span in ends.spans.items()
            if key not in but and self.end_of(*key) < span.end
        }

    def spans_at(self, phy: int) -> Iterator[tuple[Key, OffsetSpan]]:
        """For each queue, the queue offsets of its records that end at or below `phy`. If none are left, the offset after the
        last one that the queue once assigned."""
        for key, queue in list(self._queues.items()):
            if end := queue.end_at(phy):
                yield key, OffsetSpan(min(queue.min_queue_offset, end), end)
        for key, end in self._gone_ends().items():
            if key not in self._queues:
                yield key, OffsetSpan(end, end)

    def can_have(self, topic: bytes, queue_id: int) -> bool:
        """Whether a folder can have this queue's name."""
        try:
            check_component(topic.decode())
        except (UnicodeDecodeError, BadSegmentName):
            return False
        return queue_id >= 0 and len(topic) <= TOPIC_BYTES_MAX

    @property
    def by_key(self) -> dict[tuple[bytes, int], ConsumeQueue]:
        return self._queues

    def grew(self, keys: Iterable[tuple[bytes, int]]) -> None:
        """Note that these queues have entries that may not be on disk."""
        if self._unsynced is not None:
            self._unsynced |= dict.fromkeys(keys)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic.encode(), queue_id))

    def topic_begins_at(self, topic: str, phy: int) -> None:
        """Hide the records of `topic` that start below `phy`, because they belong to a deleted topic of that name. 0 hides no
        record. No queue offset is assigned twice."""
        if phy:
            self._lives[topic] = phy
        else:
            self._lives.pop(topic, None)

    def begin_of(self, topic: str) -> int:
        """The value set by `topic_begins_at`; 0 if none is set."""
        return self._lives.get(topic, 0)

    def first_of(self, queue: ConsumeQueue) -> int:
        """The queue offset of the first message that readers can get, now or later."""
        phy = self._lives.get(queue.topic)
        return queue.min_queue_offset if phy is None else queue.first_from(phy)

    def end_of(self, topic: bytes, queue_id: int) -> int:
        """The queue's next queue offset, as far as records are dispatched."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_queue_offset if queue else 0

    def begun(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """The queue; None if it never had an entry."""
        queue = self._queues.get((topic, queue_id))
        return queue if queue and queue.max_queue_offset else None

    def get(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """The queue, which is made (in memory) if it does not exist. None if no folder can have its name."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if not self.can_have(topic, queue_id):
                return None
            name = topic.decode()
            directory = self.directory.subdirectory(name).subdirectory(str(queue_id))
            queue = self._queues[topic, queue_id] = ConsumeQueue(
                directory, self.file_size, name, queue_id, self._opened
            )
        return queue

    def all(self) -> list[ConsumeQueue]:
        """All queues, sorted by topic and queue id."""
        return [self._queues[key] for key in sorted(self._queues)]

    def ends_at_least(self, topic: str, queue_id: int, end: int) -> None:
        """Record that this queue has assigned all offsets below `end`, whatever its files show."""
        key = topic.encode(), queue_id
        self._assigned_ends[key] = max(self._assigned_ends.get(key, 0), end)

    def known_end(self, topic: str, queue_id: int) -> int:
        """The end that is remembered for the queue; 0 if none is."""
        return max(
            self._assigned_ends.get((topic.encode(), queue_id), 0),
            self._kept_ends.get((topic.encode(), queue_id), 0),
        )

    def _gone_ends(self) -> dict[Key, int]:
        """Remembered ends of queues that may have no message any more."""
        ends = dict(self._assigned_ends)
        for key, end in self._kept_ends.items():
            ends[key] = max(ends.get(key, 0), end)
        return ends

    def emptied(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, next offset) of each queue that has assigned offsets and holds no message any more."""
        ends = self._gone_ends()
        for key, queue in self._queues.items():
            if queue.min_queue_offset == queue.max_queue_offset:
                ends[key] = max(ends.get(key, 0), queue.max_queue_offset)
            else:
                ends.pop(key, None)
        return [(topic.decode(), queue_id, end) for (topic, queue_id), end in sorted(ends.items()) if end]

    def begins(self) -> list[tuple[str, int, int]]:
        """The (topic, queue id, offset) of each queue's first remaining message, or of its next message if none remains."""
        listed = [
            (queue.topic, queue.queue_id, queue.min_queue_offset)
            for queue in self.all()
            if queue.min_queue_offset < queue.max_queue_offset
        ]
        return sorted(listed + self.emptied())

    def next_offsets(self) -> dict[tuple[bytes, int], int]:
        """The next queue offset of each queue, as far as records are dispatched."""
        next_offsets = {key: queue.max_queue_offset for key, queue in self._queues.items()}
        for key, end in self._gone_ends().items():
            next_offsets[key] = max(next_offsets.get(key, 0), end)
        return next_offsets

    def phy_end(self) -> int:
        """The end of the last record that any queue lists; 0 if there is none."""
        return max((queue.phy_end for queue in self._queues.values()), default=0)

    def phy_end_of(self, topic: bytes, queue_id: int) -> int:
        """The end of the last record that this queue lists; 0 if there is none."""
        queue = self._queues.get((topic, queue_id))
        return queue.phy_end if queue else 0

    def boundary_at_or_below(self, phy: int) -> int:
        """The greatest end of a listed record that is not above `phy`; -1 if there is none."""
        boundary = -1
        for queue in self._queues.values():
            if queue.phy_end > boundary:
                boundary = max(boundary, queue.boundary_at_or_below(phy))
        return boundary

    async def truncate(self, phy: int) -> None:
        """Drop the entries of records that end above `phy`."""
        if phy < self._kept_until:
            self._kept_ends.clear()
        async with self._disk:
            for key in sorted(self._queues):
                queue = self._queues[key]
                if queue.phy_end > phy:
                    self.grew([key])  # erased places must be synced too
                    await queue.truncate(phy)

    async def raise_min(self, log_min: int) -> None:
        """Start each queue at its first entry that is not below `log_min`, because the log is about to start there. Yields to
        other tasks."""
        for queue in self.all():
            queue.raise_min(log_min)
            await asyncio.sleep(0)

    async def lower_min(self, log_min: int) -> None:
        """Undo a `raise_min`, because the log still starts at `log_min`: messages that it has are listed again. Yields to other
        tasks."""
        for queue in self.all():
            queue.lower_min(log_min)
            await asyncio.sleep(0)

    async def delete_former(self) -> int:
        """Delete the files that hold only entries below their queue's first, and return how many. Raises OSError."""
        deleted = 0
        for queue in self.all():
            async with self._disk:
                deleted += await queue.delete_former()
            await asyncio.sleep(0)
        return deleted

    async def sync(self) -> None:
        """Sync every entry written before the call. Raises OSError when the disk fails."""
        async with self._disk:
            unsynced, self._unsynced = self._unsynced, {}
            try:
                keys = sorted(self._queues if unsynced is None else unsynced)
                queues = [queue for key in keys if (queue := self._queues.get(key)) is not None]
                if len(queues) > self.directory.synced_alone_max:
                    ends = [queue.max_queue_offset for queue in queues]
                    await self.directory.sync_below()
                    for queue, end in zip(queues, ends, strict=True):
                        queue.synced(end)
                else:
                    for queue in queues:
                        await queue.sync()
            except BaseException:
                self._unsynced = None
                raise

    def close(self) -> None:
        for queue in self.all():
            queue.close()
        self._queues.clear()
