"""The members in a newer list than this member's own list, as other members report it.

A member that was away may not know a new leader, and the list that this leader shows may be made up. So the member asks the
members that it knows. A report counts if it comes from a member of the own list, or of a list that such a report shows. Each of
these members could write this member's log as its leader, so nobody gets more power by a report than the reporter has. Members
are removed, and uncommitted lists are cut, so a report counts for REPORT_MS only.

Invariant: `at` returns members of the newest report that counts. Its list is newer than the own list and names this member.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from dledger.raft.entries import NO_INDEX
from dledger.raft.membership import listed

REPORT_MS = 5_000
"""Some times the shortest election timeout, in which a member asks again while it needs reports."""


class ReportedList(NamedTuple):
    """A list of members, and the index of its entry in the log of the member that reported it."""

    index_of_entry: int
    text: str
    addresses: Mapping[str, str]
    until_ms: int

    @property
    def order(self) -> tuple[int, str]:
        """Greater for a newer list. Of two lists at one index either may be the newer one; the text makes the choice
        deterministic."""
        return self.index_of_entry, self.text


class NewerMembers:
    """`peers` are the ids in the own list, which at first is from a setting."""

    def __init__(self, self_id: str, peers: Collection[str]) -> None:
        self._self_id = self_id
        self._index = NO_INDEX
        self._peers = frozenset(peers)
        self._reports: dict[str, ReportedList] = {}
        self._expires_ms = 0
        """The time at which the first report stops counting."""
        self._addresses: dict[str, str] = {}

    def at(self, now_ms: int) -> Mapping[str, str]:
        """Id -> address of the members that the own list does not have."""
        if self._reports and now_ms >= self._expires_ms:
            self._reports = {
                peer: report for peer, report in self._reports.items() if now_ms < report.until_ms
            }
            self._look()
        return self._addresses

    def members_are(self, index: int, peers: Collection[str]) -> None:
        """Called when the own list is the one of entry `index`."""
        self._index, self._peers = index, frozenset(peers)
        self._look()

    def reported(self, peer: str, index: int, text: str, now_ms: int) -> None:
        """Called when an answer of `peer`, from its known address, shows the list in its entry `index`. An answer of another
        node changes nothing."""
        before = self._reports.pop(peer, None)
        if index > self._index:
            self._reports[peer] = ReportedList(index, text, listed(text), now_ms + REPORT_MS)
        if before is not None or index > self._index:
            self._look()

    def _look(self) -> None:
        found: Mapping[str, str] = {}
        index, known = self._index, self._peers
        while newer := [
            report
            for peer, report in self._reports.items()
            if peer in known and report.index_of_entry > index and self._self_id in report.addresses
        ]:  # each round finds a newer list, so this ends
            newest = max(newer, key=lambda report: report.order)
            index, found, known = (
                newest.index_of_entry,
                newest.addresses,
                self._peers | newest.addresses.keys(),
            )
        self._reports = {peer: report for peer, report in self._reports.items() if peer in known}
        self._expires_ms = min((report.until_ms for report in self._reports.values()), default=0)
        self._addresses = {member: address for member, address in found.items() if member not in self._peers}
