"""Planted bugs of retention, which deletes old segments."""

from __future__ import annotations

from broker.sends.delaydelivery import DelayDelivery
from ha.service.haservice import HAService
from messagestore.dispatch.savedqueues import SavedQueues
from messagestore.log import commitlog
from messagestore.log.files import LogFiles
from messagestore.queues.consumequeue import ConsumeQueue
from messagestore.queues.table import QueueTable
from messagestore.record import RECORD_SIZE_MIN, store_timestamp
from messagestore.store.trimming import Trimming
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("retention")


@bug("deletes-what-no-checkpoint-vouches-for", Trimming, "vouched_offset")
def deletes_what_no_checkpoint_vouches_for(self: Trimming) -> int:
    """Upstream: only age and disk usage decide."""
    return self._log.flushed_offset


@bug("deletes-what-no-checkpoint-vouches-for", SavedQueues, "ends_known_beyond")
async def deletes_what_no_checkpoint_vouches_for_2(self: SavedQueues, offset: int) -> bool:
    """The second part of the bug: the ends of queues, which also need a checkpoint, do not hold the deletion back."""
    return True


@bug("deletes-under-a-link", HAService, "read_from")
def deletes_under_a_link(self: HAService) -> int | None:
    """Segments are deleted that a slave still needs to catch up."""
    return None


@bug("deletes-undelivered", DelayDelivery, "first_undelivered")
def deletes_undelivered(self: DelayDelivery) -> int | None:
    """A delayed message that cannot be delivered for a while is deleted with its segment."""
    return None


@bug("queues-hide-what-a-late-hold-keeps", QueueTable, "lower_min")
async def queues_hide_what_a_late_hold_keeps(self: QueueTable, log_min: int) -> None:
    """If a hold comes while queues move up, the log is kept, but readers do not find the messages in it."""


@BUGS.bug("store-times-are-believed", commitlog, "first_time", plays=("rotten store times",))
async def whatever_it_says(log: LogFiles, offset: int, end: int) -> int | None:
    """The age of a segment is read from the next record without checking that record."""
    if offset + RECORD_SIZE_MIN > end:
        return None
    return store_timestamp(await log.read_cold(offset, RECORD_SIZE_MIN), 0) or None


@bug("queue-begins-with-what-is-gone", ConsumeQueue, "raise_min")
def queue_begins_with_what_is_gone(self: ConsumeQueue, log_min: int) -> None:
    """The log's beginning moves up, but the queues' beginnings do not."""
