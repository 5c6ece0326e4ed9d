"""Deletions, holders of table versions, and topics restored from the log, each driven with literals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.settings.broker import BrokerSettings
from broker.tables import deletions as module
from broker.tables.deletions import AGE_MS_MAX, DELETIONS_FILE, GROUP, OFFSETS, TOPIC, Deletions
from broker.tables.holders import OLD_HOSTS_MAX, Holders, TablesVersion
from broker.tables.tables import Tables
from broker.tables.topics import TOPICS_FILE
from messagestore.messages import QueueEntry
from remoting.bodies.offsets import ConsumerOffsetWrapper
from remoting.bodies.tables import DeletionTable, TablesCopy
from tests.support.doubles import ManualClock, MemoryFiles, NoQueues


def deletions(clock: ManualClock | None = None) -> Deletions:
    return Deletions(clock or ManualClock(), lambda: None)


def tables(files: MemoryFiles | None = None) -> Tables:
    return Tables(BrokerSettings(), files or MemoryFiles(), ManualClock(), NoQueues())


class QueueOf:
    """A log with one queue, whose last message is at `last`."""

    def __init__(self, last: int | None) -> None:
        self.last = last

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return 0 if self.last is None else 5

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]:
        return [] if self.last is None else [QueueEntry(self.last, 100, 0)]


# -- deletions


def test_a_deletion_is_adopted_once() -> None:
    master, slave = deletions(), deletions()
    master.note(OFFSETS, "CG", 3)
    wrapper = DeletionTable.decode(master.encode())
    assert [at.name for at in slave.adopt(wrapper)[0]] == ["CG"]
    assert slave.adopt(wrapper) == ([], False)
    master.note(OFFSETS, "CG", 3)
    assert len(slave.adopt(master.wrapper())[0]) == 1, "deleted once more"


def test_the_next_master_continues_the_numbers_of_deletions() -> None:
    first, second = deletions(), deletions()
    first.note(TOPIC, "a", 3)
    second.adopt(first.wrapper())
    second.note(TOPIC, "a", 4)
    assert first.adopt(second.wrapper())[0][0].order == (4, 2)
    assert second.adopt(DeletionTable([at for at in first.wrapper().deletions if at.epoch == 3])) == (
        [],
        False,
    )


def test_old_deletions_expire_except_those_of_topics_and_a_slave_detects_the_gap() -> None:
    clock = ManualClock()
    master, slave = deletions(clock), deletions(clock)
    master.note(OFFSETS, "CG", 1)
    master.note(TOPIC, "orders", 1)
    clock.ms += AGE_MS_MAX + 1
    master.note(GROUP, "other", 1)
    assert [at.name for at in master.wrapper().deletions] == ["orders", "other"]
    news, missed = slave.adopt(DeletionTable.decode(master.encode()))
    assert (len(news), missed) == (2, True)
    assert slave.adopt(master.wrapper()) == ([], False)


def test_remembered_deletions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELETIONS_MAX", 3)
    master, slave = deletions(), deletions()
    for number in range(5):
        master.note(TOPIC, f"topic-{number}", 1)
    assert [at.name for at in master.wrapper().deletions] == ["topic-2", "topic-3", "topic-4"]
    assert slave.adopt(master.wrapper())[1]


def test_a_slave_that_missed_deletions_replaces_its_offsets_by_the_next_copy() -> None:
    master, slave = tables(), tables()
    slave.offsets.commit("gone", "orders", 0, 7)
    slave.adopt(TablesCopy(master.topics.wrapper(), master.groups.wrapper, DeletionTable([], 4, 9)))
    assert slave.offsets.find("gone", "orders", 0) == 7
    assert slave.offsets.adopt(ConsumerOffsetWrapper()), "its file is to be written"
    assert slave.offsets.find("gone", "orders", 0) is None
    slave.offsets.commit("mine", "orders", 0, 1)
    slave.offsets.adopt(ConsumerOffsetWrapper({"orders@CG": {0: 4}}))
    assert slave.offsets.find("mine", "orders", 0) == 1, "only the next"


def marked(table: Deletions) -> dict[str, int]:
    """The last mark of each topic that the table passes to the store from now on."""
    marks: dict[str, int] = {}
    table.on_topic = marks.__setitem__
    return marks


def test_the_log_offset_of_a_topic_deletion_survives_copy_and_reload() -> None:
    master, slave, again = deletions(), deletions(), deletions()
    marks = [marked(table) for table in (master, slave, again)]
    master.note(TOPIC, "orders", 3, 1_000)
    master.note(GROUP, "orders", 3)
    slave.adopt(master.wrapper(), whole=True)
    again.decode(slave.encode())
    assert marks == [{"orders": 1_000}] * 3
    master.note(TOPIC, "orders", 3, 2_000)
    slave.adopt(master.wrapper(), whole=True)
    assert marks[:2] == [{"orders": 2_000}] * 2


def test_a_forgotten_deletion_clears_the_mark_of_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELETIONS_MAX", 1)
    table = deletions()
    marks = marked(table)
    table.note(TOPIC, "a", 1, 10)
    table.note(TOPIC, "b", 1, 20)
    assert marks == {"a": 0, "b": 20}


def test_a_deletion_known_only_to_a_former_master_is_dropped() -> None:
    """The former master acknowledged it to no client, so the table of its successor applies."""
    former, successor = deletions(), deletions()
    former.note(TOPIC, "kept", 3, 500)
    successor.adopt(former.wrapper(), whole=True)
    marks = marked(former)
    former.note(TOPIC, "kept", 3, 900)
    former.note(TOPIC, "orders", 3, 1_000)
    former.adopt(successor.wrapper())
    assert marks == {"kept": 900, "orders": 1_000}, "rows of a partial table do not affect other rows"
    former.adopt(successor.wrapper(), whole=True)
    assert marks == {"kept": 500, "orders": 0}
    assert former.wrapper().deletions == successor.wrapper().deletions


@pytest.mark.parametrize(
    ("epochs", "log_end", "begins"),
    [
        ([], 5_000, 1_000),
        ([], 900, 900),
        ([(3, 0)], 5_000, 1_000),
        ([(2, 0), (3, 400), (4, 800)], 5_000, 800),
        ([(2, 0), (5, 700), (6, 900)], 5_000, 700),
        ([(2, 0), (4, 2_000)], 5_000, 1_000),
        ([(4, 0)], 500, 0),
    ],
)
def test_messages_of_a_later_epoch_belong_to_the_recreated_topic(
    epochs: list[tuple[int, int]], log_end: int, begins: int
) -> None:
    """The former master's log ended at 1,000, later ones earlier: newer messages there are not deleted."""
    table = deletions()
    table.note(TOPIC, "orders", 3, 1_000)
    table.log_ends_at(log_end, epochs)
    found = table.of_topic("orders")
    assert found is not None and found.log_end == begins


