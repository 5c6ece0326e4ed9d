"""The term and the vote on disk: `currterm`, in DLedger's own format.

Invariant: what `store` was given is durable when it returns, so a vote that was told cannot be forgotten; and it says among
which members it was given."""

from __future__ import annotations

from dledger.raft.actions import Vote
from dledger.raft.errors import MembersChanged
from dledger.raft.termbound import TERM_COUNTED_MAX
from dledger.storage.keyvalues import BadKeyValues, parse_key_values, whole_number
from mqruntime.smallfiles import SmallFiles

NEWCOMER = "newcomer"
"""A key of ours, written until this member may vote; Java ignores it."""
MEMBERS = "members"
"""A key of ours; files of Java, and of our first versions, have none."""


class TermFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/currterm'."""

    def __init__(self, files: SmallFiles, name: str, members: str) -> None:
        """`members` are the ids of the group, with commas; empty: not to be recorded, whoever starts with the file tells."""
        self.files = files
        self.name = name
        self.members = members
        self.recorded = members
        """With whom the vote that was loaded was given."""
        self.term = 0
        """The one on the disk: this member has told it, or may."""

    async def load(self) -> Vote | None:
        """None when there is no such file. Raises BadKeyValues when there is one that cannot be read."""
        data = await self.files.read(self.name)
        if data is None:
            return None
        values = parse_key_values(self.name, data)
        term = whole_number(self.name, values, "currTerm", least=0)
        if term > TERM_COUNTED_MAX:
            raise BadKeyValues(self.name, f"currTerm={term} is a term that no election reaches")
        self.recorded = values.get(MEMBERS, self.members)
        self.term = term
        return Vote(term, values.get("voteLeader") or None, values.get(NEWCOMER) == "true")

    def check_members(self) -> None:
        """Raises MembersChanged. Not to be asked where the log says, and that is decided, who the members are."""
        if self.recorded != self.members:
            raise MembersChanged(self.name, self.recorded, self.members)

    async def store(self, vote: Vote) -> None:
        """Raises OSError; then the vote must not be told."""
        assert vote.term <= TERM_COUNTED_MAX, "a term that no election reaches is not to be kept"
        lines = [f"voteLeader={vote.voted_for or ''}", f"currTerm={vote.term}"]
        if self.members:
            lines.append(f"{MEMBERS}={self.members}")
        if vote.newcomer:
            lines.append(f"{NEWCOMER}=true")
        await self.files.replace(self.name, ("\n".join(lines) + "\n").encode())
        self.term = vote.term
