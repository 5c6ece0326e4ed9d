"""Where the index of a store that starts has to be filled from, and from where on it has tags.

Invariant: while an index is partial the checkpoint on disk says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from messagestore.checkpoint import INDEX_PARTIAL, Checkpoint
from messagestore.index.mending import IndexMending
from messagestore.index.table import ALL_TAGS, TagsSince
from messagestore.log.files import LogFiles


class IndexStart:
    """After `index_lost()` the checkpoint on disk says that the index is partial."""

    def __init__(
        self,
        log: LogFiles,
        mending: IndexMending | None,
        checkpoint: Checkpoint,
        index_lost: Callable[[], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._log = log
        self._mending = mending
        self._index = None if mending is None else mending.index
        self._checkpoint = checkpoint
        self._index_lost = index_lost
        self._now_ms = now_ms

    async def found(self, dispatched: int, *, trusted: bool) -> int:
        """Opens the index as of `dispatched`; from where on it has to be given the records. Without any file, because the store
        had no index so far or one of another geometry, nothing below is in it: that is filled while the store runs, as what is
        missing otherwise, see IndexMending. Before the first file goes the checkpoint says so: what a start that was killed on
        the way left is vouched for by nothing, and after a power cut none of it is kept. Where nothing was dispatched and
        nothing is vouched for it need not, and a disk may be too full for it."""
        if self._index is None or self._mending is None:
            return dispatched
        if self._log.has_segments and not self._index.fits:
            await self._index_lost()
        partial = self._checkpoint.index_msg_timestamp == INDEX_PARTIAL
        await self._index.load(
            self._log.min_offset if partial and not trusted else dispatched, trusted=trusted
        )
        checkpoint, begin = self._checkpoint, self._log.min_offset
        never_filled = checkpoint.ours and dispatched == begin >= checkpoint.confirm_phy_offset
        if not self._index.exists and self._log.has_segments and not never_filled:
            await self._index_lost()
        start = await self._mending.joins(dispatched)
        self._note_tags(start)
        return start

    def _note_tags(self, start: int) -> None:
        """What is indexed from here on has its tags. Of what is there already the checkpoint says from where on, unless it is
        of an older version or of Java: then the files are asked while the store runs, see IndexMending."""
        assert self._index is not None and self._mending is not None
        first = max(start, self._index.phy_end) if self._index.exists else 0
        own = self._mending.own_tags = TagsSince(first, self._now_ms()) if first else ALL_TAGS
        said = self._checkpoint.tags_since
        if said is not None and said[0] < first:
            self._index.tags_since = TagsSince(*said)
        else:
            self._index.tags_since = own
            self._index.asks_files = said is None and first > 0
