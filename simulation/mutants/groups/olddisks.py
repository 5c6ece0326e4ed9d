"""Bugs of Raft-mode brokers whose disks are set back."""

from __future__ import annotations

from dledger.raft.startnumbers import StartNumbers
from simulation.mutants.groups.bugs import BUGS

bug = BUGS.playing("old disks")


@bug("old-number-ignored", StartNumbers, "set_back")
def old_number_ignored(self: StartNumbers) -> bool:
    """A broker counts as complete though others have received a newer number of its starts."""
    return False
