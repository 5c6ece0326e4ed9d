"""Planted bugs of the message index: of its entries for tags, and of gaps that are filled while new records come in."""

from __future__ import annotations

import numpy as np

from messagestore.bulk.records import QueueRows, Records
from messagestore.bulk.texts import Texts, Values
from messagestore.dispatch.bulkentries import BulkEntries, Terms
from messagestore.dispatch.indexmending import IndexMending
from messagestore.dispatch.indexstart import IndexStart
from messagestore.index import lookup
from messagestore.index.table import ALL_TAGS, Gap, IndexTable
from simulation.mutants.cluster.bugs import bug


class Whatever(set[int]):
    """A set that contains everything."""

    def __contains__(self, value: object) -> bool:
        return True


all_terms = BulkEntries._terms
noted = IndexStart._note_tags
meant = lookup._is_meant
filled_gap = IndexMending._fill_gap


@bug("bulk-forgets-tags", BulkEntries, "_terms")
def bulk_forgets_tags(
    self: BulkEntries, records: Records, by_queue: QueueRows, texts: Texts, tags: Values
) -> Terms:
    """Records that are handled in bulk get entries as in 5.3.3, without tags."""
    nothing = np.zeros(len(records), np.bool_)
    return all_terms(self, records, by_queue, texts, tags._replace(given=nothing, odd=nothing))


@bug("tag-hash-is-enough", lookup, "_is_meant")
def tag_hash_is_enough(
    content: memoryview, phy: int, topic: bytes, key: bytes, begin_ms: int, end_ms: int, *, by_tag: bool
) -> bool:
    """Upstream: all records with the hash of a tag are returned, even those of another topic or another tag."""
    return by_tag or meant(content, phy, topic, key, begin_ms, end_ms, by_tag=by_tag)


@bug("untagged-files-believed", IndexStart, "_note_tags")
def untagged_files_believed(self: IndexStart, start: int) -> None:
    """Upstream: an index of an older version is searched for tags as if it had them."""
    noted(self, start)
    assert self._index is not None
    self._index.tags_since, self._index.asks_files = ALL_TAGS, False


@bug("gap-end-moves", IndexMending, "_fill_gap")
async def gap_end_moves(self: IndexMending, gap: Gap, end: int, changes: int) -> None:
    """A gap is filled up to the index's present end, so records that came meanwhile are indexed twice."""
    await filled_gap(self, gap, self.index.phy_end if gap.behind is None else end, changes)


@bug("listed-in-part-is-listed", IndexTable, "listed_in_part")
def listed_in_part_is_listed(self: IndexTable, gap: Gap) -> dict[int, set[int]]:
    """A record in any file counts as listed, although Java put its entries into two files and one of the files is lost."""
    return {gap.behind.begin_phy: Whatever()} if gap.behind is not None else {}
