"""The broker's tables and their files: topics, consumer groups, consumer offsets, delay offsets.

Invariant: a change of topics or groups is written at once, of offsets within `flushConsumerOffsetInterval`, and all of
them at a graceful stop. A disk that takes nothing delays the writing; it does not stop the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.settings.broker import BrokerSettings
from broker.tables.consumeroffsets import CONSUMER_OFFSETS_FILE, ConsumerOffsets
from broker.tables.delayoffsets import DELAY_OFFSETS_FILE, DelayOffsets
from broker.tables.savedtable import SavedTable
from broker.tables.subscriptiongroups import SUBSCRIPTION_GROUPS_FILE, SubscriptionGroups
from broker.tables.topics import TOPICS_FILE, Topics, system_topics
from mqruntime.clock import Clock
from mqruntime.diskfull import RetriedWrite
from mqruntime.smallfiles import SmallFiles
from mqruntime.waking import woken
from remoting.codes import RequestCode

logger = logging.getLogger("broker.tables")


class Tables:
    """What a broker keeps beside its log."""

    def __init__(self, settings: BrokerSettings, files: SmallFiles, clock: Clock) -> None:
        self._interval_ms = settings.flush_consumer_offset_interval
        self._topics_callbacks: list[Callable[[], None]] = []
        self._write = RetriedWrite(
            logger,
            "tables cannot be written, trying on",
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
        )
        self.topics = Topics(clock, system, self._topics_changed)
        self.groups = SubscriptionGroups(
            clock, auto_create=settings.auto_create_subscription_group, on_change=self._groups_changed
        )
        self.offsets = ConsumerOffsets()
        self.delays = DelayOffsets()
        self.saved_topics = SavedTable(files, TOPICS_FILE, self.topics.encode, self.topics.decode)
        self.saved_groups = SavedTable(
            files, SUBSCRIPTION_GROUPS_FILE, self.groups.encode, self.groups.decode
        )
        self.saved_offsets = SavedTable(
            files, CONSUMER_OFFSETS_FILE, self.offsets.encode, self.offsets.decode
        )
        self._saved_delays = SavedTable(files, DELAY_OFFSETS_FILE, self.delays.encode, self.delays.decode)
        self._commits_saved = 0
        self._advances_saved = 0

    def on_topics_changed(self, callback: Callable[[], None]) -> None:
        """`callback` runs after each change of a topic made here."""
        self._topics_callbacks.append(callback)

    @property
    def copied_from_master(self) -> dict[RequestCode, SavedTable]:
        """The tables by the request that a slave copies them with."""
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.saved_topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.saved_groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.saved_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._saved_delays,
        }

    async def load(self) -> None:
        """Raises TableUnreadable, OSError."""
        for table in self.copied_from_master.values():
            await table.load()

    async def run(self) -> None:
        """Keep the files in step."""
        while True:
            if not await woken(self._wake, self._interval_ms):
                self._note_commits()
            self._wake.clear()
            await self._write.perform(self._save)

    async def save(self) -> None:
        """Write whatever is not on disk. OSError."""
        self._note_commits()
        await self._save()

    async def _save(self) -> None:
        for table in self.copied_from_master.values():
            await table.save()

    def _note_commits(self) -> None:
        if self.offsets.commits != self._commits_saved:
            self._commits_saved = self.offsets.commits
            self.saved_offsets.changed()
        if self.delays.advances != self._advances_saved:
            self._advances_saved = self.delays.advances
            self._saved_delays.changed()

    def _topics_changed(self) -> None:
        self.saved_topics.changed()
        self._wake.set()
        for callback in self._topics_callbacks:
            callback()

    def _groups_changed(self) -> None:
        self.saved_groups.changed()
        self._wake.set()
