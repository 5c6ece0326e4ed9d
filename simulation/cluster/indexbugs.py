"""Planted bugs of the index entries of tags."""

from __future__ import annotations

import numpy as np

from messagestore.bulk.entries import BulkEntries, Terms
from messagestore.bulk.records import QueueRows, Records
from messagestore.bulk.texts import Texts, Values
from messagestore.index import lookup
from messagestore.index.beginning import IndexStart
from messagestore.index.table import ALL_TAGS
from simulation.cluster.bugs import bug

all_terms = BulkEntries._terms
noted = IndexStart._note_tags
meant = lookup._is_meant


@bug("bulk-forgets-tags", BulkEntries, "_terms")
def without_tags(
    self: BulkEntries, records: Records, by_queue: QueueRows, texts: Texts, tags: Values
) -> Terms:
    """Entries of many records at once are those that 5.3.3 made."""
    nothing = np.zeros(len(records), np.bool_)
    return all_terms(self, records, by_queue, texts, tags._replace(given=nothing, odd=nothing))


@bug("tag-hash-is-enough", lookup, "_is_meant")
def of_any_topic(
    content: memoryview, phy: int, topic: bytes, key: bytes, begin_ms: int, end_ms: int, *, by_tag: bool
) -> bool:
    """Upstream: what has the hash of a tag is answered, another topic's or another tag's, too."""
    return by_tag or meant(content, phy, topic, key, begin_ms, end_ms, by_tag=by_tag)


@bug("untagged-files-believed", IndexStart, "_note_tags")
def all_have_tags(self: IndexStart, start: int) -> None:
    """Upstream: an index that an older version wrote is asked for tags as if it had them."""
    noted(self, start)
    assert self._index is not None
    self._index.tags_since, self._index.asks_files = ALL_TAGS, False
