"""A slave's copies, with a master of which every answer is scripted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.neighbours.slavesync import ALL_THAT_IS_HERE, SlaveSync
from broker.neighbours.tablecopy import TableCopy
from broker.settings.broker import BrokerSettings
from broker.tables.consumeroffsets import TRANSACTIONS_GROUP
from broker.tables.tables import Tables
from messagestore.systemtopics import HALF_TOPIC
from remoting.bodies.offsets import ConsumerOffsetWrapper, DelayOffsetWrapper
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.group import CopyTablesHeader, TablesVersionHeader
from tests.unit.doubles import ManualClock, MemoryFiles, NoQueues

MASTER = "10.0.0.1:10911"


class Synced(NoQueues):
    """Notes up to where the log is to be on disk."""

    def __init__(self) -> None:
        self.synced: list[int] = []

    async def synced_to(self, end: int) -> None:
        self.synced.append(end)


class Scene:
    """A slave of broker id 2; `asked` keeps what it says that it holds."""

    def __init__(self) -> None:
        self.master = Tables(BrokerSettings(), MemoryFiles(), ManualClock(), NoQueues())
        self.master.role_taken(3, leads=True)
        self.files = MemoryFiles()
        self.store = Synced()
        self.tables = Tables(BrokerSettings(), self.files, ManualClock(), self.store)
        self.role = SimpleNamespace(master_address=MASTER, master_epoch=3, broker_id=2)
        self.asked: list[str | None] = []
        self.offsets: tuple[str | None, ConsumerOffsetWrapper | DelayOffsetWrapper] = (
            None,
            ConsumerOffsetWrapper(),
        )
        self.is_old = False
        self.rests_on: int | None = None
        self.log_end = 0
        self.facts = TableCopy(
            cast(Any, self.role),
            client=cast(Any, self),
            clock=ManualClock(),
            tables=self.tables,
            interval_ms=1_000,
            on_known=lambda: self.copies.soon(),
        )
        self.copies = SlaveSync(
            cast(Any, self.role),
            client=cast(Any, self),
            clock=ManualClock(),
            tables=self.tables,
            interval_ms=1_000,
            facts=self.facts,
            holds=lambda end: end <= self.log_end,
        )

    async def call(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if request.code == RequestCode.COPY_TABLES:
            if self.is_old:
                return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "what is that?")
            header = CopyTablesHeader.from_ext(request.ext)
            self.asked.append(header.holds)
            if header.holds == str(self.master.version):
                return request.reply(header=TablesVersionHeader(header.holds))
            said, body = self.master.slice_for(header)
            return request.reply(header=said, body=body)
        version, table = self.offsets
        return request.reply(header=TablesVersionHeader(version, self.rests_on), body=table.encode())

    def copy(self, times: int = 1) -> None:
        async def copied() -> None:
            for _ in range(times):
                await self.facts._copy((MASTER, self.role.master_epoch))

        asyncio.run(copied())

    def copy_offsets(self, version: str | None, table: dict[str, dict[int, int]]) -> None:
        self.offsets = version, ConsumerOffsetWrapper(table)
        asyncio.run(self.copies._copy(MASTER, RequestCode.GET_ALL_CONSUMER_OFFSET))

    def copy_delay_offset(self, version: str | None, next_offset: int) -> int:
        """Of level 1; what stands here then."""
        self.offsets = version, DelayOffsetWrapper({1: next_offset})
        asyncio.run(self.copies._copy(MASTER, RequestCode.GET_ALL_DELAY_OFFSET))
        return self.tables.delays.next_offset(1)


def test_a_version_is_told_once_it_is_on_disk() -> None:
    scene = Scene()
    scene.master.topics.ensure("orders", 4)
    first = str(scene.master.version)
    scene.copy(2)
    assert scene.asked == [None, first]
    assert b"orders" in scene.files.content["config/topics.json"]
    scene.master.topics.ensure("invoices", 4)
    scene.copy(2)
    assert scene.asked == [None, first, first, str(scene.master.version)]


def test_offsets_are_asked_for_again_as_soon_as_the_tables_are_here_that_they_need() -> None:
    """They are refused before, and would come with the next round only: up to 10 s later."""
    scene = Scene()
    scene.copy()
    assert scene.copies._wake.is_set()
    scene.copies._wake.clear()
    scene.master.topics.ensure("orders", 4)
    scene.copy(2)
    assert not scene.copies._wake.is_set(), "the next ones of this master come in rounds"
    scene.role.master_epoch = 4
    scene.master.role_taken(4, leads=True)
    scene.copy()
    assert scene.copies._wake.is_set()


def test_what_was_made_here_meanwhile_gives_way_to_the_masters_word() -> None:
    scene = Scene()
    scene.copy()
    scene.tables.groups.find_or_create("reader")
    scene.copy(2)
    assert scene.asked[1] is None
    assert scene.tables.groups.find("reader") is None


def test_another_master_is_told_nothing_of_the_former_ones_versions() -> None:
    scene = Scene()
    scene.copy()
    scene.role.master_epoch = 4
    scene.copy()
    assert scene.asked == [None, None]


def test_a_former_master_at_the_address_of_the_present_one_is_not_copied() -> None:
    """Cluster seed 302: it takes itself for the master yet, and its tables lack what its successor was told."""
    scene = Scene()
    scene.master.topics.ensure("orders", 4)
    scene.role.master_epoch = 4
    scene.copy()
    assert scene.tables.topics.find("orders") is None and scene.files.content == {}
    scene.master.role_taken(4, leads=True)
    scene.copy()
    assert scene.tables.topics.find("orders") is not None


def test_offsets_of_before_a_deletion_do_not_come_in_behind_it() -> None:
    scene = Scene()
    table = {"orders@CG": {0: 7}}
    before = str(scene.master.version)
    scene.copy()
    scene.copy_offsets(before, table)
    assert scene.tables.offsets.find("CG", "orders", 0) == 7
    scene.master.delete_group("CG", clean_offset=True)
    scene.copy()
    scene.copy_offsets(before, table)
    assert scene.tables.offsets.find("CG", "orders", 0) is None
    scene.copy_offsets(str(scene.master.version), {"orders@CG": {0: 8}})
    assert scene.tables.offsets.find("CG", "orders", 0) == 8, "committed after the deletion"
    scene.copy()
    assert scene.tables.offsets.find("CG", "orders", 0) == 8
    assert scene.asked[-1] == str(scene.master.version)


@pytest.mark.parametrize("version", ["3.900", "0.0", None])
def test_offsets_of_who_is_not_the_present_master_are_not_copied(version: str | None) -> None:
    """Cluster seed 2185301229306283: a former master, or a slave, at its address brought back what was deleted."""
    scene = Scene()
    scene.master.role_taken(4, leads=True)
    scene.role.master_epoch = 4
    for _ in range(2):
        scene.copy_offsets(version, {"orders@CG": {0: 7}})
        assert scene.tables.offsets.find("CG", "orders", 0) is None
        assert scene.copy_delay_offset(version, 7) == 0
        scene.copy()
    scene.copy_offsets(str(scene.master.version), {"orders@CG": {0: 8}})
    assert scene.tables.offsets.find("CG", "orders", 0) == 8
    assert scene.copy_delay_offset(str(scene.master.version), 8) == 8


def test_delay_offsets_of_a_master_of_before_they_had_a_version_come_behind_its_consumer_offsets() -> None:
    """Else a slave that is upgraded first delivers everything again that was scheduled since, once it leads."""
    scene = Scene()
    scene.copy()
    assert scene.copy_delay_offset(None, 7) == 0, "nothing tells yet that it leads"
    scene.copy_offsets(str(scene.master.version), {"orders@CG": {0: 7}})
    assert scene.copy_delay_offset(None, 7) == 7
    scene.copy_offsets("2.900", {"orders@CG": {0: 7}})
    assert scene.copy_delay_offset(None, 8) == 7, "another answers at its address"
    scene.copy_offsets(str(scene.master.version), {"orders@CG": {0: 8}})
    assert scene.copy_delay_offset("0.0", 8) == 7, "it leads no more"
    scene.role.master_epoch = 4
    assert scene.copy_delay_offset(None, 9) == 7


def test_offsets_of_a_java_master_are_copied_though_it_says_nothing_of_versions() -> None:
    scene = Scene()
    scene.is_old = True
    scene.copy()
    scene.copy_offsets(None, {"orders@CG": {0: 7}})
    assert scene.tables.offsets.find("CG", "orders", 0) == 7
    assert scene.copy_delay_offset(None, 7) == 7


def test_a_reply_of_who_is_no_master_changes_nothing() -> None:
    scene = Scene()
    refusal = RemotingCommand.request(RequestCode.COPY_TABLES).reply(ResponseCode.SERVICE_NOT_AVAILABLE, "no")

    async def refused(address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        return refusal

    scene.call = refused  # type: ignore[method-assign]
    before = scene.tables.version
    scene.copy()
    assert scene.tables.version == before
    assert scene.files.content == {}


def test_of_offsets_that_rest_on_what_this_log_lacks_only_those_of_consumers_are_copied() -> None:
    scene = Scene()
    scene.copy()
    version, own = str(scene.master.version), f"{HALF_TOPIC}@{TRANSACTIONS_GROUP}"
    scene.log_end, scene.rests_on = 99, 100
    scene.copy_offsets(version, {"orders@CG": {0: 7}, own: {0: 5}})
    assert scene.tables.offsets.find("CG", "orders", 0) == 7
    assert scene.tables.offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) is None
    assert scene.copy_delay_offset(version, 7) == 0
    assert "config/delayOffset.json" not in scene.files.content
    scene.log_end = 100
    scene.copy_offsets(version, {"orders@CG": {0: 7}, own: {0: 5}})
    assert scene.tables.offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) == 5
    assert scene.copy_delay_offset(version, 7) == 7
    assert scene.store.synced == [0, 100, 100], "the log is on disk first"


def test_what_offsets_of_another_version_rest_on_is_all_that_is_here() -> None:
    scene = Scene()
    scene.copy()
    assert scene.copy_delay_offset(str(scene.master.version), 7) == 7
    assert scene.store.synced == [ALL_THAT_IS_HERE]
