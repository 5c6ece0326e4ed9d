"""The members of a group: voters, and learners, which receive everything and count for nothing. The list of a group's members,
as members send and compare it, is here too.

Each change is an entry of the log and changes at most one voter [4.1]. So a majority of the old voters and a majority of the
new voters always have a member in common. A member uses a configuration as soon as the configuration's entry is in the member's
log, committed or not. It stops when that entry is truncated. Without such an entry a member uses the list with which it was
started.

Invariant: successive configurations differ by at most one voter, and each has a voter. Two members whose lists have different
ids are not of one group, because each would count its own majority. Addresses may differ, because a host has several names.
Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson

from dledger.raft.entries import NO_INDEX, Entries, Entry
from dledger.raft.errors import ChangeRefused, MembersUnknown, RefusalReason
from mqruntime.hostports import check_address

MAGIC = b"\x00dledger members\x00"
"""Bodies with a configuration begin with these bytes. A proposal of a body that begins like this is refused."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class Members:
    """The members, as id -> "host:port"."""

    voters: Mapping[str, str]
    learners: Mapping[str, str] = field(default_factory=dict)

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of all members, sorted by id."""
        return dict(sorted({**self.voters, **self.learners}.items()))

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1

    def as_json(self) -> dict[str, dict[str, str]]:
        """The JSON form of the members in entries, files and answers."""
        return {"voters": dict(sorted(self.voters.items())), "learners": dict(sorted(self.learners.items()))}


ConfigurationAt = tuple[int, Members]
"""The index of a configuration's entry, and the configuration."""


class Step(Enum):
    ADD = "add"
    """Adds a learner."""
    PROMOTE = "promote"
    """Turns a learner into a voter."""
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    step: Step
    member: str
    address: str = ""
    """The address of the added member."""

    @property
    def adds(self) -> bool:
        return self.step is Step.ADD

    def of(self, members: Members) -> Members:
        """The members after the change. Raises ChangeRefused."""
        voters, learners = dict(members.voters), dict(members.learners)
        known = members.addresses
        if self.step is Step.ADD:
            if self.member in known:
                raise ChangeRefused(
                    RefusalReason.ID_TAKEN, f"{self.member} is a member already, at {known[self.member]}"
                )
            taken = [member for member, address in known.items() if address == self.address]
            if taken:
                raise ChangeRefused(
                    RefusalReason.ADDRESS_TAKEN, f"{self.address} is the address of {taken[0]}"
                )
            learners[self.member] = checked_address(self.member, self.address)
        elif self.member not in known:
            raise ChangeRefused(
                RefusalReason.UNKNOWN_ID, f"{self.member} is not among the members {', '.join(known)}"
            )
        elif self.step is Step.PROMOTE:
            if self.member in voters:
                raise ChangeRefused(RefusalReason.VOTES_ALREADY, f"{self.member} votes already")
            voters[self.member] = learners.pop(self.member)
        elif list(voters) == [self.member]:
            raise ChangeRefused(RefusalReason.LAST_VOTER, f"{self.member} is the last voter")
        else:
            voters.pop(self.member, None)
            learners.pop(self.member, None)
        return Members(voters, learners)


def checked_address(member: str, address: str) -> str:
    """Returns the address. Raises ChangeRefused unless the id and the address can be in a list of members."""
    host, _, port = address.rpartition(":")
    possible = host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535
    if not possible or not member or any(mark in member + address for mark in ";,\n") or "-" in member:
        raise ChangeRefused(RefusalReason.BAD_ADDRESS, f"{member}-{address} is not ID-HOST:PORT")
    return address


def encode_members(members: Members) -> bytes:
    """The body of an entry with these members."""
    return MAGIC + bytes([VERSION]) + orjson.dumps(members.as_json())


def is_members(body: bytes) -> bool:
    return body.startswith(MAGIC)


def decode_members(index: int, body: bytes) -> Members:
    """The members in the body of entry `index`. Raises MembersUnknown."""
    version, data = body[len(MAGIC) : len(MAGIC) + 1], body[len(MAGIC) + 1 :]
    if version != bytes([VERSION]):
        raise MembersUnknown(f"entry {index} has a list of members of form {version.hex() or 'none'}")
    return read_members(f"entry {index}", data)


