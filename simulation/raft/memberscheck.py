"""Checks changes of a group's members. The checker decodes the lists of members in log entries itself.

Invariant: the list that a member itself keeps is only compared with the checker's list, never used.

M1, a committed list differs from the one before by one voter at most; M2, a leader changes the members only once an entry of
its own term and the change before are committed, and never leaves itself out; M3, a member uses the newest list in its log,
committed or not; M4, a member that does not vote by that list does not campaign."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.raft import Raft

BEGINS = b"\x00dledger members\x00\x01"


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of members, from entry `index`, or from a setting (NO_INDEX)."""

    index: int
    voters: frozenset[str]
    learners: frozenset[str]


def listed_by(entry: Entry) -> Listed | None:
    if not entry.body.startswith(BEGINS):
        return None
    members: Mapping[str, Mapping[str, str]] = json.loads(entry.body[len(BEGINS) :])
    return Listed(entry.index, frozenset(members["voters"]), frozenset(members["learners"]))


class MembersCheck:
    """`begun_with` are the voters of the group's first list. `found(rule, what)` makes the error that is raised."""

    def __init__(self, found: Callable[[str, str], AssertionError]) -> None:
        self.found = found
        self.begun_with: frozenset[str] = frozenset()
        self.committed: list[Listed] = []
        self.logs: dict[Raft, list[Listed]] = {}
        """For each member: the lists in its log, and the list that was in use where its log begins."""

    def started(self, core: Raft, entries: Sequence[Entry]) -> None:
        """A member started. `entries` are all entries of its log."""
        self.logs[core] = self.committed_up_to(core.log.prev_index)
        self.logs[core] += filter(None, map(listed_by, entries))

    def committed_up_to(self, index: int) -> list[Listed]:
        return [each for each in self.committed if each.index <= index][-1:]

    def appends(self, core: Raft, entries: Sequence[Entry]) -> None:
        lists = self.logs.setdefault(core, [])
        for entry in entries:
            new = listed_by(entry)
            if new is None:
                continue
            if core.role is Role.LEADER:
                self.look_at_change(core, self.newest(core), new)
            lists.append(new)

    def look_at_change(self, core: Raft, before: Listed, new: Listed) -> None:
        if core.committed_index < max(core.term_start_index, before.index):
            ends = f"has committed up to {core.committed_index}, its term begins with {core.term_start_index}"
            what = f"{core.self_id} appends change {new.index}, {ends}, the change before is {before.index}"
            raise self.found("M2", what)
        if core.self_id not in new.voters or len(before.voters ^ new.voters) > 1:
            raise self.found(
                "M2", f"{core.self_id} changes voters {sorted(before.voters)} to {sorted(new.voters)}"
            )

    def cuts(self, core: Raft, index: int) -> None:
        self.logs[core] = [each for each in self.logs.get(core, []) if each.index < index]

    def restarts(self, core: Raft, index: int) -> None:
        """A snapshot that ends with this entry replaced the member's log."""
        self.logs[core] = self.committed_up_to(index)

    def newest(self, core: Raft) -> Listed:
        lists = self.logs.get(core)
        return lists[-1] if lists else Listed(NO_INDEX, self.begun_with, frozenset())

    def groups(self, core: Raft) -> list[frozenset[str]]:
        """The newest two lists. By one of them a majority may have committed the entries that `core` takes for committed."""
        lists = self.logs.get(core, [])[-2:]
        before = [self.begun_with] if len(lists) < 2 else []
        return [*before, *(each.voters for each in lists)]

    def decides(self, entry: Entry) -> None:
        new = listed_by(entry)
        if new is None:
            return
        before = self.committed[-1].voters if self.committed else self.begun_with
        if not new.voters or len(before ^ new.voters) > 1:
            raise self.found("M1", f"{sorted(before)} became {sorted(new.voters)} by entry {entry.index}")
        self.committed.append(new)

    def look(self, core: Raft) -> None:
        known = core.membership
        newest = self.newest(core)
        if newest.index == NO_INDEX == known.index:
            return
        used = Listed(known.index, frozenset(known.members.voters), frozenset(known.members.learners))
        if used != newest:
            raise self.found("M3", f"{core.self_id} uses {used}, and the newest list of its log is {newest}")
        if core.role is not Role.FOLLOWER and core.self_id not in newest.voters:
            raise self.found("M4", f"{core.self_id} is {core.role.value} and is no voter of {newest}")
