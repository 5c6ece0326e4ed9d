"""Planted bugs of starts on a store whose tables are damaged, missing or of another log."""

from __future__ import annotations

from typing import Any

from broker.tables import journal
from broker.tables.delayoffsets import DelayOffsets
from broker.tables.journal import JournalRecord
from broker.tables.savedtable import SavedTable, TableUnreadable
from broker.tables.tables import Tables
from messagestore.dispatch.savedqueues import SavedQueues
from messagestore.store.brokerstore import BrokerStore
from remoting.bodies.offsets import DelayOffsetWrapper
from simulation.mutants.cluster.bugs import bug

table_loaded = SavedTable.load


@bug("damaged-tables-begin-empty", SavedTable, "load")
async def damaged_tables_begin_empty(self: SavedTable) -> bool:
    """A start takes a file that does not parse for a missing one."""
    try:
        return await table_loaded(self)
    except TableUnreadable:
        return False


@bug("lost-tables-begin-empty", Tables, "_refuse_missing")
def lost_tables_begin_empty(self: Tables, missing: list[SavedTable]) -> None:
    """A start believes that the tables it finds are all there were."""


@bug("journal-files-by-name", journal, "_in_order")
def journal_files_by_name(
    held: list[tuple[str, list[JournalRecord]]],
) -> list[tuple[str, list[JournalRecord]]]:
    """A file whose removal a power cut undid comes after the files that follow it, and the broker does not start."""
    return held


@bug("tables-not-remembered", SavedQueues, "note_tables")
def tables_not_remembered(self: SavedQueues) -> None:
    """No checkpoint records that there were tables, so the loss of all tables is not noticed."""


@bug("tables-noted-later", BrokerStore, "note_tables")
async def tables_noted_later(self: BrokerStore) -> None:
    """The note waits for the next message. Until one comes, the loss of all tables after a kill is not noticed."""
    self._saved.note_tables()


@bug("offsets-of-another-log-count", Tables, "_distrust_offsets")
async def offsets_of_another_log_count(self: Tables, log: Any) -> None:
    """Groups skip messages below the offsets in a file that belongs to another log."""


@bug("delay-offsets-of-another-log-count", DelayOffsets, "decode")
def delay_offsets_of_another_log_count(self: DelayOffsets, data: bytes) -> None:
    """Delayed messages below the offsets in a file that belongs to another log are never delivered."""
    self._wrapper = DelayOffsetWrapper.decode(data)