# -- tables


def test_messages_older_than_the_deletion_do_not_restore_the_topic() -> None:
    table = tables()
    table.topics.ensure("orders", 4)
    table.delete_topic("orders", 1_000)
    for last in (None, 0, 999):
        table.cover(QueueOf(last), "orders", 2)
        assert table.topics.find("orders") is None
    table.cover(QueueOf(1_000), "orders", 2)
    assert table.topics.find("orders") is not None


def test_a_new_master_with_a_shorter_log_restores_the_topic_for_new_messages() -> None:
    table = tables()
    table.delete_topic("orders", 1_000)
    table.deletions.log_ends_at(900)
    table.cover(QueueOf(900), "orders", 0)
    assert table.topics.find("orders") is not None


def test_each_table_change_and_each_mastership_increases_the_version() -> None:
    table = tables()
    seen = [table.version]
    for change in (
        lambda: table.topics.ensure("orders", 4),
        lambda: table.delete_topic("orders", 9),
        lambda: table.delete_group("CG", clean_offset=True),
        lambda: table.topics.led_under(2),
    ):
        change()
        seen.append(table.version)
    assert seen == sorted(set(seen))


def test_a_deletion_is_written_after_the_tables_it_changed() -> None:
    class Noting(MemoryFiles):
        written: list[str]

        async def replace(self, name: str, data: bytes | bytearray) -> None:
            await super().replace(name, data)
            self.written.append(name)

    files = Noting()
    files.written = []
    table = tables(files)
    table.offsets.commit("CG", "orders", 0, 7)
    table.topics.ensure("orders", 4)
    table.delete_topic("orders", 9)
    asyncio.run(table.save_facts())
    assert files.written == ["config/topics.json", "config/consumerOffset.json", DELETIONS_FILE]
    again = tables(files)
    asyncio.run(again.load())
    assert again.deletions.of_topic("orders") == table.deletions.of_topic("orders")


