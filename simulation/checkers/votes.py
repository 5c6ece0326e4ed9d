"""Checks the votes and terms of a cluster's controllers, and that they are on disk when they are sent.

Invariant: the rules of RaftCheck hold. In addition, when a vote reaches a candidate, the voter's term file contains that vote
or a newer term. RaftCheck's rule R2 is checked in the file here, and not in memory."""

from __future__ import annotations

from dledger.storage.keyvalues import parse_key_values
from simulation.cluster.looks import controller_app
from simulation.kernel.node import Node
from simulation.raft.check import RaftCheck


class VotesOnDisk(RaftCheck):
    """Checks votes. `voters` are the controllers' nodes by their id in the group."""

    def __init__(self, voters: dict[str, Node]) -> None:
        super().__init__()
        self.voters = voters
        self.core_numbers: dict[str, tuple[int, int]] = {}  # id -> (incarnation, core number)

    def voted(self, voter: str, term: int, candidate: str) -> None:
        super().voted(voter, term, candidate)
        name = f"dledger-{voter}/currterm"
        data = self.voters[voter].disk.content(name)
        values = parse_key_values(name, data) if data is not None else {}
        kept_term, kept_vote = int(values.get("currTerm", -1)), values.get("voteLeader") or None
        if kept_term < term or (kept_term == term and kept_vote != candidate):
            raise self.found(
                "R2", f"{voter} sent its vote for {candidate} in term {term}; its file has {values}"
            )

    def look_at_all(self) -> None:
        """Check terms, leaders and commits of the controllers that run."""
        if self.violation is not None:
            raise self.violation
        for member, node in self.voters.items():
            controller = controller_app(node)
            if controller is not None and controller.node.core is not None:
                incarnation, number = self.core_numbers.get(member, (0, 0))
                if incarnation != node.incarnation:
                    number = self.new_core(controller.node)
                    self.core_numbers[member] = (node.incarnation, number)
                self.look(number, controller.node)
