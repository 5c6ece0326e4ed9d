"""A slave's copies of tables and offsets, with a scripted master."""

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
from tests.support.doubles import ManualClock, MemoryFiles, NoQueues

MASTER = "10.0.0.1:10911"


class Synced(NoQueues):
    """Records the log ends that must be on disk."""

    def __init__(self) -> None:
        self.synced: list[int] = []

    async def synced_to(self, end: int) -> None:
        self.synced.append(end)


class Scene:
    """A slave with broker id 2; `asked` records the versions that it reports as held."""

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
            answer_header, body = self.master.slice_for(header)
            return request.reply(header=answer_header, body=body)
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
        """Copies the delay offset of level 1, and returns the slave's offset afterwards."""
        self.offsets = version, DelayOffsetWrapper({1: next_offset})
        asyncio.run(self.copies._copy(MASTER, RequestCode.GET_ALL_DELAY_OFFSET))
        return self.tables.delays.next_offset(1)


def test_a_slave_reports_a_version_once_it_is_on_disk() -> None:
    scene = Scene()
    scene.master.topics.ensure("orders", 4)
    first = str(scene.master.version)
    scene.copy(2)
    assert scene.asked == [None, first]
    assert b"orders" in scene.files.content["config/topics.json"]
    scene.master.topics.ensure("invoices", 4)
    scene.copy(2)
    assert scene.asked == [None, first, first, str(scene.master.version)]


def test_offsets_are_requested_again_as_soon_as_the_tables_they_need_are_copied() -> None:
    """Before that they are refused; the next round would come up to 10 s later."""
    scene = Scene()
    scene.copy()
    assert scene.copies._wake.is_set()
    scene.copies._wake.clear()
    scene.master.topics.ensure("orders", 4)
    scene.copy(2)
    assert not scene.copies._wake.is_set(), "later copies of this master come in rounds"
    scene.role.master_epoch = 4
    scene.master.role_taken(4, leads=True)
    scene.copy()
    assert scene.copies._wake.is_set()


def test_a_group_created_on_the_slave_is_removed_by_the_next_copy() -> None:
    scene = Scene()
    scene.copy()
    scene.tables.groups.find_or_create("reader")
    scene.copy(2)
    assert scene.asked[1] is None
    assert scene.tables.groups.find("reader") is None


def test_a_slave_reports_no_version_of_a_former_master_to_the_next_one() -> None:
    scene = Scene()
    scene.copy()
    scene.role.master_epoch = 4
    scene.copy()
    assert scene.asked == [None, None]


def test_tables_of_a_former_master_at_the_masters_address_are_not_copied() -> None:
    """Cluster seed 302: it still believes to be master, and its tables miss changes made at its successor."""
    scene = Scene()
    scene.master.topics.ensure("orders", 4)
    scene.role.master_epoch = 4
    scene.copy()
    assert scene.tables.topics.find("orders") is None and scene.files.content == {}
    scene.master.role_taken(4, leads=True)
    scene.copy()
    assert scene.tables.topics.find("orders") is not None


def test_offsets_from_before_a_deletion_are_not_copied_after_it() -> None:
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
def test_offsets_without_a_version_of_the_current_master_are_not_copied(version: str | None) -> None:
    """Cluster seed 2185301229306283: a former master, or a slave, at its address restored deleted offsets."""
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


def test_delay_offsets_without_a_version_are_copied_only_after_consumer_offsets() -> None:
    """Otherwise a slave that is upgraded first would repeat all deliveries since then once it leads."""
    scene = Scene()
    scene.copy()
    assert scene.copy_delay_offset(None, 7) == 0, "nothing shows yet that this broker is the master"
    scene.copy_offsets(str(scene.master.version), {"orders@CG": {0: 7}})
    assert scene.copy_delay_offset(None, 7) == 7
    scene.copy_offsets("2.900", {"orders@CG": {0: 7}})
    assert scene.copy_delay_offset(None, 8) == 7, "another broker answers at its address"
    scene.copy_offsets(str(scene.master.version), {"orders@CG": {0: 8}})
    assert scene.copy_delay_offset("0.0", 8) == 7, "it is not the master any more"
    scene.role.master_epoch = 4
    assert scene.copy_delay_offset(None, 9) == 7


def test_offsets_of_a_java_master_are_copied_without_a_version() -> None:
    scene = Scene()
    scene.is_old = True
    scene.copy()
    scene.copy_offsets(None, {"orders@CG": {0: 7}})
    assert scene.tables.offsets.find("CG", "orders", 0) == 7
    assert scene.copy_delay_offset(None, 7) == 7


def test_a_refused_copy_of_tables_changes_nothing() -> None:
    scene = Scene()
    refusal = RemotingCommand.request(RequestCode.COPY_TABLES).reply(ResponseCode.SERVICE_NOT_AVAILABLE, "no")

    async def refused(address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        return refusal

    scene.call = refused  # type: ignore[method-assign]
    before = scene.tables.version
    scene.copy()
    assert scene.tables.version == before
    assert scene.files.content == {}


def test_own_offsets_that_rest_on_a_missing_part_of_the_log_are_not_copied() -> None:
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
    assert scene.store.synced == [0, 100, 100], "the log is synced before the offsets are written"


def test_offsets_without_a_log_end_rest_on_the_whole_local_log() -> None:
    scene = Scene()
    scene.copy()
    assert scene.copy_delay_offset(str(scene.master.version), 7) == 7
    assert scene.store.synced == [ALL_THAT_IS_HERE]
