"""Bugs of retention, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from broker.sends.delaydelivery import DelayDelivery
from ha.service import HAService
from messagestore.log import commitlog
from messagestore.log.files import LogFiles
from messagestore.queues.consumequeue import ConsumeQueue
from messagestore.record import RECORD_SIZE_MIN, store_timestamp
from messagestore.trimming import Trimming
from simulation.cluster.bugs import BUGS

bug = BUGS.playing("retention")


@bug("deletes-what-no-checkpoint-vouches-for", Trimming, "vouched_offset")
def whatever_is_flushed(self: Trimming) -> int:
    """Upstream: age and disk alone decide."""
    return self._log.flushed_offset


@bug("deletes-under-a-link", HAService, "read_from")
def nobody_reads(self: HAService) -> int | None:
    """A slave that catches up loses the ground under its feet."""
    return None


@bug("deletes-undelivered", DelayDelivery, "first_undelivered")
def all_delivered(self: DelayDelivery) -> int | None:
    """A delayed message that cannot be delivered for a while goes with its segment."""
    return None


@BUGS.bug("store-times-are-believed", commitlog, "first_time", plays=("rotten store times",))
async def whatever_it_says(log: LogFiles, offset: int, end: int) -> int | None:
    """A segment is as old as the record behind it reads."""
    if offset + RECORD_SIZE_MIN > end:
        return None
    return store_timestamp(await log.read_cold(offset, RECORD_SIZE_MIN), 0) or None


@bug("queue-begins-with-what-is-gone", ConsumeQueue, "raise_min")
def stays_where_it_was(self: ConsumeQueue, log_min: int) -> None:
    """The log begins later, the queue does not."""