def read_members(where: str, data: bytes) -> Members:
    try:
        return members_of(orjson.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MembersUnknown(f"{where} has no list of members that can be read ({error})") from None


def members_of(row: Any) -> Members:
    """The members in decoded JSON. Raises ValueError, KeyError, TypeError, AttributeError."""
    voters, learners = (dict(row[name].items()) for name in ("voters", "learners"))
    both = {**voters, **learners}
    if not voters or len(both) != len(voters) + len(learners):
        raise ValueError("there is no voter, or a member is listed twice")
    if not all(isinstance(text, str) for pair in both.items() for text in pair):
        raise TypeError("ids and addresses are texts")
    return Members(voters, learners)


def encode_configurations(configurations: Sequence[ConfigurationAt]) -> str:
    """One line of text; empty when there is no configuration."""
    rows = [{"index": index, **members.as_json()} for index, members in configurations]
    return orjson.dumps(rows).decode() if rows else ""


def decode_configurations(where: str, text: str) -> tuple[ConfigurationAt, ...]:
    """The configurations that `encode_configurations` wrote to the file `where`. Raises MembersUnknown."""
    if not text:
        return ()
    try:
        return tuple((int(row["index"]), members_of(row)) for row in orjson.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MembersUnknown(f"{where} has no list of members that can be read ({error})") from None


class ConfigurationHistory:
    """The configurations of a log, in the order of their entries."""

    def __init__(self, configurations: Iterable[ConfigurationAt] = ()) -> None:
        self._configurations = list(configurations)

    def up_to(self, index: int) -> ConfigurationAt | None:
        """The configuration that is used if the log ends with entry `index`; None if no entry has a configuration."""
        behind = bisect_right(self._configurations, index, key=index_of)
        return self._configurations[behind - 1] if behind else None

    def span(self, committed: int, last: int) -> list[ConfigurationAt]:
        """The configurations that members may use if the log is committed up to `committed` and known up to `last`."""
        first = max(0, bisect_right(self._configurations, committed, key=index_of) - 1)
        return self._configurations[first : bisect_right(self._configurations, last, key=index_of)]

    def take(self, entries: Sequence[Entry]) -> bool:
        """Called when `entries` are in the log, and are its last entries. Returns whether the history changed."""
        new = Entries.of(entries)
        changed = bool(new) and self.cut(new.first_index)
        for first, block in new.numbered():
            for number in block.beginning_with(MAGIC):
                self._configurations.append(
                    (first + number, decode_members(first + number, block.body(number)))
                )
                changed = True
        return changed

    def cut(self, index: int) -> bool:
        """Called when the entries from `index` on are cut. Returns whether the history changed."""
        kept = bisect_left(self._configurations, index, key=index_of)
        changed = kept < len(self._configurations)
        del self._configurations[kept:]
        return changed

    def forget(self, index: int) -> None:
        """Called when the log begins after entry `index`: configurations that were replaced before are dropped."""
        del self._configurations[: max(0, bisect_right(self._configurations, index, key=index_of) - 1)]

    def restart(self, configurations: Sequence[ConfigurationAt]) -> None:
        """Called when a snapshot with these configurations replaced the log."""
        self._configurations = list(configurations)


def index_of(configuration: ConfigurationAt) -> int:
    return configuration[0]


class RaftMembership:
    """The configuration that the member `self_id` uses. `listed` is the list with which the member was started."""

    def __init__(self, self_id: str, listed: Members, configurations: Iterable[ConfigurationAt] = ()) -> None:
        self.self_id = self_id
        self.history = ConfigurationHistory(configurations)
        self._listed = listed
        self._look()

    def _look(self) -> None:
        self.index, self.members = self.history.up_to(1 << 62) or (NO_INDEX, self._listed)
        others = self.members.addresses.keys() - {self.self_id}
        self.peers = tuple(sorted(others))
        """All other members."""
        self.voters = tuple(sorted(others & self.members.voters.keys()))
        """The other members that are voters."""
        self.votes = self.self_id in self.members.voters
        self.quorum = self.members.quorum

    def at(self, index: int) -> tuple[ConfigurationAt, ...]:
        """The configuration in a snapshot that ends with entry `index`."""
        configuration = self.history.up_to(index)
        return () if configuration is None else (configuration,)

    def knows(self, member: str, committed: int) -> bool:
        """Whether `member` belongs to the group, or will belong to it if a change that is not committed is cut."""
        return member in self.peers or member in self.before(committed)

    def before(self, committed: int) -> dict[str, str]:
        """The members of the group if the changes after `committed`, which are not committed, are cut. A leader whose log does
        not have these changes may be one of these members."""
        found: dict[str, str] = {}
        if self.index > committed:
            configurations = self.history.span(committed, self.index - 1)
            at_least = self._listed if not configurations or configurations[0][0] > committed else None
            for members in (at_least, *(each for _, each in configurations)):
                found |= members.addresses if members is not None else {}
        return found

    def take(self, entries: Sequence[Entry]) -> bool:
        """Called when `entries` are appended. Returns whether another configuration is used now."""
        return self._changed(self.history.take(entries))

    def cut(self, index: int) -> bool:
        return self._changed(self.history.cut(index))

    def restart(self, configurations: Sequence[ConfigurationAt]) -> bool:
        self.history.restart(configurations)
        return self._changed(True)

    def _changed(self, changed: bool) -> bool:
        if changed:
            self._look()
        return changed


def peer_list(peers: Mapping[str, str]) -> str:
    """ "n0-host:port;n1-host:port", sorted by id, as in the setting."""
    return ";".join(f"{member}-{address}" for member, address in sorted(peers.items()))


def parsed_peers(text: str, setting: str) -> dict[str, str]:
    """Id -> "host:port" in the order of `text`, the value of `setting`. Raises ValueError."""
    found: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        member, dash, address = entry.partition("-")
        if not (dash and member and address):
            raise ValueError(f"{entry!r} in {setting} is not ID-HOST:PORT")
        try:
            check_address(address)
        except ValueError as error:
            raise ValueError(f"{entry!r} in {setting} is not ID-HOST:PORT: {error}") from None
        if member in found:
            raise ValueError(f"{entry!r} in {setting}: the id is given twice")
        if address in found.values():
            raise ValueError(f"{entry!r} in {setting}: another one has this address")
        found[member] = address
    return found


def listed(text: str) -> dict[str, str]:
    """The ids and addresses in a list that `peer_list` made. Malformed entries are left out."""
    pairs = (entry.partition("-") for entry in text.split(";"))
    return {member: address for member, dash, address in pairs if member and dash and address}


def difference(own: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The differences between the ids of two lists, for an operator; empty if there are none."""
    only_here, only_there = sorted(own.keys() - theirs.keys()), sorted(theirs.keys() - own.keys())
    parts = [f"only here {', '.join(only_here)}"] if only_here else []
    if only_there:
        parts.append(f"only there {', '.join(only_there)}")
    return "; ".join(parts)
