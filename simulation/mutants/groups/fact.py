"""Bugs of a Raft-mode set's answers from its tables."""

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
    """A new leader asks no member for the changes that were answered before."""


@bug("answered-by-the-leader-alone", GroupReplication, "agreed_without", plays=("handed on",))
def answered_by_the_leader_alone(self: GroupReplication, missing: Collection[int], epoch: int) -> bool:
    """A change is answered before others have it."""
    return self._member.leads


@bug("former-leader-names-versions", CopyStamp, "leads_no_more", plays=("handed on",))
def former_leader_names_versions(self: CopyStamp) -> None:
    """A former leader's tables count as a version of the term that it follows in, newer than that leader's own."""


@bug("late-copy-of-a-former-leader", GroupTables, "may_take")
def late_copy_of_a_former_leader(self: GroupTables, version: TablesVersion) -> bool:
    """A member that has reported its version to a leader still accepts a copy of the one before."""
    return self._stamp.may_take(version)


@bug("late-copy-of-a-former-leader", GroupTables, "may_report")
def late_copy_of_a_former_leader_2(self: GroupTables, version: TablesVersion) -> bool:
    """The rest of it: it reports that to that leader."""
    return True


@bug("version-not-persisted", CopyStamp, "encode")
def version_not_persisted(self: CopyStamp) -> bytes:
    """A restarted member knows its tables, not how new they are."""
    return Stamp(str(OLDEST), ";".join(self._files())).encode()


@bug("leases-go-on-under-the-next-leader", RebalanceLocks, "led", plays=("handed on",))
def leases_go_on_under_the_next_leader(self: RebalanceLocks) -> None:
    """A lease counts from when a follower was notified of the holder."""


@bug("deletions-come-back", Tables, "adopt", plays=("facts",))
def deletions_come_back(
    self: Tables, copy: TablesCopy, version: TablesVersion | None = None, life: int = 0
) -> None:
    """Rows that a member has and its leader has not stay."""
    former = self.topics.wrapper().topic_config_table
    adopt(self, copy, version, life)
    for topic in former.values():
        self.topics._table.setdefault(topic.topic_name, topic)


@bug("deletions-come-back", Tables, "adopt_changes", plays=("facts",))
def deletions_come_back_2(self: Tables, changes: TableChanges, named: Named) -> None:
    """The rest of it: nor where only changes come."""
    changes.topics_gone = []
    adopt_changes(self, changes, named)


adopt, adopt_changes = Tables.adopt, Tables.adopt_changes
