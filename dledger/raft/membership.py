"""Who belongs to a group: voters, and learners that are sent everything and count for nothing.

Changes are entries of the log, one voter at a time [4.1]: two majorities that differ by one member have one in common. A
configuration is in force on a member from when it stands in its log, decided or not, until it is cut; the list that a member
was started with is that of a log without such an entry.

Invariant: what follows another configuration differs from it by one voter at most, and never is without one. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson

from dledger.raft.entries import NO_INDEX, Entries, Entry
from dledger.raft.errors import ChangeRefused, MembersUnknown, Why

MAGIC = b"\x00dledger members\x00"
"""No other body begins with it: `is_members` ones are refused where they are proposed."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class Members:
    """Ids -> "host:port"."""

    voters: Mapping[str, str]
    learners: Mapping[str, str] = field(default_factory=dict)

    @property
    def addresses(self) -> dict[str, str]:
        """Of all, sorted by id."""
        return dict(sorted({**self.voters, **self.learners}.items()))

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1

    def as_json(self) -> dict[str, dict[str, str]]:
        """In the form that entries, files and answers have it."""
        return {"voters": dict(sorted(self.voters.items())), "learners": dict(sorted(self.learners.items()))}


Stated = tuple[int, Members]
"""A configuration, and the index of its entry."""


class Step(Enum):
    ADD = "add"
    """As a learner."""
    PROMOTE = "promote"
    """A learner votes."""
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    step: Step
    member: str
    address: str = ""
    """Of one that is added."""

    @property
    def adds(self) -> bool:
        return self.step is Step.ADD

    def of(self, members: Members) -> Members:
        """What `members` become. Raises ChangeRefused."""
        voters, learners = dict(members.voters), dict(members.learners)
        known = members.addresses
        if self.step is Step.ADD:
            if self.member in known:
                raise ChangeRefused(
                    Why.ID_TAKEN, f"{self.member} is a member already, at {known[self.member]}"
                )
            taken = [member for member, address in known.items() if address == self.address]
            if taken:
                raise ChangeRefused(Why.ADDRESS_TAKEN, f"{self.address} is the address of {taken[0]}")
            learners[self.member] = checked_address(self.member, self.address)
        elif self.member not in known:
            raise ChangeRefused(Why.UNKNOWN_ID, f"{self.member} is not among the members {', '.join(known)}")
        elif self.step is Step.PROMOTE:
            if self.member in voters:
                raise ChangeRefused(Why.VOTES_ALREADY, f"{self.member} votes already")
            voters[self.member] = learners.pop(self.member)
        elif list(voters) == [self.member]:
            raise ChangeRefused(Why.LAST_VOTER, f"{self.member} is the last one that votes")
        else:
            voters.pop(self.member, None)
            learners.pop(self.member, None)
        return Members(voters, learners)


def checked_address(member: str, address: str) -> str:
    """Raises ChangeRefused unless both can stand in a list of members."""
    host, _, port = address.rpartition(":")
    possible = host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535
    if not possible or not member or any(mark in member + address for mark in ";,\n") or "-" in member:
        raise ChangeRefused(Why.BAD_ADDRESS, f"{member}-{address} is not ID-HOST:PORT")
    return address


def encode_members(members: Members) -> bytes:
    """The body of an entry."""
    return MAGIC + bytes([VERSION]) + orjson.dumps(members.as_json())


def is_members(body: bytes) -> bool:
    return body.startswith(MAGIC)


def decode_members(index: int, body: bytes) -> Members:
    """Of entry `index`. Raises MembersUnknown."""
    version, data = body[len(MAGIC) : len(MAGIC) + 1], body[len(MAGIC) + 1 :]
    if version != bytes([VERSION]):
        raise MembersUnknown(f"entry {index} has a list of members of form {version.hex() or 'none'}")
    return read_members(f"entry {index}", data)


