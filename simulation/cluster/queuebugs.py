"""Bugs of what a start believes of consume queues, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from messagestore.queues.endcheck import QueueCheck
from simulation.cluster.bugs import bug


@bug("queue-end-believed", QueueCheck, "run")
async def as_their_files_say(self: QueueCheck, listed_end: int, loaded_limit: int, *, believes: bool) -> None:
    """Upstream: a consume queue ends where its own files end."""
    self._queues.broken.clear()
