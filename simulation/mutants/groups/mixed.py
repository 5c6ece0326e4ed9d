"""Planted bugs of Raft-mode sets whose DLedger log follows the plain commit log of a former broker."""

from __future__ import annotations

from mqruntime.segments import SegmentFile
from raftstore.divide import Divide
from raftstore.formerlog import FormerLog, Piece
from raftstore.oldlog import OldLog
from simulation.mutants.groups.bugs import BUGS

bug = BUGS.playing("plain log before")


@bug("any-plain-log-will-do", Divide, "description")
def any_plain_log_will_do(self: Divide) -> str:
    """Members with different plain logs are not distinguished."""
    return "commitlog"


@bug("first-file-is-not-copied", FormerLog, "_copy")
async def first_file_is_not_copied(self: FormerLog, start: int, size: int, piece: Piece) -> None:
    """A member without a log gets an empty first file, because only the last file is compared."""
    if self.log.files:
        await copy(self, start, size, piece)
    else:
        self.log.create(start)


copy = FormerLog._copy


@bug("old-files-go-a-file-early", OldLog, "delete_below")
async def old_files_go_a_file_early(self: OldLog, offset: int) -> list[SegmentFile]:
    """The next file is deleted with the old ones."""
    return await delete_below(self, offset + self._segment_size if offset > self.first else offset)


delete_below = OldLog.delete_below
