"""The offset from which a starting store fills its index, and the offset from which on the index has tags.

Invariant: while an index is partial, the checkpoint on disk says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from messagestore.checkpoint import INDEX_PARTIAL, Checkpoint
from messagestore.dispatch.indexmending import IndexMending
from messagestore.index.table import ALL_TAGS, TagsSince
from messagestore.log.files import LogFiles


class IndexStart:
    """`index_lost()` writes to the checkpoint on disk that the index is partial."""

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
        """Open the index for the dispatch position `dispatched`, and return the offset from which the caller gives it records.
        If there is no file (the store had no index, or an index of another geometry), older records are missing, and
        IndexMending adds them while the store runs. Before the first file is deleted, the checkpoint says that the index is
        partial, so a later start does not rely on the files of an interrupted start. A store that never dispatched or
        confirmed anything writes no checkpoint, because the disk may be too full for it."""
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
        """Note from which record on the index has tags. Records indexed from `start` on have their tags. For older records the
        checkpoint says where tags begin. If the checkpoint is of an older version or of Java, IndexMending samples the files
        while the store runs."""
        assert self._index is not None and self._mending is not None
        first = max(start, self._index.phy_end) if self._index.exists else 0
        own = self._mending.own_tags = TagsSince(first, self._now_ms()) if first else ALL_TAGS
        said = self._checkpoint.tags_since
        if said is not None and said[0] < first:
            self._index.tags_since = TagsSince(*said)
        else:
            self._index.tags_since = own
            self._index.asks_files = said is None and first > 0
