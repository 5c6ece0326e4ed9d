"""The files under config/ at a start: missing, empty, corrupt, malformed or cut, with or without a backup."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from broker.settings.broker import BrokerSettings
from broker.tables.consumerfilters import CONSUMER_FILTERS_FILE
from broker.tables.consumeroffsets import CONSUMER_OFFSETS_FILE
from broker.tables.delayoffsets import DELAY_OFFSETS_FILE
from broker.tables.deletions import DELETIONS_FILE
from broker.tables.queueends import QUEUE_ENDS_FILE
from broker.tables.queuelocks import QUEUE_LOCKS_FILE
from broker.tables.savedtable import TableUnreadable
from broker.tables.stamp import STAMP_FILE
from broker.tables.subscriptiongroups import SUBSCRIPTION_GROUPS_FILE
from broker.tables.tables import Tables
from broker.tables.topics import TOPICS_FILE
from messagestore.checkpoint import says_tables
from messagestore.store.messagestore import MessageStore
from mqruntime.realruntime import real_runtime
from remoting.bodies.filters import ConsumerFilterWrapper
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.offsets import ConsumerOffsetWrapper
from remoting.bodies.tables import QueueEnd, QueueEndTable
from remoting.bodies.topics import TopicConfig
from tests.support.doubles import ManualClock, MemoryFiles, NoQueues
from tests.unit.messagestore.storehelp import open_store

TABLES = (
    TOPICS_FILE, SUBSCRIPTION_GROUPS_FILE, CONSUMER_OFFSETS_FILE, DELAY_OFFSETS_FILE, DELETIONS_FILE, QUEUE_LOCKS_FILE,
    QUEUE_ENDS_FILE, CONSUMER_FILTERS_FILE,
)  # fmt: skip
OF_VERSION = {TOPICS_FILE, SUBSCRIPTION_GROUPS_FILE, DELETIONS_FILE, QUEUE_LOCKS_FILE, QUEUE_ENDS_FILE}
"""In Raft mode copies of the group replace these tables."""
DAMAGES = {
    "empty": lambda good: b"",
    "random": lambda good: bytes(range(7, 256, 5)),
    "other-object": lambda good: b'{"something":{"else":1}}',
    "list": lambda good: b"[1,2]",
    "half": lambda good: good[: len(good) // 2],
}
MODES = {"pair": {"in_pair": True}, "controllers": {}, "raft": {"stamped": True}}


class AnyQueues(NoQueues):
    def __init__(self, *, tables_noted: bool = False) -> None:
        self.tables_noted = tables_noted

    def queue_ends_at_least(self, topic: str, queue_id: int, end: int) -> None: ...


def tables_over(files: MemoryFiles, mode: str = "controllers", store: AnyQueues | None = None) -> Tables:
    settings = BrokerSettings(enable_property_filter=True)
    return Tables(settings, files, ManualClock(), store or AnyQueues(), **MODES[mode])


async def filled(mode: str) -> MemoryFiles:
    """The files of a broker of that mode with rows in each table."""
    files = MemoryFiles({CONSUMER_FILTERS_FILE: ConsumerFilterWrapper().encode()})
    tables = tables_over(files, mode)
    await tables.load()
    tables.role_taken(1, leads=True)
    tables.topics.put(TopicConfig("orders", 4, 4))
    tables.groups.put(SubscriptionGroupConfig("CG"))
    tables.offsets.commit("CG", "orders", 0, 5)
    tables.delays.advance(3, 7)
    tables.delete_topic("former", 9)
    tables.saved_topics.changed()
    tables._saved_locks.changed()
    tables._queue_ends.adopt(QueueEndTable([QueueEnd("old", 0, 76)]))
    tables._saved_queue_ends.changed()
    await tables.save()
    tables.role_taken(2, leads=True)  # like each start, which writes topics.json again
    await tables.save()
    return files


def test_every_file_under_config_is_covered_by_these_tests() -> None:
    kept = set(asyncio.run(filled("raft")).content)
    assert kept == {*TABLES, STAMP_FILE}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_without_a_backup_stops_the_start_with_a_remedy(
    name: str, damage: str, mode: str
) -> None:
    files = asyncio.run(filled(mode))
    files.content[name] = DAMAGES[damage](files.content[name])
    before = dict(files.content)
    with pytest.raises(TableUnreadable, match=rf"{name}: .*from another replica.*start empty"):
        asyncio.run(tables_over(files, mode).load())
    assert files.content == before or mode == "raft"  # Raft mode writes a new stamp
    files.content[name] = b"{}"
    asyncio.run(tables_over(files, mode).load())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TABLES[:-1])
def test_a_missing_file_stops_the_start_if_other_files_were_written_after_it(
    name: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = asyncio.run(filled(mode))
    del files.content[name]
    if mode == "raft" and name in OF_VERSION:
        tables = tables_over(files, mode)
        asyncio.run(tables.load())
        assert "tables are missing" in caplog.text
        assert tables.stamp.version is None
        return
    with pytest.raises(TableUnreadable, match=rf"{name}: the file is missing"):
        asyncio.run(tables_over(files, mode).load())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("left", ["", "config/tables.journal.", STAMP_FILE])
def test_a_store_that_had_tables_does_not_start_when_all_are_missing(left: str, mode: str) -> None:
    files = asyncio.run(filled(mode))
    files.content["config/tables.journal.00000001"] = b""
    files.content = {name: data for name, data in files.content.items() if left and name.startswith(left)}
    before = dict(files.content)
    remedy = r"config: all tables are missing.*write {} into config/topics\.json to start empty"
    with pytest.raises(TableUnreadable, match=remedy):
        asyncio.run(tables_over(files, mode, AnyQueues(tables_noted=True)).load())
    assert files.content == before or mode == "raft"  # Raft mode writes a new stamp
    with pytest.raises(TableUnreadable, match=remedy):
        asyncio.run(tables_over(files, mode, AnyQueues(tables_noted=True)).load())
    files.content[TOPICS_FILE] = b"{}"
    asyncio.run(tables_over(files, mode, AnyQueues(tables_noted=True)).load())


@pytest.mark.parametrize("mode", MODES)
def test_a_store_notes_tables_once_one_is_on_disk(mode: str) -> None:
    files, store = MemoryFiles(), AnyQueues()

    async def first() -> None:
        tables = tables_over(files, mode, store)
        await tables.load()
        await tables.save()
        assert not store.tables_noted, "no file exists yet"
        tables.topics.put(TopicConfig("orders", 4, 4))
        await tables.save_facts()

    asyncio.run(first())
    assert store.tables_noted and TOPICS_FILE in files.content
    again = AnyQueues()
    asyncio.run(tables_over(files, mode, again).load())
    assert again.tables_noted, "a store of an older version or of Java notes them at its first start"


@pytest.mark.parametrize("with_row", [True, False], ids=["facts", "offsets"])
def test_a_new_broker_that_is_killed_notices_the_loss_of_its_first_tables(
    tmp_path: Path, *, with_row: bool
) -> None:
    """No message ever came, so nothing else writes a checkpoint."""
    root, image = tmp_path / "store", tmp_path / "image"
    root.mkdir()

    def tables_of(place: Path, store: MessageStore) -> Tables:
        return Tables(BrokerSettings(), real_runtime(place).files, ManualClock(), store)

    async def first() -> None:
        store = open_store(root)
        await store.start(saves=False)
        tables = tables_of(root, store)
        await tables.load()
        await store.saves_from_now()
        if with_row:
            tables.topics.put(TopicConfig("orders", 4, 4))
            await tables.save_facts()
        else:
            tables.offsets.commit("CG", "orders", 0, 0)
            await tables.save()
        shutil.copytree(root, image)  # what a kill leaves
        await store.stop()

    async def again(*, is_lost: bool) -> None:
        store = open_store(image)
        await store.start(saves=False)
        if is_lost:
            with pytest.raises(TableUnreadable, match="all tables are missing"):
                await tables_of(image, store).load()
        else:
            await tables_of(image, store).load()
        await store.stop()

    asyncio.run(first())
    asyncio.run(again(is_lost=False))
    shutil.rmtree(image / "config")
    asyncio.run(again(is_lost=True))


def test_a_new_broker_without_tables_may_be_killed_at_any_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path)
        await store.start(saves=False)
        tables = Tables(BrokerSettings(), real_runtime(tmp_path).files, ManualClock(), store)
        await tables.load()
        await store.saves_from_now()
        await tables.save()
        assert not store.tables_noted and not says_tables((tmp_path / "checkpoint").read_bytes())
        await store.stop()

    asyncio.run(scenario())


def test_no_change_is_answered_before_the_note_that_there_are_tables() -> None:
    """Two administrators: neither is answered before the note that the first one's change causes."""
    noting, answered = asyncio.Event(), list[str]()

    class Noting(AnyQueues):
        async def note_tables(self) -> None:
            self.tables_noted = True
            await noting.wait()

    async def live() -> None:
        tables = tables_over(MemoryFiles(), store=Noting())
        await tables.load()

        async def put(topic: str) -> None:
            tables.topics.put(TopicConfig(topic, 4, 4))
            await tables.save_facts()
            answered.append(topic)

        both = [asyncio.create_task(put(topic)) for topic in ("first", "second")]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not answered
        noting.set()
        await asyncio.gather(*both)

    asyncio.run(live())
    assert answered == ["first", "second"]