def test_a_deletion_made_during_a_write_is_saved_by_the_next_write() -> None:
    class Meanwhile(MemoryFiles):
        then: Callable[[], None]

        async def replace(self, name: str, data: bytes | bytearray) -> None:
            await super().replace(name, data)
            if name == TOPICS_FILE and self.replaced == 1:
                self.then()

    files = Meanwhile()
    table = tables(files)
    table.offsets.commit("CG", "orders", 0, 7)
    table.topics.ensure("orders", 4)
    table.deletions.note(GROUP, "other", 1)

    async def scenario() -> None:
        files.then = lambda: table.delete_topic("orders", 9)
        await table.save_facts()
        assert b"orders" not in files.content.get(DELETIONS_FILE, b"")
        await table.save_facts()
        again = tables(files)
        await again.load()
        assert again.deletions.of_topic("orders") == table.deletions.of_topic("orders")
        assert again.offsets.find("CG", "orders", 0) is None

    asyncio.run(scenario())


# -- holders

NOW = TablesVersion(4, 20)


def missing(holders: Holders, members: list[int], wanted: Any = NOW, epoch: int = 4) -> list[int]:
    return holders.missing(members, wanted, {2: "10.0.0.2", 3: "10.0.0.3"}, epoch)


def test_a_broker_holds_the_reported_version_and_all_older_ones() -> None:
    holders = Holders()
    assert missing(holders, [2, 3]) == [2, 3]
    holders.reported(2, TablesVersion(4, 20), NOW)
    holders.reported(3, TablesVersion(4, 19), NOW)
    assert missing(holders, [2, 3]) == [3]
    assert missing(holders, [2, 3], TablesVersion(4, 19)) == []


@pytest.mark.parametrize("said", [None, TablesVersion(4, 21), TablesVersion(9, 1)])
def test_a_version_that_the_master_never_assigned_does_not_count_as_held(said: TablesVersion | None) -> None:
    holders = Holders()
    holders.reported(2, said, NOW)
    assert missing(holders, [2]) == [2]


def test_a_broker_that_polls_like_java_is_not_waited_for_unless_it_also_reported() -> None:
    holders = Holders()
    holders.polled_as_java("10.0.0.2", NOW)
    holders.polled_as_java("10.0.0.3", NOW)
    holders.reported(3, None, NOW)
    assert missing(holders, [2, 3]) == [3]
    assert missing(holders, [5]) == [5], "its address is unknown"


def test_only_the_latest_hosts_that_polled_like_java_are_remembered() -> None:
    holders = Holders()
    holders.polled_as_java("10.0.0.2", NOW)
    for number in range(OLD_HOSTS_MAX - 1):
        holders.polled_as_java(f"10.1.0.{number}", NOW)
    assert missing(holders, [2]) == []
    holders.polled_as_java("10.0.0.2", NOW)
    holders.polled_as_java("10.2.0.1", NOW)
    assert missing(holders, [2]) == [], "it is one of the last"
    for number in range(OLD_HOSTS_MAX):
        holders.polled_as_java(f"10.3.0.{number}", NOW)
    assert missing(holders, [2]) == [2]


def test_reported_versions_are_discarded_under_another_epoch() -> None:
    holders = Holders()
    holders.reported(2, NOW, NOW)
    assert missing(holders, [2], TablesVersion(5, 1), epoch=5) == [2]


@pytest.mark.parametrize("text", [None, "", "4", "4.", ".4", "-1.2", "4.x", "4.2.1"])
def test_a_malformed_version_parses_to_none(text: str | None) -> None:
    assert TablesVersion.parse(text) is None


def test_a_version_round_trips_through_its_text() -> None:
    assert TablesVersion.parse(str(NOW)) == NOW