def read_members(where: str, data: bytes) -> Members:
    try:
        return members_of(orjson.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MembersUnknown(f"{where} has no list of members that can be read ({error})") from None


def members_of(told: Any) -> Members:
    """Raises ValueError, KeyError, TypeError, AttributeError."""
    voters, learners = (dict(told[name].items()) for name in ("voters", "learners"))
    both = {**voters, **learners}
    if not voters or len(both) != len(voters) + len(learners):
        raise ValueError("nobody votes, or one stands there twice")
    if not all(isinstance(text, str) for pair in both.items() for text in pair):
        raise TypeError("ids and addresses are texts")
    return Members(voters, learners)


def encode_stated(stated: Sequence[Stated]) -> str:
    """One line of text; empty when there is none."""
    rows = [{"index": index, **members.as_json()} for index, members in stated]
    return orjson.dumps(rows).decode() if rows else ""


def decode_stated(where: str, text: str) -> tuple[Stated, ...]:
    """What `encode_stated` made, in the file `where`. Raises MembersUnknown."""
    if not text:
        return ()
    try:
        return tuple((int(row["index"]), members_of(row)) for row in orjson.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MembersUnknown(f"{where} has no list of members that can be read ({error})") from None


class History:
    """The configurations of a log, in the order of their entries."""

    def __init__(self, stated: Iterable[Stated] = ()) -> None:
        self._stated = list(stated)

    def up_to(self, index: int) -> Stated | None:
        """The one in force where the log ends with that entry; None: no entry says."""
        behind = bisect_right(self._stated, index, key=index_of)
        return self._stated[behind - 1] if behind else None

    def span(self, decided: int, last: int) -> list[Stated]:
        """Those that a log can come to which is decided up to the first index, and is known up to the second."""
        first = max(0, bisect_right(self._stated, decided, key=index_of) - 1)
        return self._stated[first : bisect_right(self._stated, last, key=index_of)]

    def take(self, entries: Sequence[Entry]) -> bool:
        """`entries` stand in the log now, and nothing else from the first of them on. Whether anything changed."""
        new = Entries.of(entries)
        changed = bool(new) and self.cut(new.first_index)
        for first, block in new.numbered():
            for number in block.beginning_with(MAGIC):
                self._stated.append((first + number, decode_members(first + number, block.body(number))))
                changed = True
        return changed

    def cut(self, index: int) -> bool:
        """The entries from there on are gone. Whether anything changed."""
        kept = bisect_left(self._stated, index, key=index_of)
        changed = kept < len(self._stated)
        del self._stated[kept:]
        return changed

    def forget(self, index: int) -> None:
        """The log begins behind that entry: what was in force before it is asked for no more."""
        del self._stated[: max(0, bisect_right(self._stated, index, key=index_of) - 1)]

    def restart(self, stated: Sequence[Stated]) -> None:
        """A snapshot that has these replaced the log."""
        self._stated = list(stated)


def index_of(stated: Stated) -> int:
    return stated[0]


class Membership:
    """As the member `self_id` sees it; `listed` is what it was started with."""

    def __init__(self, self_id: str, listed: Members, stated: Iterable[Stated] = ()) -> None:
        self.self_id = self_id
        self.history = History(stated)
        self._listed = listed
        self._look()

    def _look(self) -> None:
        self.index, self.members = self.history.up_to(1 << 62) or (NO_INDEX, self._listed)
        others = self.members.addresses.keys() - {self.self_id}
        self.peers = tuple(sorted(others))
        """All other members."""
        self.voters = tuple(sorted(others & self.members.voters.keys()))
        """Those of them that vote."""
        self.votes = self.self_id in self.members.voters
        self.quorum = self.members.quorum

    def at(self, index: int) -> tuple[Stated, ...]:
        """What a snapshot that ends with that entry has of it."""
        stated = self.history.up_to(index)
        return () if stated is None else (stated,)

    def knows(self, member: str, decided: int) -> bool:
        """Whether `member` belongs to the group, or does where what is not decided comes to nothing."""
        return member in self.peers or member in self.before(decided)

    def before(self, decided: int) -> dict[str, str]:
        """Whoever belongs to the group if a change that is not decided comes to nothing; the log is decided up to there. Who
        leads without such a change may be one of them."""
        found: dict[str, str] = {}
        if self.index > decided:
            stated = self.history.span(decided, self.index - 1)
            at_least = self._listed if not stated or stated[0][0] > decided else None
            for members in (at_least, *(each for _, each in stated)):
                found |= members.addresses if members is not None else {}
        return found

    def take(self, entries: Sequence[Entry]) -> bool:
        """Whether another configuration is in force now."""
        return self._changed(self.history.take(entries))

    def cut(self, index: int) -> bool:
        return self._changed(self.history.cut(index))

    def restart(self, stated: Sequence[Stated]) -> bool:
        self.history.restart(stated)
        return self._changed(True)

    def _changed(self, changed: bool) -> bool:
        if changed:
            self._look()
        return changed