def test_a_table_whose_first_write_failed_does_not_count_as_missing() -> None:
    """A full disk refused the offsets, later accepted the topics, and then the process ended."""

    class Full(MemoryFiles):
        async def replace(self, name: str, data: bytes | bytearray) -> None:
            if name == CONSUMER_OFFSETS_FILE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            await super().replace(name, data)

    files = Full()

    async def live() -> None:
        tables = tables_over(files)
        await tables.load()
        for topic in ("first", "second"):
            tables.topics.put(TopicConfig(topic, 4, 4))
            tables.offsets.commit("CG", topic, 0, 5)
            with pytest.raises(OSError, match="No space"):
                await tables.save()

    asyncio.run(live())
    asyncio.run(tables_over(files).load())


@pytest.mark.parametrize("mode", MODES)
def test_a_broker_starts_with_tables_of_java_or_an_older_version_if_one_is_missing(mode: str) -> None:
    files = asyncio.run(filled(mode))
    for name in TABLES:
        content = json.loads(files.content[name])
        content.pop("tables", None)
        files.content[name] = json.dumps(content).encode()
    del files.content[DELAY_OFFSETS_FILE]
    tables = tables_over(files, mode, AnyQueues(tables_noted=True))
    asyncio.run(tables.load())
    assert tables.delays.next_offset(3) == 0 and tables.topics.find("orders") is not None


