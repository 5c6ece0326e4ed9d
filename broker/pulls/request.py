"""A pull: the header of the request and the filter of its subscription. It exists as long as the pull may be held."""

from __future__ import annotations

from dataclasses import dataclass

from messagestore.messages import PropertyFilter, TagFilter
from remoting.command import RemotingCommand


@dataclass(slots=True)
class PullRequest:
    """`offset` is the queue offset to read from. It increases while a held pull skips unwanted messages."""

    command: RemotingCommand
    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    bytes_max: int
    filter: TagFilter | None
    arrived_ms: int  # monotonic
    held: bool = False  # the pull had to wait
    moved: bool = False  # the offset moved past messages that the filter rejects
    matching: PropertyFilter | None = None  # used instead of `filter`
    characters: int = 0  # of the text of its filter, if the filter may be kept for this pull alone

    @property
    def queue(self) -> tuple[str, int]:
        return self.topic, self.queue_id
