"""Planted bugs in the handling of reads that fail."""

from __future__ import annotations

from messagestore.log.files import LogFiles
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("bad sectors")


@bug("unread-reads-as-zeros", LogFiles, "read_file")
async def unread_reads_as_zeros(self: LogFiles, offset: int, end: int) -> bytes:
    """After a failed read, whatever is in the buffer is used."""
    try:
        return await read_file(self, offset, end)
    except OSError:
        return bytes(end - offset)


read_file = LogFiles.read_file