@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
@pytest.mark.parametrize("name", TABLES)
def test_a_backup_of_java_is_read_and_logged(
    name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = asyncio.run(filled("controllers"))
    good = json.loads(files.content[name])
    for mark in ("journal", "tables"):
        good.pop(mark, None)  # files of Java have no marks
    backup = files.content[f"{name}.bak"] = json.dumps(good).encode()
    if damage == "missing":
        del files.content[name]
    else:
        files.content[name] = DAMAGES[damage](backup)
    tables = tables_over(files)
    with caplog.at_level(logging.WARNING):
        asyncio.run(tables.load())
    assert [record.message for record in caplog.records] == [
        "table read from its backup, later changes are lost"
    ]
    assert tables.topics.find("orders") is not None
    assert tables.groups.find("CG") is not None
    assert (tables.offsets.find("CG", "orders", 0), tables.delays.next_offset(3)) == (5, 7)


def test_a_backup_older_than_the_table_of_this_broker_is_not_read() -> None:
    files = asyncio.run(filled("controllers"))
    written = files.content[CONSUMER_OFFSETS_FILE]
    files.content[f"{CONSUMER_OFFSETS_FILE}.bak"] = b'{"offsetTable":{"orders@CG":{"0":1}}}'
    files.content[CONSUMER_OFFSETS_FILE] = DAMAGES["half"](written)
    with pytest.raises(TableUnreadable, match=r"rename config/consumerOffset\.json\.bak"):
        asyncio.run(tables_over(files).load())


@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
def test_a_raft_mode_broker_with_a_damaged_stamp_has_no_or_the_oldest_version(damage: str) -> None:
    files = asyncio.run(filled("raft"))
    good = files.content.pop(STAMP_FILE)
    if damage != "missing":
        files.content[STAMP_FILE] = DAMAGES[damage](good)
    tables = tables_over(files, "raft")
    asyncio.run(tables.load())
    assert tables.stamp.version is None or str(tables.stamp.version) == "0.0"


class Queues:
    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return 5 if topic == "orders" else 0

    max_queue_offset = next_queue_offset

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return 2 if topic == "orders" else 0

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[object]:
        return []


@pytest.mark.parametrize(("mode", "continues_at"), [("pair", 5), ("controllers", 2), ("raft", 2)])
def test_an_offsets_file_of_another_log_lets_no_group_skip_messages(
    mode: str, continues_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = asyncio.run(filled(mode))
    files.content[CONSUMER_OFFSETS_FILE] = b'{"offsetTable":{"orders@CG":{"0":100,"1":4},"gone@CG":{"0":9}}}'

    async def start() -> Tables:
        tables = tables_over(files, mode)
        await tables.load()
        await tables.on_log_tail_lost(Queues(), certain=False)
        return tables

    tables = asyncio.run(start())
    assert tables.offsets.find("CG", "orders", 0) == continues_at
    assert (tables.offsets.find("CG", "orders", 1), tables.offsets.find("CG", "gone", 0)) == (4, 0)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    tables.offsets.commit("CG", "orders", 0, 100)
    asyncio.run(tables.on_log_tail_lost(Queues(), certain=False))
    assert mode == "pair" or tables.offsets.find("CG", "orders", 0) == 100, (
        "an offset committed here does not come from the file"
    )


def test_offsets_copied_from_a_master_are_not_lowered_to_the_log() -> None:
    """After an unclean election a group may be beyond this log: it must not read the whole log again."""
    files = asyncio.run(filled("controllers"))
    tables = tables_over(files)
    asyncio.run(tables.load())
    tables.offsets.adopt(ConsumerOffsetWrapper({"orders@CG": {0: 100}}))
    asyncio.run(tables.on_log_tail_lost(Queues(), certain=False))
    assert tables.offsets.find("CG", "orders", 0) == 100
