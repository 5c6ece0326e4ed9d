"""The small files of a member: its term and vote, and the start numbers of the group.

`currterm` has the term and the vote, in DLedger's own format, and among which members the vote was given. `starts` has the
start numbers, as `key=value` lines:

    self=n0          whose folder this is; copied into another member's folder the file counts as absent
    own=17:1203      number and life (dledger.raft.startnumbers)
    of.n1=18:77      what was heard of another member

Invariant: what `store` was given is durable when it returns, so a vote that was shown cannot be forgotten. A `starts` that is
damaged counts as absent."""

from __future__ import annotations

import logging

from dledger.raft.actions import Vote
from dledger.raft.election import TERM_COUNTED_MAX
from dledger.raft.errors import MembersChanged
from dledger.raft.startnumbers import Start, StartNumbers, decode_start
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


logger = logging.getLogger(__name__)

SELF = "self"
OWN = "own"
OTHER = "of."
"""The other member's id follows."""


class StartsFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/starts'."""

    def __init__(self, files: SmallFiles, name: str, self_id: str) -> None:
        self.files = files
        self.name = name
        self.self_id = self_id

    async def load(self, *, life: int) -> StartNumbers:
        """`life` is that of the start that loads it. Raises OSError."""
        values = self._read(await self.files.read(self.name))
        own = decode_start(values.get(OWN, ""))
        known = {
            key.removeprefix(OTHER): start
            for key, value in values.items()
            if key.startswith(OTHER) and (start := decode_start(value)) is not None
        }
        return StartNumbers(self.self_id, own, known, life=life)

    def _read(self, data: bytes | None) -> dict[str, str]:
        if data is None:
            return {}
        try:
            values = parse_key_values(self.name, data)
        except BadKeyValues as error:
            logger.warning("%s counts as absent: %s", self.name, error.why)
            return {}
        return values if values.get(SELF) == self.self_id else {}

    async def store(self, own: Start, numbers: StartNumbers) -> None:
        """`own`, and what `numbers` knows of others. Raises OSError."""
        lines = [f"{SELF}={self.self_id}"]
        if own.number:
            lines.append(f"{OWN}={own.number}:{own.life}")
        lines += [
            f"{OTHER}{member}={start.number}:{start.life}" for member, start in sorted(numbers.known.items())
        ]
        await self.files.replace(self.name, ("\n".join(lines) + "\n").encode())
