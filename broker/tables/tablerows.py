"""The rows of the tables: their list, their encoding, and the merging of encoded rows.

Invariant: a slave that adopts an encoded row has the same row. A row that is not in the tables is encoded as gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from broker.tables.accesstables import Acls, Users
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.deletions import Deletions
from broker.tables.offsetlimits import Key
from broker.tables.queuelocks import RebalanceLocks
from broker.tables.rowchanges import Row
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from remoting.bodies.access import AclTable, UserTable
from remoting.bodies.groups import SubscriptionGroupWrapper
from remoting.bodies.offsets import OffsetReset, OffsetResetTable
from remoting.bodies.tables import (
    DeletionTable,
    QueueEnd,
    QueueEndTable,
    QueueLock,
    QueueLockTable,
    TableChanges,
    TablesCopy,
)
from remoting.bodies.topics import TopicConfigWrapper

TOPIC_ROW, GROUP_ROW, DELETION_ROW, LOCK_ROW, RESET_ROW, LIMIT_ROW, END_ROW, USER_ROW, ACL_ROW = "tgdlrxeua"
NOBODY = ""
NO_OFFSET = -1


def topic_row(name: str) -> Row:
    return TOPIC_ROW, name, "", 0


def group_row(name: str) -> Row:
    return GROUP_ROW, name, "", 0


def user_row(name: str) -> Row:
    return USER_ROW, name, "", 0


def acl_row(subject: str) -> Row:
    return ACL_ROW, subject, "", 0


def deletion_row(kind: str, name: str) -> Row:
    return DELETION_ROW, kind, name, 0


def lock_row(key: tuple[str, tuple[str, int]]) -> Row:
    group, (topic, queue_id) = key
    return LOCK_ROW, group, topic, queue_id


def end_row(topic: str, queue_id: int) -> Row:
    return END_ROW, topic, "", queue_id


class TableRows:
    """The rows of these tables. `ends()` returns the ends of emptied queues by topic and queue id."""

    def __init__(
        self,
        topics: Topics,
        groups: SubscriptionGroups,
        deletions: Deletions,
        locks: RebalanceLocks,
        offsets: ConsumerOffsets,
        users: Users,
        acls: Acls,
        ends: Callable[[], Mapping[tuple[str, int], int]],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._deletions = deletions
        self._locks = locks
        self._offsets = offsets
        self._users = users
        self._acls = acls
        self._ends = ends

    def changes(self, rows: Iterable[Row], *, with_forbidden: bool = False) -> TableChanges:
        """Encode these rows as they are now."""
        changes = TableChanges(self._topics.data_version, self._groups.wrapper.data_version)
        changes.forgotten_epoch, changes.forgotten_number = self._deletions.forgotten
        if with_forbidden and self._groups.wrapper.forbidden_table:
            changes.forbidden = self._groups.wrapper.forbidden_table
        for row in rows:
            self._write(row, changes)
        return changes

    def _write(self, row: Row, changes: TableChanges) -> None:
        kind, name, second, number = row
        if kind == TOPIC_ROW:
            topic = self._topics.find(name)
            changes.topics_gone.append(name) if topic is None else changes.topics.append(topic)
        elif kind == GROUP_ROW:
            group = self._groups.find(name)
            changes.groups_gone.append(name) if group is None else changes.groups.append(group)
        elif kind == USER_ROW:
            user = self._users.find(name)
            changes.users_gone.append(name) if user is None else changes.users.append(user)
        elif kind == ACL_ROW:
            acl = self._acls.find(name)
            changes.acls_gone.append(name) if acl is None else changes.acls.append(acl)
        elif kind == DELETION_ROW:
            if (deletion := self._deletions.find(name, second)) is not None:
                changes.deletions.append(deletion)
        elif kind == LOCK_ROW:
            holder = self._locks.holder((name, (second, number)))
            rows = changes.locks_gone if holder is None else changes.locks
            rows.append(QueueLock(name, second, number, holder or NOBODY))
        elif kind == RESET_ROW:
            key = name, second, number
            moved_to = self._offsets.resets.find(*key)
            at = self._offsets.find(*key) if moved_to is None else moved_to
            moves = changes.resets_gone if moved_to is None else changes.resets
            moves.append(OffsetReset(*key, NO_OFFSET if at is None else at))
        elif kind == LIMIT_ROW:
            limit = self._offsets.resets.limits.all.get((name, second, number))
            limits = changes.limits_gone if limit is None else changes.limits
            limits.append(OffsetReset(name, second, number, NO_OFFSET if limit is None else limit))
        elif (end := self._ends().get((name, number))) is not None:
            changes.queue_ends.append(QueueEnd(name, number, end))

    def all(self) -> Iterator[Row]:
        resets = self._offsets.resets
        return chain(
            map(topic_row, self._topics.names()),
            map(group_row, self._groups.wrapper.subscription_group_table),
            map(user_row, self._users.rows),
            map(acl_row, self._acls.rows),
            (deletion_row(each.kind, each.name) for each in self._deletions.wrapper().deletions),
            map(lock_row, self._locks.keys()),
            ((RESET_ROW, *key) for key in resets.standing),
            ((LIMIT_ROW, *key) for key in resets.limits.all),
            (end_row(*key) for key in self._ends()),
        )

    def exists(self, row: Row) -> bool:
        kind, name, second, number = row
        if kind == TOPIC_ROW:
            return self._topics.find(name) is not None
        if kind == GROUP_ROW:
            return self._groups.find(name) is not None
        if kind == USER_ROW:
            return self._users.find(name) is not None
        if kind == ACL_ROW:
            return self._acls.find(name) is not None
        if kind == DELETION_ROW:
            return self._deletions.find(name, second) is not None
        if kind == LOCK_ROW:
            return self._locks.holder((name, (second, number))) is not None
        if kind == RESET_ROW:
            return self._offsets.resets.find(name, second, number) is not None
        if kind == LIMIT_ROW:
            return (name, second, number) in self._offsets.resets.limits.all
        return (name, number) in self._ends()


def rows_of(changes: TableChanges) -> Iterator[Row]:
    """The rows in `changes`."""
    return chain(
        (topic_row(each.topic_name) for each in changes.topics),
        map(topic_row, changes.topics_gone),
        (group_row(each.group_name) for each in changes.groups),
        map(group_row, changes.groups_gone),
        (user_row(each.username or "") for each in changes.users),
        map(user_row, changes.users_gone),
        (acl_row(each.subject or "") for each in changes.acls),
        map(acl_row, changes.acls_gone),
        (deletion_row(each.kind, each.name) for each in changes.deletions),
        (
            lock_row((each.group, (each.topic, each.queue_id)))
            for each in (*changes.locks, *changes.locks_gone)
        ),
        ((RESET_ROW, *_key(each)) for each in (*changes.resets, *changes.resets_gone)),
        ((LIMIT_ROW, *_key(each)) for each in (*changes.limits, *changes.limits_gone)),
        (end_row(each.topic, each.queue_id) for each in changes.queue_ends),
    )


def by_key(rows: Iterable[OffsetReset]) -> dict[Key, int]:
    return {_key(row): row.offset for row in rows}


def _key(row: OffsetReset) -> Key:
    return row.group, row.topic, row.queue_id


def merged(slices: list[TableChanges]) -> TableChanges:
    """Merge slices. If several have the same row, the last one counts."""
    if len(slices) == 1:
        return slices[0]
    last = slices[-1]
    whole = TableChanges(
        last.topics_version, last.groups_version,
        forgotten_epoch=last.forgotten_epoch, forgotten_number=last.forgotten_number, forbidden=last.forbidden,
    )  # fmt: skip
    for name, gone, key in (
        ("topics", "topics_gone", lambda row: row if isinstance(row, str) else row.topic_name),
        ("groups", "groups_gone", lambda row: row if isinstance(row, str) else row.group_name),
        ("users", "users_gone", lambda row: row if isinstance(row, str) else row.username),
        ("acls", "acls_gone", lambda row: row if isinstance(row, str) else row.subject),
        ("deletions", None, lambda row: (row.kind, row.name)),
        ("queue_ends", None, lambda row: (row.topic, row.queue_id)),
        ("locks", "locks_gone", lambda row: (row.group, row.topic, row.queue_id)),
        ("resets", "resets_gone", lambda row: (row.group, row.topic, row.queue_id)),
        ("limits", "limits_gone", lambda row: (row.group, row.topic, row.queue_id)),
    ):  # fmt: skip
        rows: dict[object, tuple[str, object]] = {}
        for each in slices:
            for field in (name, gone) if gone else (name,):
                rows |= {key(row): (field, row) for row in getattr(each, field)}
        for field, row in rows.values():
            getattr(whole, field).append(row)
    return whole


def as_tables(changes: TableChanges) -> TablesCopy:
    """Convert `changes`, which have all rows, to whole tables."""
    return TablesCopy(
        TopicConfigWrapper({each.topic_name: each for each in changes.topics}, changes.topics_version),
        SubscriptionGroupWrapper(
            {each.group_name: each for each in changes.groups},
            changes.forbidden or {},
            changes.groups_version,
        ),
        DeletionTable(changes.deletions, changes.forgotten_epoch, changes.forgotten_number),
        QueueEndTable(changes.queue_ends),
        QueueLockTable(changes.locks),
        OffsetResetTable(changes.resets, changes.limits or None)
        if changes.resets or changes.limits
        else None,
        UserTable({each.username or "": each for each in changes.users}),
        AclTable({each.subject or "": each for each in changes.acls}),
    )
