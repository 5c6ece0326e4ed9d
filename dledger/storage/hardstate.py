"""The small files of a member: its term and vote, and the start numbers of the group.

The file `currterm` has the term and the vote in DLedger's format, and the members among whom the vote was given. The file
`starts` has the start numbers, as `key=value` lines:

    self=n0          the folder's member; copied into another member's folder the file counts as absent
    own=17:1203      number and life (dledger.raft.startnumbers)
    of.n1=18:77      the number received of another member

Invariant: `store` returns once the file is durable, so a vote that was sent is never forgotten. A damaged `starts` counts as
absent."""

from __future__ import annotations

import logging

from dledger.raft.actions import Vote
from dledger.raft.election import TERM_COUNTED_MAX
from dledger.raft.errors import MembersChanged
from dledger.raft.startnumbers import Start, StartNumbers, decode_start
from dledger.storage.keyvalues import BadKeyValues, parse_key_values, whole_number
from mqruntime.smallfiles import SmallFiles

NEWCOMER = "newcomer"
"""The key is written until this member may vote. Java ignores it."""
MEMBERS = "members"
"""Files of Java, and of early versions of this project, do not have this key."""


class TermFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/currterm'."""

    def __init__(self, files: SmallFiles, name: str, members: str) -> None:
        """`members` are the ids of the group, separated by commas. If empty, no ids are recorded, because the caller has
        them."""
        self.files = files
        self.name = name
        self.members = members
        self.recorded = members
        """The members among whom the loaded vote was given."""
        self.term = 0
        """The term on the disk: this member may have sent it."""

    async def load(self) -> Vote | None:
        """The stored term and vote; None if there is no file. Raises BadKeyValues if the file is malformed."""
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
        """Raises MembersChanged if the vote was given among other members. Not called if a committed entry has the list of
        members."""
        if self.recorded != self.members:
            raise MembersChanged(self.name, self.recorded, self.members)

    async def store(self, vote: Vote) -> None:
        """Stores `vote`. Raises OSError; then the vote must not be sent."""
        assert vote.term <= TERM_COUNTED_MAX, "a term that no election reaches is not stored"
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
"""The prefix of a key; the other member's id follows."""


class StartsFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/starts'."""

    def __init__(self, files: SmallFiles, name: str, self_id: str) -> None:
        self.files = files
        self.name = name
        self.self_id = self_id

    async def load(self, *, life: int) -> StartNumbers:
        """Loads the numbers; `life` is the life that this start begins. Raises OSError."""
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
        """Stores `own`, and the numbers of other members in `numbers`. Raises OSError."""
        lines = [f"{SELF}={self.self_id}"]
        if own.number:
            lines.append(f"{OWN}={own.number}:{own.life}")
        lines += [
            f"{OTHER}{member}={start.number}:{start.life}" for member, start in sorted(numbers.known.items())
        ]
        await self.files.replace(self.name, ("\n".join(lines) + "\n").encode())
