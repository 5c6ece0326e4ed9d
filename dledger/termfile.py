"""The term and the vote on disk: `currterm`, in DLedger's own format.

Invariant: what `store` was given is durable when it returns, so a vote that was told cannot be forgotten."""

from __future__ import annotations

from dledger.actions import Vote
from dledger.keyvalues import BadKeyValues, parse_key_values, whole_number
from dledger.termbound import TERM_COUNTED_MAX
from mqruntime.smallfiles import SmallFiles


class TermFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/currterm'."""

    def __init__(self, files: SmallFiles, name: str) -> None:
        self.files = files
        self.name = name

    async def load(self) -> Vote | None:
        """None when there is no such file. Raises BadKeyValues when there is one that cannot be read."""
        data = await self.files.read(self.name)
        if data is None:
            return None
        values = parse_key_values(self.name, data)
        term = whole_number(self.name, values, "currTerm", least=0)
        if term > TERM_COUNTED_MAX:
            raise BadKeyValues(self.name, f"currTerm={term} is a term that no election reaches")
        return Vote(term, values.get("voteLeader") or None)

    async def store(self, vote: Vote) -> None:
        """Raises OSError; then the vote must not be told."""
        assert vote.term <= TERM_COUNTED_MAX, "a term that no election reaches is not to be kept"
        await self.files.replace(
            self.name, f"voteLeader={vote.voted_for or ''}\ncurrTerm={vote.term}\n".encode()
        )
