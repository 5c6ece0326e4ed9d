"""Bugs planted into a log whose entries have the same positions on all members, and into the snapshot that replaces its
beginning. They are in addition to simulation.mutants.raft.bugs.

Invariant: each bug removes one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dledger.node.node import DLedgerNode
from dledger.node.proposals import Proposals
from dledger.raft.entries import Block, block_of
from dledger.raft.snapshot import Snapshot
from dledger.storage.entrylog import EntryLog
from dledger.storage.snapshot import Origin
from dledger.storage.snapshotfile import SnapshotFile
from dledger.storage.store import Store
from simulation.kernel.plants import Bugs


def moved(bodies: Sequence[bytes] | Block, term: int) -> Sequence[bytes] | Block:
    """A block with its term replaced by `term`."""
    if not isinstance(bodies, Block):
        return bodies
    return block_of(term, [bodies.body(number) for number in range(len(bodies))])


def plant_positions_bugs(bugs: Bugs) -> None:
    bug = bugs.playing("positions")

    cut = EntryLog.cut
    stored_snapshot = SnapshotFile.store
    all_gathered = Proposals.append

    @bug("closes-a-file-that-others-go-on-in", Store, "reclaim")
    async def closes_a_file_that_others_go_on_in(self: Store) -> None:
        assert self.log is not None
        await self.log.delete_before()
        await self.log.close_file()

    @bug("restarts-at-its-own-end", Store, "begin_of")
    def restarts_at_its_own_end(self: Store, log: EntryLog, snapshot: Snapshot) -> int:
        return log.data.end

    @bug("cut-keeps-the-blank", EntryLog, "cut")
    async def cut_keeps_the_blank(self: EntryLog, count: int) -> None:
        """An entry that replaces the first entry of a file also begins that file, however small it is."""
        kept = self.kept

        def where_it_begins(count: int) -> tuple[int, int]:
            return self.stored_unit(count).position, kept(count)[1]

        self.kept = where_it_begins  # type: ignore[method-assign]
        try:
            await cut(self, count)
        finally:
            del self.__dict__["kept"]

    @bug("readable-before-durable", DLedgerNode, "_look_at_readable")
    def readable_before_durable(self: DLedgerNode) -> None:
        """An entry is readable before this member has it durably, because other members have it."""
        placing = self._positions
        decided = min(self._applier.committed_index, self.core.log.last_index if self.core else -1)
        if placing is not None and placing.reached(decided):
            self.listener.readable_to(placing.readable[1])

    @bug("lands-in-a-later-term", Proposals, "append")
    def lands_in_a_later_term(self: Proposals, first_index: int, term: int) -> list[bytes | Block]:
        """A leader appends entries that were placed behind the end of another log."""
        self._gathered = [
            replace(each, term=term, bodies=moved(each.bodies, term)) for each in self._gathered
        ]
        return all_gathered(self, first_index, term)

    @bug("void-files-count", SnapshotFile, "store")
    async def void_files_count(self: SnapshotFile, snapshot: Snapshot, origin: Origin) -> None:
        """Files of a replaced log, which a crash may leave after a snapshot, count as part of the log."""
        await stored_snapshot(self, replace(snapshot, replaces_files=False), origin)

    @bug("cut-in-the-page-cache", EntryLog, "erase_again")
    def cut_in_the_page_cache(self: EntryLog) -> None:
        """Entries that a killed process has erased but not synced are taken for durably erased."""
