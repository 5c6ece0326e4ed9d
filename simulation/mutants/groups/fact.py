"""Planted bugs of the tables (topics, groups, offsets, locks) of a Raft-mode set, and of answers from them."""

from __future__ import annotations

from collections.abc import Collection

from broker.neighbours.grouptables import GroupTables
from broker.tables.holders import TablesVersion
from broker.tables.queuelocks import RebalanceLocks
from broker.tables.rowchanges import Named
from broker.tables.stamp import OLDEST, CopyStamp, Stamp
from broker.tables.tables import Tables
from raftstore.replication import GroupReplication
from remoting.bodies.tables import TableChanges, TablesCopy
from simulation.mutants.groups.bugs import bug


@bug("leads-with-its-own-tables", GroupTables, "read_majority", plays=("handed on",))
async def leads_with_its_own_tables(self: GroupTables, term: int) -> None:
    """A new leader asks no member for the changes that were confirmed before."""


@bug("answered-by-the-leader-alone", GroupReplication, "agreed_without", plays=("handed on",))
def answered_by_the_leader_alone(self: GroupReplication, missing: Collection[int], epoch: int) -> bool:
    """A change is confirmed before other members have it."""
    return self._member.leads


@bug("former-leader-names-versions", CopyStamp, "leads_no_more", plays=("handed on",))
def former_leader_names_versions(self: CopyStamp) -> None:
    """A former leader's tables count as a version of the term in which it follows, so as newer than its leader's own tables."""


@bug("late-copy-of-a-former-leader", GroupTables, "may_take")
def late_copy_of_a_former_leader(self: GroupTables, version: TablesVersion) -> bool:
    """A member that has reported its version to a leader still accepts a copy from the former leader."""
    return self._stamp.may_take(version)


@bug("late-copy-of-a-former-leader", GroupTables, "may_report")
def late_copy_of_a_former_leader_2(self: GroupTables, version: TablesVersion) -> bool:
    """The second part of the bug: the member confirms the late copy to the former leader."""
    return True


@bug("version-not-persisted", CopyStamp, "encode")
def version_not_persisted(self: CopyStamp) -> bytes:
    """A restarted member has its tables, but does not know their version."""
    return Stamp(str(OLDEST), ";".join(self._files())).encode()


@bug("leases-go-on-under-the-next-leader", RebalanceLocks, "led", plays=("handed on",))
def leases_go_on_under_the_next_leader(self: RebalanceLocks) -> None:
    """A lease counts from the moment when a follower was notified of the holder."""


@bug("deletions-come-back", Tables, "adopt", plays=("facts",))
def deletions_come_back(
    self: Tables, copy: TablesCopy, version: TablesVersion | None = None, life: int = 0
) -> None:
    """Rows that a member has but its leader does not have are kept."""
    former = self.topics.wrapper().topic_config_table
    adopt(self, copy, version, life)
    for topic in former.values():
        self.topics._table.setdefault(topic.topic_name, topic)


@bug("deletions-come-back", Tables, "adopt_changes", plays=("facts",))
def deletions_come_back_2(self: Tables, changes: TableChanges, named: Named) -> None:
    """The second part of the bug: deleted rows are also kept if the leader sends only changes."""
    changes.topics_gone = []
    adopt_changes(self, changes, named)


adopt, adopt_changes = Tables.adopt, Tables.adopt_changes
