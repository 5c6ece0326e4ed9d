"""Bugs of Raft-mode brokers whose disks are set back, planted as those of simulation.groups.bugs are."""

from __future__ import annotations

from dledger.raft.startnumbers import StartNumbers
from simulation.groups.bugs import BUGS

bug = BUGS.playing("old disks")


@bug("old-number-ignored", StartNumbers, "set_back")
def whatever_others_heard(self: StartNumbers) -> bool:
    """A broker whose disk is older than others have heard counts as whole."""
    return False
