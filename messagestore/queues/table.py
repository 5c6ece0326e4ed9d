"""All consume queues of a store, by (topic, queue id).

Invariant: a queue exists here from its first entry on; one that was never written has no files. Keys are the topic's
bytes, as records hold them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator

from messagestore.errors import BadSegments
from messagestore.queues.consumequeue import ConsumeQueue, file_size_for
from messagestore.queues.ends import Key, QueueEnds, Span
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
        """Queues whose files do not fit each other, and were not opened."""
        self._kept_ends: dict[
            Key, int
        ] = {}  # of queues that list less, for their messages went with old segments
        self._kept_until = 0  # a cut below this place of the log makes them unknown
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._told_ends: dict[
            tuple[bytes, int], int
        ] = {}  # of queues whose messages were gone before this log began
        self._lives: dict[str, int] = {}
        """By topic that was deleted: where the log ended then. Its queues go on, without what stands below."""
        self._disk = asyncio.Lock()  # a sync and a truncation exclude each other
        self._unsynced: dict[tuple[bytes, int], None] | None = None  # None: any may be

    async def load(self, log_min: int, phy_limit: int, *, trusted: bool) -> None:
        """Opens every queue on disk and drops entries of records that end above `phy_limit`. BadSegments where no queue's files
        are as the settings say, or one has a name that is none; OSError."""
        refused: BadSegments | None = None
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
                    refused = refused or damage
                    queue.leave_unopened()
                    self.broken.add((encoded, int(name)))
        if refused is not None and len(self.broken) == len(self._queues):
            raise refused

    async def begin_anew(self) -> None:
        """Of a log that is another one than these queues are of: they go. OSError."""
        for key in list(self._queues):
            await self._queues.pop(key).delete()

    async def discard(self, key: Key) -> None:
        """The queue is to be built anew: its files go. OSError."""
        await self._queues.pop(key).delete()

    def drop_empty(self, keys: Iterable[Key]) -> None:
        """Of these queues, those that have no file after all."""
        for key in keys:
            if key in self._queues and not self._queues[key].max_queue_offset:
                self._queues.pop(key).close()

    def keep_ends(self, ends: QueueEnds, *, but: Container[Key]) -> None:
        """What queues, `but` these, gave out below `ends.position` that their files do not tell, until the log is cut below
        that: their messages, and the files with them, may have been deleted."""
        self._kept_until = ends.position
        self._kept_ends = {
            key: span.end
            for key, span in ends.spans.items()
            if key not in but and self.end_of(*key) < span.end
        }

    def spans_at(self, phy: int) -> Iterator[tuple[Key, Span]]:
        """The queue offsets that each queue lists of records that end at or below `phy`, or that it once gave out."""
        for key, queue in list(self._queues.items()):
            if end := queue.end_at(phy):
                yield key, Span(min(queue.min_queue_offset, end), end)
        for key, end in self._gone_ends().items():
            if key not in self._queues:
                yield key, Span(end, end)

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
        """These have entries that may not be on disk."""
        if self._unsynced is not None:
            self._unsynced |= dict.fromkeys(keys)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic.encode(), queue_id))

    def topic_begins_at(self, topic: str, phy: int) -> None:
        """Records of `topic` that start below `phy` are of a life that is over: nobody reads them in its queues. 0: all count.
        No offset is given out again."""
        if phy:
            self._lives[topic] = phy
        else:
            self._lives.pop(topic, None)

    def begin_of(self, topic: str) -> int:
        """What `topic_begins_at` said; 0 for nothing."""
        return self._lives.get(topic, 0)

    def first_of(self, queue: ConsumeQueue) -> int:
        """The queue offset of the first message that its readers get, or that will be the first."""
        phy = self._lives.get(queue.topic)
        return queue.min_queue_offset if phy is None else queue.first_from(phy)

    def end_of(self, topic: bytes, queue_id: int) -> int:
        """The queue offset that the queue gives out next, as far as it is dispatched."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_queue_offset if queue else 0

    def begun(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had an entry."""
        queue = self._queues.get((topic, queue_id))
        return queue if queue and queue.max_queue_offset else None

    def get(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """The queue, made (in memory) when it does not exist; None when no folder can have its name."""
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
        """Sorted by topic and queue id."""
        return [self._queues[key] for key in sorted(self._queues)]

    def ends_at_least(self, topic: str, queue_id: int, end: int) -> None:
        """This queue has given out all offsets below `end`, whatever is left of it here."""
        key = topic.encode(), queue_id
        self._told_ends[key] = max(self._told_ends.get(key, 0), end)

    def told_end(self, topic: str, queue_id: int) -> int:
        """What `ends_at_least` said; 0 for nothing."""
        return max(
            self._told_ends.get((topic.encode(), queue_id), 0),
            self._kept_ends.get((topic.encode(), queue_id), 0),
        )

    def _gone_ends(self) -> dict[Key, int]:
        """Of queues that may have no message any more."""
        ends = dict(self._told_ends)
        for key, end in self._kept_ends.items():
            ends[key] = max(ends.get(key, 0), end)
        return ends

    def emptied(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, next offset) of each queue that has given out offsets and holds no message any more."""
        ends = self._gone_ends()
        for key, queue in self._queues.items():
            if queue.min_queue_offset == queue.max_queue_offset:
                ends[key] = max(ends.get(key, 0), queue.max_queue_offset)
            else:
                ends.pop(key, None)
        return [(topic.decode(), queue_id, end) for (topic, queue_id), end in sorted(ends.items()) if end]

    def begins(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, offset) of the first message that is left of each queue, or that will be its next one."""
        listed = [
            (queue.topic, queue.queue_id, queue.min_queue_offset)
            for queue in self.all()
            if queue.min_queue_offset < queue.max_queue_offset
        ]
        return sorted(listed + self.emptied())

    def next_offsets(self) -> dict[tuple[bytes, int], int]:
        """The queue offset that each queue gives out next, as far as it is dispatched."""
        next_offsets = {key: queue.max_queue_offset for key, queue in self._queues.items()}
        for key, end in self._gone_ends().items():
            next_offsets[key] = max(next_offsets.get(key, 0), end)
        return next_offsets

    def phy_end(self) -> int:
        """End of the last record that any queue knows; 0 when there is none."""
        return max((queue.phy_end for queue in self._queues.values()), default=0)

    def phy_end_of(self, topic: bytes, queue_id: int) -> int:
        """End of the last record that one queue knows; 0 when there is none."""
        queue = self._queues.get((topic, queue_id))
        return queue.phy_end if queue else 0

    def boundary_at_or_below(self, phy: int) -> int:
        """The greatest record end not above `phy` that any queue knows; -1 when there is none."""
        boundary = -1
        for queue in self._queues.values():
            if queue.phy_end > boundary:
                boundary = max(boundary, queue.boundary_at_or_below(phy))
        return boundary

    async def truncate(self, phy: int) -> None:
        """Drops the entries of records that end above `phy`."""
        if phy < self._kept_until:
            self._kept_ends.clear()
        async with self._disk:
            for key in sorted(self._queues):
                queue = self._queues[key]
                if queue.phy_end > phy:
                    self.grew([key])  # what is erased is to be on disk, too
                    await queue.truncate(phy)

    async def raise_min(self, log_min: int) -> None:
        """The log is to start at `log_min`: each queue starts at its first entry that is not below. Others run in between."""
        for queue in self.all():
            queue.raise_min(log_min)
            await asyncio.sleep(0)

    async def delete_former(self) -> int:
        """Deletes the files that hold only entries below their queue's first; how many. OSError."""
        deleted = 0
        for queue in self.all():
            async with self._disk:
                deleted += await queue.delete_former()
            await asyncio.sleep(0)
        return deleted

    async def sync(self) -> None:
        """Every entry written before the call is on disk on return; OSError when the disk fails."""
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
