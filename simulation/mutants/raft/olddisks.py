"""Planted bugs of Raft members whose disks are set back to earlier images."""

from __future__ import annotations

from dataclasses import replace

from dledger.node.starts import Starts
from dledger.raft.actions import Action, Vote
from dledger.raft.raft import Raft
from dledger.raft.startnumbers import Start, StartNumbers
from dledger.storage.hardstate import StartsFile, TermFile
from simulation.kernel.plants import Bugs


def plant_old_disks_bugs(bugs: Bugs) -> None:
    bug = bugs.playing("old disks")
    stored_starts = StartsFile.store
    stored_vote = TermFile.store

    @bug("old-number-ignored", StartNumbers, "set_back")
    def old_number_ignored(self: StartNumbers) -> bool:
        return False

    @bug("heard-number-not-kept", StartsFile, "store")
    async def heard_number_not_kept(self: StartsFile, own: Start, numbers: StartNumbers) -> None:
        """A start does not know the start numbers that were received from other members."""
        await stored_starts(self, own, StartNumbers(numbers.self_id, numbers.own, {}, life=numbers.life))

    @bug("old-disk-votes-all-the-same", Starts, "_was_set_back")
    def old_disk_votes_all_the_same(self: Starts, core: Raft, sender: str) -> None:
        """The leader counts a set-back member, like a member that has no start number yet."""
        self.numbers.is_there = False

    set_back = Raft.set_back

    @bugs.bug("contradicted-for-long", Raft, "set_back", plays=("emptied-beside-a-stale-leader",))
    def once_is_enough(self: Raft, now_ms: int) -> list[Action]:
        """A recovering member that a leader contradicts draws one number after the other, for half an hour, and is ignored
        meanwhile."""
        return [] if self.rejoin.newcomer else set_back(self, now_ms)

    @bug("old-disk-forgotten", TermFile, "store")
    async def old_disk_forgotten(self: TermFile, vote: Vote) -> None:
        """The vote file does not say that the member is recovering, so the member votes after its next start, which has a new
        number."""
        await stored_vote(self, replace(vote, newcomer=False))
