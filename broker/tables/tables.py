"""The broker's tables and their files: topics, consumer groups, consumer offsets and their moves, delay offsets, deletions,
queue ends, queue locks, users, policies and filters.

Invariant: a change of topics or groups is written at once to the journal (broker.tables.journal). It is written to the tables'
own files, with the offsets, within `flushConsumerOffsetInterval` and at a graceful stop. A full or failing disk delays writes,
but does not stop the broker. Each change of topics, groups, deletions, moves or lock holders made here has its own version. A
deletion is on disk only after the removals that it causes, so a copy that fails in between is repeated. The broker's own
offsets are on disk only after the log to which they belong. So if a power cut removes records of deliveries or checks, the
messages are delivered, or the transactions checked, again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from broker.settings.broker import BrokerSettings
from broker.tables.accesstables import ACLS_FILE, USERS_FILE, Acls, Users, subject_of
from broker.tables.consumerfilters import CONSUMER_FILTERS_FILE, ConsumerFilters
from broker.tables.consumeroffsets import CONSUMER_OFFSETS_FILE, ConsumerOffsets
from broker.tables.delayoffsets import DELAY_OFFSETS_FILE, DelayOffsets
from broker.tables.deletions import DELETIONS_FILE, GROUP, OFFSETS, TOPIC, Deletions
from broker.tables.holders import TablesVersion
from broker.tables.journal import FOLDER, Journal, JournalRecord, TookAway
from broker.tables.offsetlimits import LIMITS_MAX
from broker.tables.offsetresets import OffsetResets
from broker.tables.queueends import QUEUE_ENDS_FILE, QueueEndsTable
from broker.tables.queuelocks import QUEUE_LOCKS_FILE, RebalanceLocks
from broker.tables.rowchanges import Named, Row, RowChanges
from broker.tables.savedtable import SavedTable, TableUnreadable
from broker.tables.stamp import OLDEST, STAMP_FILE, CopyStamp
from broker.tables.subscriptiongroups import SUBSCRIPTION_GROUPS_FILE, SubscriptionGroups
from broker.tables.tablerows import (
    LIMIT_ROW,
    NO_OFFSET,
    RESET_ROW,
    TableRows,
    acl_row,
    by_key,
    deletion_row,
    end_row,
    group_row,
    lock_row,
    rows_of,
    topic_row,
    user_row,
)
from broker.tables.topics import TOPICS_FILE, Topics, system_topics
from messagestore.messages import QueueEntry
from mqruntime.clock import Clock
from mqruntime.diskfull import RetriedWrite
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles
from mqruntime.waking import wait_event
from remoting.bodies.access import AclTable, UserTable
from remoting.bodies.tables import Deletion, DeletionTable, QueueEnd, QueueEndTable, TableChanges, TablesCopy
from remoting.codes import RequestCode
from remoting.headers.group import CopyTablesHeader, TablesVersionHeader

logger = logging.getLogger("broker.tables")

SLICE_ROWS = 300
"""Limit of one answer to a slave; so many rows are read in some ms."""
SLICE_BYTES_MAX = 4 << 20
"""Rows of rights may be so large that SLICE_ROWS of them exceed a frame. A single row may exceed this limit."""


class TablesLog(Protocol):
    """The part of the store that has the offsets of messages."""

    def next_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def min_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def max_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int
    ) -> Sequence[QueueEntry]: ...


class TablesStore(Protocol):
    """The part of the store for emptied queues, deleted queues and syncs of the log."""

    def emptied_queues(self) -> list[tuple[str, int, int]]: ...

    def queue_ends_at_least(self, topic: str, queue_id: int, end: int) -> None: ...

    def topic_begins_at(self, topic: str, log_offset: int) -> None: ...

    async def synced_to(self, end: int) -> None: ...

    @property
    def tables_noted(self) -> bool: ...

    async def note_tables(self) -> None: ...


class Tables:
    """One broker's tables. `stamped`: a Raft group compares versions of copies. `in_pair`: no controller elects masters."""

    def __init__(
        self,
        settings: BrokerSettings,
        files: SmallFiles,
        clock: Clock,
        store: TablesStore,
        *,
        stamped: bool = False,
        in_pair: bool = False,
    ) -> None:
        self._interval_ms = settings.flush_consumer_offset_interval
        self._topics_callbacks: list[Callable[[list[str]], None]] = []
        self._changed_topics: dict[str, None] = {}
        self._facts_callbacks: list[Callable[[], None]] = []
        self._access_callbacks: list[Callable[[], None]] = []
        self._clock = clock
        self._journal = Journal(files)
        self._unwritten: dict[Row, None] = {}
        """Rows that changed and are not in the journal yet."""
        self._took: list[TookAway] = []
        self._saving = asyncio.Lock()
        self._revision = 0
        self._leads = False
        self._slice: tuple[Named, int, bytes, int | None] | None = None
        self._write = RetriedWrite(
            logger,
            "tables cannot be written, retrying",
            again="tables can be written again",
            level=logging.ERROR,
            any_error=True,
        )
        self._wake = asyncio.Event()
        system = system_topics(
            settings.broker_cluster_name,
            settings.broker_name,
            auto_create=settings.auto_create_topic_enable,
            queue_nums=settings.default_topic_queue_nums,
            trace_topic=settings.msg_trace_topic_name if settings.trace_topic_enable else "",
        )
        self.topics = Topics(clock, system, self._topics_changed, self._led)
        self.topics.auto_create = settings.auto_create_topic_enable
        self.groups = SubscriptionGroups(
            clock, auto_create=settings.auto_create_subscription_group, on_change=self._groups_changed
        )
        self.resets = OffsetResets(self._resets_changed)
        self.offsets = ConsumerOffsets(self.resets)
        self.delays = DelayOffsets()
        self.deletions = Deletions(clock, self._deletions_changed)
        self.deletions.on_topic = store.topic_begins_at
        self.locks = RebalanceLocks(clock, self._locks_changed)
        self.users = Users(self._users_changed)
        self.acls = Acls(self._acls_changed)
        self.filters = ConsumerFilters(clock, self._filters_changed)
        self._store = store
        self._emptied = _by_queue(store.emptied_queues())
        self.rows = TableRows(
            self.topics, self.groups, self.deletions, self.locks, self.offsets, self.users, self.acls,
            lambda: self._emptied,
        )  # fmt: skip
        self.changes = RowChanges(self.rows.exists)
        self._life = clock.now_ms()
        self._note_rows()
        self._queue_ends = QueueEndsTable(store.queue_ends_at_least)
        saved = partial(SavedTable, files, journaled=lambda: self._journal.last, present=self._present)
        self._saved_queue_ends = saved(
            QUEUE_ENDS_FILE, self._queue_ends.encode, self._queue_ends.decode, member="ends"
        )
        self.saved_topics = saved(
            TOPICS_FILE, self.topics.encode, self.topics.decode, member="topicConfigTable"
        )
        self.saved_groups = saved(
            SUBSCRIPTION_GROUPS_FILE, self.groups.encode, self.groups.decode, member="subscriptionGroupTable"
        )
        self.saved_offsets = saved(
            CONSUMER_OFFSETS_FILE, self.offsets.encode, self.offsets.decode,
            lambda: store.synced_to(self.offsets.rests_on), member="offsetTable",
        )  # fmt: skip
        self._saved_delays = saved(
            DELAY_OFFSETS_FILE, self.delays.encode, self.delays.decode,
            lambda: store.synced_to(self.delays.rests_on), member="offsetTable",
        )  # fmt: skip
        self._saved_deletions = saved(
            DELETIONS_FILE, self.deletions.encode, self.deletions.decode, member="deletions"
        )
        self._saved_locks = saved(QUEUE_LOCKS_FILE, self.locks.encode, self.locks.decode, member="locks")
        self._saved_users = saved(USERS_FILE, self.users.encode, self.users.decode, member="users")
        self._saved_acls = saved(ACLS_FILE, self.acls.encode, self.acls.decode, member="acls")
        self._saved_filters = saved(
            CONSUMER_FILTERS_FILE, self.filters.encode, self.filters.decode, member="filterDataByTopic"
        )
        self.keeps_filters = settings.enable_property_filter
        """If false, the file of filters stays unchanged."""
        self.stamp = CopyStamp(
            self._stamped, lambda: [table.name for table in self._of_version if table.has_file]
        )
        """The version of the tables, in a Raft group only."""
        self._saved_stamp = saved(STAMP_FILE, self.stamp.encode, self.stamp.decode)
        self._is_stamped = stamped
        self._in_pair = in_pair
        self._facts_of_ours = (self._saved_queue_ends, self._saved_locks, self._saved_users, self._saved_acls)
        """Files that upstream's brokers do not know. The file of deletions is not included, because it is saved last."""
        self._of_version = (
            self.saved_topics, self.saved_groups, *self._facts_of_ours, self._saved_deletions
        )  # fmt: skip
        self._of_journal = (
            self.saved_topics, self.saved_groups, self.saved_offsets, *self._facts_of_ours, self._saved_deletions
        )  # fmt: skip
        self._commits_saved = 0
        self._advances_saved = 0

    def _note_rows(self) -> None:
        def touch(row: Row) -> None:
            self.changes.touch(row)
            self._unwritten[row] = None

        def topic_changed(name: str) -> None:
            touch(topic_row(name))
            self._changed_topics[name] = None

        self.topics.on_row = topic_changed
        self.groups.on_row = lambda name: touch(group_row(name))
        self.users.on_row = lambda name: touch(user_row(name))
        self.acls.on_row = lambda subject: touch(acl_row(subject))
        self.deletions.on_row = lambda kind, name: touch(deletion_row(kind, name))
        self.locks.on_row = lambda key: touch(lock_row(key))
        self.resets.on_row = lambda key: touch((RESET_ROW, *key))
        self.resets.limits.on_row = lambda key: touch((LIMIT_ROW, *key))

    def on_topics_changed(self, callback: Callable[[list[str]], None]) -> None:
        """Call `callback` after each change made here, with the names of the changed topics; the list is empty if registration
        data of all topics changed."""
        self._topics_callbacks.append(callback)

    def on_facts_changed(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of topics, groups, deletions or lock holders made here."""
        self._facts_callbacks.append(callback)

    def on_access_changed(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of users or policies, made here or copied."""
        self._access_callbacks.append(callback)

    @property
    def version(self) -> TablesVersion:
        """The version of topics, groups, deletions and lock holders that this broker names while it leads."""
        return TablesVersion(self.topics.epoch, self._revision)

    @property
    def copied_from_master(self) -> dict[RequestCode, SavedTable]:
        """The tables by the request with which a slave copies them."""
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.saved_topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.saved_groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.saved_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._saved_delays,
        }

    # -- changes

    def role_taken(self, master_epoch: int, *, leads: bool) -> None:
        """Called when the broker has taken a role. If it leads, its tables get versions of this epoch from now on."""
        if not (leads and self._leads):
            self.locks.begin()
            self.offsets.said_here.begin()
        self._leads = leads
        self.stamp.leads_no_more()  # first, because the next version has another term
        if leads:
            self._look_at_ends()
            if self.changes.now is None:
                self.changes.replace(self.rows.all(), self._named)
        self.topics.led_under(master_epoch)
        if self._is_stamped and leads:
            self.stamp.led(self.version)

    def delete_topic(self, name: str, log_end: int) -> None:
        """Delete the topic, all offsets in it, and its queues. Messages beyond `log_end` create the topic again."""
        self.deletions.note(TOPIC, name, self.topics.epoch, log_end)
        self.topics.remove(name)
        self.resets.remove_topic(name)
        self._took_away(TOPIC, name, self.offsets.remove_topic(name))

    def delete_group(self, name: str, *, clean_offset: bool) -> None:
        """Delete the group, and its offsets if `clean_offset`. Later commits of the group count."""
        self.deletions.note(GROUP, name, self.topics.epoch)
        self.groups.remove(name)
        if clean_offset:
            self.deletions.note(OFFSETS, name, self.topics.epoch)
            self.resets.remove_group(name)
            self._took_away(OFFSETS, name, self.offsets.remove_group(name))

    def delete_user(self, name: str) -> None:
        """Delete the user and all its rights."""
        self.acls.remove(subject_of(name))
        self.users.remove(name)

    def cover(self, log: TablesLog, topic: str, queue_id: int) -> None:
        """Add a queue with messages to its topic, unless the messages are older than the topic's deletion."""
        deleted = self.deletions.of_topic(topic)
        if deleted is not None:
            last = log.entries(topic, queue_id, log.max_queue_offset(topic, queue_id) - 1, 1)
            if not last or last[0].physical_offset < deleted.log_end:
                return
        self.topics.cover(topic, queue_id)

    async def on_log_tail_lost(self, log: TablesLog, *, certain: bool) -> None:
        """Limit the groups' offsets to the `log` of this new master. The log has lost its end if `certain`, or, in a pair, if a
        group's offset is beyond it. Groups continue at the log's end, because none of them has read the records that replace
        the lost ones. On disk on return. Raises OSError."""
        from_file, self.offsets.from_file = self.offsets.from_file, False
        if not (certain or self._in_pair):
            if from_file:
                await self._distrust_offsets(log)
            return
        ends = self.offsets.ends(log.next_queue_offset)
        beyond = self.offsets.beyond(ends)
        wanted = ends if certain and len(ends) <= LIMITS_MAX else beyond
        limits = {key: end for key, end in wanted.items() if self.groups.find(key[0]) is not None}
        if not beyond and not limits:
            return
        watched = len(limits)
        try:
            self.resets.limit(limits)
        except ValueError as error:
            logger.warning("running consumers are not moved to the end of the shorter log: %s", error)
            watched = 0
        self.offsets.moved(beyond)
        self.saved_offsets.changed()
        logger.warning(
            "the log lost its end: consumer groups continue there, not beyond it",
            extra=fields(beyond=len(beyond), watched=watched),
        )
        await self.save_facts()

    async def _distrust_offsets(self, log: TablesLog) -> None:
        """Reset groups whose offset in the file is beyond a queue's end. The log is complete, so the file belongs to another
        log. The groups start at the queue's beginning, because their progress is not known. On disk on return. Raises
        OSError."""
        beyond = await self.offsets.beyond_ends(log.next_queue_offset)
        if not beyond:
            return
        moves = {key: log.min_queue_offset(key[1], key[2]) for key in beyond}
        group, topic, queue_id = next(iter(moves))
        self.offsets.moved(moves)
        self.saved_offsets.changed()
        logger.warning(
            "consumer offsets beyond the ends of their queues: the file is not of this log, these groups read their queues "
            "from the beginning",
            extra=fields(
                file=CONSUMER_OFFSETS_FILE, count=len(moves), group=group, topic=topic, queue=queue_id
            ),
        )
        await self.save_facts()

    # -- copies of slaves

    def copy(self) -> TablesCopy:
        """The present topics, groups, deletions, emptied queues, lock holders and moved groups."""
        ends = QueueEndTable([QueueEnd(*emptied) for emptied in self._store.emptied_queues()])
        return TablesCopy(
            self.topics.wrapper(),
            self.groups.wrapper,
            self.deletions.wrapper(),
            ends,
            self.locks.wrapper(),
            self.resets.wrapper(),
            UserTable(self.users.rows),
            AclTable(self.acls.rows),
        )

    def renew_version(self) -> None:
        """Make a new version. A slave that holds the new version was a slave of this master after the call."""
        self._next_version()
        self._notify(self._facts_callbacks)

    def log_trimmed(self) -> None:
        """Make a new version if retention has emptied queues, because slaves with an earlier one may be missing their ends."""
        if self._look_at_ends():
            self.renew_version()

    def _look_at_ends(self) -> bool:
        """Record emptied queues. Returns whether there are new ones."""
        emptied, former = _by_queue(self._store.emptied_queues()), self._emptied
        for key, end in emptied.items():
            if former.get(key) != end:
                self.changes.touch(end_row(*key))
        self._emptied = emptied
        return emptied != former

    def _adopt_ends(self, table: QueueEndTable) -> bool:
        """Adopt ends of queues. Returns whether any end is new."""
        self._emptied |= {(each.topic, each.queue_id): each.end for each in table.ends}
        return self._queue_ends.adopt(table)

    def slice_for(self, header: CopyTablesHeader) -> tuple[TablesVersionHeader, bytes]:
        """The changes since a slave's version, or all rows, at most SLICE_ROWS."""
        changes, named = self.changes, self._named
        if changes.now is None:
            changes.replace(self.rows.all(), named)
        follows = Named.parse(header.follows)
        since = changes.place_of(follows)
        behind = changes.first if since is None else since
        former = Named.parse(header.named)
        if former is not None and header.place is not None and former.life == named.life:
            behind = header.place if changes.goes_on_at(header.place) else behind
        if self._slice is None or self._slice[:2] != (named, behind):  # several slaves ask for the same slice
            self._slice = named, behind, *self._rows_after(behind)
        said = TablesVersionHeader(str(named.version), named=str(named), behind=behind, place=self._slice[3])
        said.since = None if since is None else str(follows)
        return said, self._slice[2]

    def _rows_after(self, behind: int) -> tuple[bytes, int | None]:
        """The next rows, encoded, and the place of the last of them if more rows follow."""
        count = SLICE_ROWS
        while True:
            rows, place = self.changes.after(behind, count)
            encoded = self.rows.changes(rows, with_forbidden=True).encode()
            if len(encoded) <= SLICE_BYTES_MAX or len(rows) <= 1:
                return encoded, place
            count = len(rows) // 2

    def adopt_changes(self, changes: TableChanges, named: Named) -> None:
        """Adopt the master's changes, after which the tables have the master's version. The caller saves them."""
        if self._is_stamped:
            self.stamp.took(named.version)
        rows = [*rows_of(changes)]
        self._unwritten |= dict.fromkeys(rows)
        if self._adopt_ends(QueueEndTable(changes.queue_ends)):
            self._saved_queue_ends.row_changed()
        if self.locks.apply(changes.locks, changes.locks_gone):
            self._saved_locks.row_changed()
        if self.topics.apply(changes.topics, changes.topics_gone, changes.topics_version):
            self.saved_topics.row_changed()
        if self.groups.apply(changes.groups, changes.groups_gone, changes.groups_version):
            self.saved_groups.row_changed()
        self._apply_access(changes)
        forgotten = changes.forgotten_epoch, changes.forgotten_number
        if changes.deletions or self.deletions.forgotten != forgotten:
            self._saved_deletions.row_changed()
            self._adopt_deletions(DeletionTable(changes.deletions, *forgotten))
        if self._apply_moves(changes):
            self.saved_offsets.row_changed()
        self.changes.apply(rows, named)
        known = (self.deletions.find(each.kind, each.name) for each in changes.deletions)
        self._keep_deletions_beside((each for each in known if each is not None), changes.deletions)

    def _apply_access(self, changes: TableChanges) -> None:
        before = self._access_changes
        if self.users.apply(changes.users, changes.users_gone):
            self._saved_users.row_changed()
        if self.acls.apply(changes.acls, changes.acls_gone):
            self._saved_acls.row_changed()
        if self._access_changes != before:
            self._notify(self._access_callbacks)

    def _adopt_access(self, copy: TablesCopy) -> None:
        before = self._access_changes
        if self.users.replace(copy.users.users):
            self._saved_users.changed()
        if self.acls.replace(copy.acls.acls):
            self._saved_acls.changed()
        if self._access_changes != before:
            self._notify(self._access_callbacks)

    @property
    def _access_changes(self) -> int:
        return self.users.changes + self.acls.changes

    def _apply_moves(self, changes: TableChanges) -> bool:
        """Adopt moves and limits of groups. Returns whether there are any."""
        if changes.resets or changes.resets_gone:
            moves = self.resets.apply(by_key(changes.resets), by_key(changes.resets_gone))
            gone = {key: at for key, at in by_key(changes.resets_gone).items() if at != NO_OFFSET}
            self.offsets.moved(moves | gone)
        if changes.limits or changes.limits_gone:
            limits = self.resets.limits.apply(by_key(changes.limits), by_key(changes.limits_gone))
            self.offsets.moved(self.offsets.beyond(limits))
        return bool(changes.resets or changes.resets_gone or changes.limits or changes.limits_gone)

    def adopt(self, copy: TablesCopy, version: TablesVersion | None = None, life: int = 0) -> None:
        """Replace the tables by the master's tables of this version. The caller saves them."""
        if self._is_stamped and version is not None:
            self.stamp.took(version)
        if self._adopt_ends(copy.queue_ends):
            self._saved_queue_ends.changed()
        if self.locks.adopt(copy.queue_locks):
            self._saved_locks.changed()
        self.saved_topics.changed(fact=self.topics.replace(copy.topics))
        self.saved_groups.changed(fact=self.groups.replace(copy.groups))
        self._adopt_access(copy)
        self._saved_deletions.changed(fact=self._adopt_deletions(copy.deletions, whole=True))
        if (moves := self.resets.adopt(copy.offset_resets)) is not None:
            self.offsets.moved(moves)
            self.saved_offsets.changed()
        if limits := self.resets.limits.adopt(copy.offset_resets):
            self.offsets.moved(self.offsets.beyond(limits))
            self.saved_offsets.changed()
        if version is not None:
            self.changes.replace(self.rows.all(), Named(version, life))
            self._keep_deletions_beside(self.deletions.wrapper().deletions, copy.deletions.deletions)

    def _keep_deletions_beside(self, known: Iterable[Deletion], of_master: Iterable[Deletion]) -> None:
        """Keep a former master's deletions that this master does not know. They were never acknowledged."""
        orders = {(each.kind, each.name): each.order for each in of_master}
        self.changes.keep_beside(
            deletion_row(each.kind, each.name)
            for each in known
            if each.order != orders.get((each.kind, each.name))
        )

    def _adopt_deletions(self, deletions: DeletionTable, *, whole: bool = False) -> bool:
        """Adopt deletions. Returns whether any deletion is new, or some may have been missed."""
        news, missed = self.deletions.adopt(deletions, whole=whole)
        for deletion in news:
            if deletion.kind == TOPIC:
                self._took_away(TOPIC, deletion.name, self.offsets.remove_topic(deletion.name))
            elif deletion.kind == OFFSETS:
                self._took_away(OFFSETS, deletion.name, self.offsets.remove_group(deletion.name))
        if missed:
            self.offsets.doubt()
        return bool(news) or missed

    def topics_deleted(self, topic_ends: Mapping[str, int]) -> None:
        """Adopt the log ends of topics' deletions from a master that is polled like upstream's. The next save stores them."""
        if self.deletions.adopt_topic_ends(topic_ends):
            self._saved_deletions.changed()
            self._wake.set()

    async def save_facts(self) -> None:
        """Save topics, groups, lock holders and deletions, with the removals of offsets: to the journal, or to the tables' own
        files if there are none yet or whole tables were replaced. Raises OSError."""
        async with self._saving:
            tables = [*self._of_journal, *([self._saved_stamp] if self._is_stamped else [])]
            if any(table.wants_file for table in tables):
                await self._save_fact_files()
            elif any(table.wants_journal for table in tables):
                await self._append_to_journal(tables)
            await self._note_present()

    async def _append_to_journal(self, tables: list[SavedTable]) -> None:
        rows, took = self._unwritten, self._took
        written = [(table, table.version) for table in tables if table.wants_journal]
        self._unwritten, self._took = {}, []
        stamp = self.stamp.version if self._is_stamped else None
        record = JournalRecord(
            self._journal.last + 1, self.rows.changes(rows), took, None if stamp is None else str(stamp)
        )
        try:
            await self._journal.append(record)
        except BaseException:
            self._unwritten, self._took = rows | self._unwritten, took + self._took
            raise
        for table, version in written:
            table.in_journal(version, record.number)

    async def _save_fact_files(self) -> None:
        rows, took = self._unwritten, self._took
        self._unwritten, self._took = {}, []
        try:
            await self._write_fact_files()
        except BaseException:
            self._unwritten, self._took = rows | self._unwritten, took + self._took
            raise

    async def _write_fact_files(self) -> None:
        stamp, deletions = self._saved_stamp.taken(), self._saved_deletions.taken()
        for table in (self.saved_topics, self.saved_groups, self.saved_offsets, *self._facts_of_ours):
            await table.save_facts()
        await self._saved_deletions.save_taken(deletions)
        await self._saved_stamp.save_taken(stamp)

    # -- files

    async def load(self) -> None:
        """Read all files. Raises TableUnreadable, JournalDamaged, OSError."""
        if self._is_stamped:
            await self._load_stamp()
        tables = (*self.copied_from_master.values(), self._saved_deletions, *self._facts_of_ours)
        missing = [table for table in tables if not await table.load()]
        self._refuse_missing(missing)
        await self._replay()
        if lost := [table.name for table in self._of_version if self._had_file(table) and not table.has_file]:
            logger.warning("tables are missing, copying the group's", extra=fields(files=";".join(lost)))
            self.stamp.lost()
            await self._saved_stamp.save()
        if self.keeps_filters:
            await self._saved_filters.load()
        await self._note_present()

    async def _note_present(self) -> None:
        """Record in the store that there are tables, so that a start detects if the whole folder is missing."""
        if not self._store.tables_noted and self._present():
            await self._store.note_tables()

    def _present(self) -> list[str]:
        return [table.name for table in (*self._of_journal, self._saved_delays) if table.on_disk]

    def _refuse_missing(self, missing: list[SavedTable]) -> None:
        """Refuse to start if a table is missing that another file names, or if all are missing although the store recorded
        some. In Raft mode the broker copies most missing tables from the group. Raises TableUnreadable."""
        tables = (*self._of_journal, self._saved_delays)
        if len(missing) == len(tables) and self._store.tables_noted:
            why = "all tables are missing, and the checkpoint says that there were some"
            raise TableUnreadable(FOLDER, why, begins_empty=TOPICS_FILE)
        named = frozenset[str]().union(*(table.names_tables for table in tables))
        for table in missing:
            if table.name in named and not self._had_file(table):
                raise TableUnreadable(
                    table.name, "the file is missing, and other tables were written after it"
                )

    async def _replay(self) -> None:
        """Apply records of the journal that the tables' own files do not include. Upstream's files name no record, so no record
        is applied to them."""
        marked = [table for table in (*self._of_journal, self._saved_stamp) if table.mark is not None]
        records = await self._journal.load(max((table.mark or 0 for table in marked), default=0))
        for record in records:
            self._replay_record(record)
        if records:
            for table in marked:
                table.changed(fact=False)
            logger.info("changes of tables read from their journal", extra=fields(records=len(records)))
        self._unwritten, self._took = {}, []

    def _replay_record(self, record: JournalRecord) -> None:
        def is_behind(table: SavedTable) -> bool:
            return table.mark is not None and table.mark < record.number

        changes = record.changes
        if is_behind(self.saved_topics):
            self.topics.apply(changes.topics, changes.topics_gone, changes.topics_version)
        if is_behind(self.saved_groups):
            self.groups.apply(changes.groups, changes.groups_gone, changes.groups_version)
        if is_behind(self._saved_deletions):
            forgotten = changes.forgotten_epoch, changes.forgotten_number
            self.deletions.adopt(DeletionTable(changes.deletions, *forgotten))
        if is_behind(self._saved_locks):
            self.locks.apply(changes.locks, changes.locks_gone)
        if is_behind(self._saved_users):
            self.users.apply(changes.users, changes.users_gone)
        if is_behind(self._saved_acls):
            self.acls.apply(changes.acls, changes.acls_gone)
        if is_behind(self._saved_queue_ends):
            self._adopt_ends(QueueEndTable(changes.queue_ends))
        if is_behind(self.saved_offsets):
            for took in record.took_away:
                remove = self.offsets.remove_topic if took.kind == TOPIC else self.offsets.remove_group
                remove(took.name)
            self._apply_moves(changes)
        if self._is_stamped and is_behind(self._saved_stamp):
            self.stamp.version = TablesVersion.parse(record.tables_version)

    async def keep_filters(self) -> None:
        """From now on keep filters, beginning with the filters in the file. Raises TableUnreadable, OSError."""
        await self._saved_filters.load()
        self.keeps_filters = True
        self._saved_filters.changed()

    async def _load_stamp(self) -> None:
        """Read the stamp. If there are no tables yet, first stores that, so that half of a first copy does not count as old."""
        try:
            if await self._saved_stamp.load():
                return
            self.stamp.version = OLDEST if await self.saved_topics.load() else None
        except TableUnreadable as error:
            logger.warning("the tables' version is unknown, copying the group's", extra=fields(why=error))
        self._saved_stamp.changed()
        await self._saved_stamp.save()

    def _had_file(self, table: SavedTable) -> bool:
        return self._is_stamped and table.name in self.stamp.covered_files

    async def run(self) -> None:
        """Write each change to the journal, and the tables' own files once per interval."""
        due_ms = self._clock.monotonic_ms() + self._interval_ms
        while True:
            await wait_event(self._wake, max(due_ms - self._clock.monotonic_ms(), 0))
            self._wake.clear()
            if self._clock.monotonic_ms() < due_ms:
                await self._write.perform(self.save_facts)
                continue
            due_ms = self._clock.monotonic_ms() + self._interval_ms
            await self._write.perform(self.save)

    async def save(self) -> None:
        """Write all changes to the tables' own files, also those in the journal, because upstream reads no journal. Raises
        OSError."""
        self._note_commits()
        await self.save_facts()
        journal = self._journal.end_file()
        await self._save()
        await self._journal.drop(journal)
        async with self._saving:
            await self._note_present()

    async def _save(self) -> None:
        stamp = self._saved_stamp.taken(in_journal_too=True)
        deletions = self._saved_deletions.taken(in_journal_too=True)
        for table in (*self.copied_from_master.values(), *self._facts_of_ours):
            await table.save()
        await self._saved_deletions.save_taken(deletions)
        await self._saved_stamp.save_taken(stamp)
        if self.keeps_filters:
            await self._saved_filters.save()

    def _stamped(self) -> None:
        self._saved_stamp.row_changed()

    def _took_away(self, kind: str, name: str, offsets: int) -> None:
        """Record that a deletion removed this number of offsets."""
        if offsets:
            self._took.append(TookAway(kind, name))
            self.saved_offsets.row_changed()

    def _note_commits(self) -> None:
        if self.offsets.commits != self._commits_saved:
            self._commits_saved = self.offsets.commits
            self.saved_offsets.changed(fact=False)
        if self.delays.advances != self._advances_saved:
            self._advances_saved = self.delays.advances
            self._saved_delays.changed(fact=False)

    def _topics_changed(self) -> None:
        self._row_changed(self.saved_topics)
        self._notify_topics()

    def _led(self) -> None:
        self.locks.led()
        self.saved_topics.changed(fact=False)
        self._changed()
        self._changed_topics.clear()
        self._notify_topics()

    def _groups_changed(self) -> None:
        self._row_changed(self.saved_groups)

    def _users_changed(self) -> None:
        self._row_changed(self._saved_users)
        self._notify(self._access_callbacks)

    def _acls_changed(self) -> None:
        self._row_changed(self._saved_acls)
        self._notify(self._access_callbacks)

    def _deletions_changed(self) -> None:
        self._row_changed(self._saved_deletions)

    def _locks_changed(self) -> None:
        self._row_changed(self._saved_locks)

    def _resets_changed(self) -> None:
        self._row_changed(self.saved_offsets)

    def _filters_changed(self) -> None:
        """Filters are saved in the next round; no slave copies them."""
        self._saved_filters.changed()

    def _row_changed(self, saved: SavedTable) -> None:
        saved.row_changed()
        self._changed()

    def _changed(self) -> None:
        self._next_version()
        self._wake.set()
        self._notify(self._facts_callbacks)

    def _next_version(self) -> None:
        self._revision += 1
        self.stamp.changed(self.version)
        if self._leads:
            self.changes.name(self._named)

    @property
    def _named(self) -> Named:
        return Named(self.version, self._life)

    def _notify_topics(self) -> None:
        names, self._changed_topics = [*self._changed_topics], {}
        for callback in self._topics_callbacks:
            callback(names)

    def _notify(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            callback()


def _by_queue(emptied: list[tuple[str, int, int]]) -> dict[tuple[str, int], int]:
    return {(topic, queue_id): end for topic, queue_id, end in emptied}
