"""Load on a log whose entries have the same positions on all members. Each body contains its entry's position, and now and then
the log's beginning moves up.

Invariant: the load's draws follow from the seed, and do not change the draws of other parts of the world."""

from __future__ import annotations

import random

from dledger.node.node import DLedgerNode
from dledger.raft.errors import NotLeader, OutcomeUnknown, TooManyProposals
from dledger.storage.entry import ENTRY_HEADER_BYTES
from simulation.kernel.node import Node
from simulation.raft.group import RaftGroup
from simulation.raft.member import MemberApp
from simulation.raft.positions import SAYS_BYTES, Placed, bodies_naming


class PlacedLoad:
    """The load. It `plays` if the group's settings say `same_positions`."""

    def __init__(self, group: RaftGroup, chance: random.Random) -> None:
        self.group = group
        self.random = chance
        self.plays = group.settings.same_positions
        self.count = 0
        """How many bodies were placed."""
        self.begun = 0
        """How many times the beginning of a log moved up."""

    def takes(self, node: Node, member: DLedgerNode, texts: list[bytes]) -> bool:
        """Whether this load, and not the world, proposes the bodies."""
        if not self.plays or self.random.random() < 0.3:
            return False
        node.spawn(self.place(node, member, texts))
        return True

    async def place(self, node: Node, member: DLedgerNode, texts: list[bytes]) -> None:
        app = node.app
        assert isinstance(app, MemberApp)
        sizes = [SAYS_BYTES + len(text) for text in texts]
        try:
            positions = member.reserve(sizes)
        except (NotLeader, TooManyProposals):
            return
        index, bodies = member.last_index + 1, list(bodies_naming(texts, positions))
        member.append_reserved(bodies)
        for at, (position, body) in enumerate(zip(positions, bodies, strict=True), index):
            app.placed.append(Placed(at, position + ENTRY_HEADER_BYTES + len(body), body))
        self.count += len(bodies)

    def turn(self) -> None:
        """Now and then, let a member know that the log before one of its files is no longer needed."""
        if not self.plays or self.random.random() > 0.05:
            return
        node = self.random.choice(self.group.nodes)
        member = self.group.member(node)
        if member is not None:
            size = member.data.file_bytes
            starts = range(member.log_begin() + size, member.readable()[1], size)
            if starts:
                node.spawn(self.begin(member, self.random.choice(starts)))

    async def begin(self, member: DLedgerNode, position: int) -> None:
        try:
            await member.advance_log_start(position)
            self.begun += 1
        except (OSError, OutcomeUnknown):
            pass
