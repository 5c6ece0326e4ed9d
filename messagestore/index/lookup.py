"""Find records by key or tag: the index names candidates, and the records themselves are compared.

Invariant: every returned record has the requested topic and key (or tag), was stored in the requested time, and lies below the
confirm offset. The result fits into one reply."""

from __future__ import annotations

import asyncio

from messagestore import record
from messagestore.index.file import PAUSE
from messagestore.index.table import IndexTable
from messagestore.properties import dispatched_values
from messagestore.queues.reading import QueueReader

ANSWER_BYTES_MAX = 4 << 20  # the rest is left out, but at least one record is returned


class KeyLookup:
    """Reads records that the index lists."""

    def __init__(self, reader: QueueReader, index: IndexTable) -> None:
        self._reader = reader
        self._index = index

    async def find(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        begin: int,
        confirm_offset: int,
        *,
        by_tag: bool = False,
    ) -> list[memoryview]:
        """Records with `key` that were stored in [begin_ms, end_ms], newest first. `key` is a word of KEYS or the unique key
        or, with `by_tag`, the whole value of TAGS. Records that start below `begin`, where the topic was deleted, are left
        out."""
        found: list[memoryview] = []
        bytes_found = 0
        seen: set[int] = set()
        listed_end = self._index.phy_end  # entries listed later may be above the confirm offset
        for phy in self._index.find(topic, key, begin_ms, end_ms, by_tag=by_tag):
            if phy == PAUSE:
                await asyncio.sleep(0)  # a long chain: yield to other tasks
                continue
            if phy < begin or phy in seen:  # `KEYS=k k` is indexed twice
                continue
            content = await self._reader.record_at(phy, confirm_offset)
            if content is None and self._reader.holds(phy) and phy < listed_end:
                self._index.leads_nowhere(phy)
            if content is None or not _is_meant(
                content, phy, topic.encode(), key.encode(), begin_ms, end_ms, by_tag=by_tag
            ):
                continue
            seen.add(phy)
            if found and bytes_found + len(content) > ANSWER_BYTES_MAX:
                break
            found.append(content)
            bytes_found += len(content)
            if len(found) >= count_max:
                break
        return found


def _is_meant(
    content: memoryview, phy: int, topic: bytes, key: bytes, begin_ms: int, end_ms: int, *, by_tag: bool
) -> bool:
    facts = record.queue_facts(content, 0, len(content), phy)
    assert not isinstance(facts, int), f"the record at {phy} was whole a moment ago"
    if facts.topic != topic or not begin_ms <= facts.store_timestamp <= end_ms:
        return False
    tag, unique, keys = dispatched_values(facts.properties)
    if by_tag:
        return key == tag
    return key in keys.split(b" ") or key == unique
