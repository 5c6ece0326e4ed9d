"""Planted bugs of Raft-mode brokers whose disks are set back to an earlier image."""

from __future__ import annotations

from dledger.raft.startnumbers import StartNumbers
from simulation.mutants.groups.bugs import BUGS

bug = BUGS.playing("old disks")


@bug("old-number-ignored", StartNumbers, "set_back")
def old_number_ignored(self: StartNumbers) -> bool:
    """A broker counts as complete although other members have received a newer start number of it."""
    return False
