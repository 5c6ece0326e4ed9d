"""Planted bugs in the checks of consume queues and index files at a start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from broker.sends.delaydelivery import DelayDelivery
from messagestore.dispatch import entrymending
from messagestore.dispatch.endcheck import QueueCheck
from messagestore.dispatch.entrymending import Due, DueEntries, EntryMending
from messagestore.dispatch.indexmending import IndexMending
from messagestore.dispatch.savedqueues import SavedQueues
from messagestore.errors import OtherSegmentSize
from messagestore.index.file import IndexFile
from messagestore.messages import QueueEntry
from messagestore.queues import reading
from messagestore.queues.consumequeue import ConsumeQueue
from messagestore.queues.ends import Key
from messagestore.queues.reading import QueueReader
from messagestore.queues.table import QueueTable
from messagestore.record import Message, decode
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("lost queues")


@bug("queue-end-believed", QueueCheck, "run")
async def queue_end_believed(self: QueueCheck, listed_end: int, loaded_limit: int, *, believes: bool) -> None:
    """Upstream: a consume queue ends where its own files end."""
    self._queues.broken.clear()


@bug("tags-before-a-corrupt-entry-stay", QueueCheck, "_reliable_end")
async def tags_before_a_corrupt_entry_stay(self: QueueCheck, queue: ConsumeQueue) -> int:
    """If bytes are overwritten from the tags code of an entry on, that entry stays, and a delayed message gets another time."""
    return await queue.intact_end()


names = QueueCheck._names


@bug("long-records-are-nobodys", QueueCheck, "_names")
async def long_records_are_nobodys(self: QueueCheck, phy: int, size: int) -> tuple[Key, int] | None:
    """A start reads the first bytes of a record, and the topic comes after the body: one lost file of a queue of long records
    has the whole queue deleted, and the whole log read for it."""
    return await names(self, phy, min(size, 512))


@bug("one-file-is-a-setting", QueueTable, "_setting_is_wrong")
def one_file_is_a_setting(self: QueueTable, other: Sequence[OtherSegmentSize]) -> bool:
    """If the only file of the only queue is cut short, the broker does not start until somebody changes a setting."""
    return bool(other)


@BUGS.playing("lost queues", "retention")("ends-older-than-the-log", SavedQueues, "ends_known_beyond")
async def some_megabytes_late(self: SavedQueues, offset: int) -> bool:
    """The ends of queues are remembered only every 8 MiB, and retention deletes the log before."""
    return True


@bug("swapped-queues-believed", QueueCheck, "_ends_at_home")
async def swapped_queues_believed(self: QueueCheck, key: Key, queue: ConsumeQueue) -> bool:
    """Any file whose entries follow each other is taken for its queue's own."""
    return True


@bug("single-entries-believed", QueueCheck, "_is_only_entry_foreign")
async def single_entries_believed(self: QueueCheck, key: Key, entry: tuple[int, int, int]) -> bool:
    """One record that names another queue proves nothing, and nobody asks for that queue's own entry."""
    return False


@bug("single-entries-served", QueueReader, "_is_elsewhere")
async def single_entries_served(self: QueueReader, key: Key, queue_offset: int, phy: int) -> bool:
    """A reader gets the message of another queue if it is the only one of its read."""
    return False


@bug("foreign-entries-served", ConsumeQueue, "is_doubtful")
def foreign_entries_served(self: ConsumeQueue, queue_offset: int, end: int) -> bool:
    """Upstream: a reader gets any record that an entry points to."""
    return False


strangers_of = reading._strangers


@bug("sizes-of-entries-believed", reading, "_strangers")
def sizes_of_entries_believed(
    queue: ConsumeQueue, listed: list[reading.Listed], buffers: list[memoryview]
) -> list[tuple[reading.Listed, int, Key | None]]:
    """Upstream: a reader gets as many bytes as the entry says."""
    return [each for each in strangers_of(queue, listed, buffers) if each[2] is not None]


@bug("tags-codes-believed", EntryMending, "_is_wrong")
def tags_codes_believed(self: EntryMending, key: Key, due: Due) -> bool:
    """Upstream: a reader by tag skips a message because of its entry, and nobody reads the message."""
    return False


due_of = DueEntries.get


@bug("due-times-are-tags-codes", DueEntries, "get")
def due_times_are_tags_codes(self: DueEntries, topic: bytes, queue_id: int) -> Any:
    """A delayed message waits as long as its level says today, not as long as it said when the message was sent."""
    with patch.object(entrymending, "SCHEDULE_TOPIC_BYTES", b""):
        return due_of(self, topic, queue_id)


@bug("rotten-tags-spread", EntryMending, "_is_intact")
async def rotten_tags_spread(self: EntryMending, due: Due) -> bool:
    """A record whose tag is corrupt, as its CRC shows, counts more than its entry."""
    return True


@bug("another-levels-message", DelayDelivery, "_record_of")
async def another_levels_message(self: DelayDelivery, entry: QueueEntry, queue_id: int) -> Message | None:
    """If an entry points to a message of another level, that message is delivered early and twice, and the right message
    never."""
    content = await self._store.message_at(entry.physical_offset, entry.size)
    return None if content is None else decode(content, verify_body=False)


@bug("due-as-the-entry-says", DelayDelivery, "_is_early")
def due_as_the_entry_says(
    self: DelayDelivery, level: int, queue_offset: int, entry: QueueEntry, waiting: Message
) -> bool:
    """Upstream: the time in a queue entry counts, whatever the record says."""
    return False


@bug("index-files-believed", IndexMending, "_content_fault")
async def index_files_believed(self: IndexMending, file: IndexFile) -> str | None:
    """Upstream: nobody checks the entries of an index file."""
    return None


@bug("index-gaps-stay", IndexMending, "_fill")
async def index_gaps_stay(self: IndexMending) -> None:
    """A damaged file is deleted, but its records are not indexed again."""
    self.fills = False
