"""Deletions as facts, who holds the tables, and what the log brings back: each driven with literals."""

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
from tests.unit.doubles import ManualClock, MemoryFiles, NoQueues


def deletions(clock: ManualClock | None = None) -> Deletions:
    return Deletions(clock or ManualClock(), lambda: None)


def tables(files: MemoryFiles | None = None) -> Tables:
    return Tables(BrokerSettings(), files or MemoryFiles(), ManualClock(), NoQueues())


class QueueOf:
    """A log with one queue, whose last message stands at `last`."""

    def __init__(self, last: int | None) -> None:
        self.last = last

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return 0 if self.last is None else 5

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]:
        return [] if self.last is None else [QueueEntry(self.last, 100, 0)]


# -- deletions


def test_a_deletion_is_news_once() -> None:
    master, slave = deletions(), deletions()
    master.note(OFFSETS, "CG", 3)
    wrapper = DeletionTable.decode(master.encode())
    assert [at.name for at in slave.adopt(wrapper)[0]] == ["CG"]
    assert slave.adopt(wrapper) == ([], False)
    master.note(OFFSETS, "CG", 3)
    assert len(slave.adopt(master.wrapper())[0]) == 1, "deleted once more"


def test_deletions_are_counted_on_under_the_next_master() -> None:
    first, second = deletions(), deletions()
    first.note(TOPIC, "a", 3)
    second.adopt(first.wrapper())
    second.note(TOPIC, "a", 4)
    assert first.adopt(second.wrapper())[0][0].order == (4, 2)
    assert second.adopt(DeletionTable([at for at in first.wrapper().deletions if at.epoch == 3])) == (
        [],
        False,
    )


def test_old_deletions_are_forgotten_but_a_topics_and_who_may_lack_one_hears_of_it() -> None:
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


def test_no_more_than_so_many_deletions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELETIONS_MAX", 3)
    master, slave = deletions(), deletions()
    for number in range(5):
        master.note(TOPIC, f"topic-{number}", 1)
    assert [at.name for at in master.wrapper().deletions] == ["topic-2", "topic-3", "topic-4"]
    assert slave.adopt(master.wrapper())[1]


def test_a_slave_that_missed_deletions_takes_the_next_offsets_as_they_are() -> None:
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
    """What the store hears of topics from now on, the last of each."""
    heard: dict[str, int] = {}
    table.on_topic = heard.__setitem__
    return heard


def test_where_a_topics_new_life_begins_is_known_wherever_its_deletion_is() -> None:
    master, slave, again = deletions(), deletions(), deletions()
    heard = [marked(table) for table in (master, slave, again)]
    master.note(TOPIC, "orders", 3, 1_000)
    master.note(GROUP, "orders", 3)
    slave.adopt(master.wrapper(), whole=True)
    again.decode(slave.encode())
    assert heard == [{"orders": 1_000}] * 3
    master.note(TOPIC, "orders", 3, 2_000)
    slave.adopt(master.wrapper(), whole=True)
    assert heard[:2] == [{"orders": 2_000}] * 2


def test_a_deletion_that_is_forgotten_marks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELETIONS_MAX", 1)
    table = deletions()
    heard = marked(table)
    table.note(TOPIC, "a", 1, 10)
    table.note(TOPIC, "b", 1, 20)
    assert heard == {"a": 0, "b": 20}


def test_a_deletion_that_only_a_former_master_made_is_none() -> None:
    """It answered nobody of it: what its successor shows of the topic, everybody shows."""
    former, successor = deletions(), deletions()
    former.note(TOPIC, "kept", 3, 500)
    successor.adopt(former.wrapper(), whole=True)
    heard = marked(former)
    former.note(TOPIC, "kept", 3, 900)
    former.note(TOPIC, "orders", 3, 1_000)
    former.adopt(successor.wrapper())
    assert heard == {"kept": 900, "orders": 1_000}, "rows of a table say nothing of others"
    former.adopt(successor.wrapper(), whole=True)
    assert heard == {"kept": 500, "orders": 0}
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
def test_what_a_later_epoch_wrote_is_of_the_new_life(
    epochs: list[tuple[int, int]], log_end: int, begins: int
) -> None:
    """The former master's log ended at 1,000, its successors' in that epoch sooner: what is there now was not deleted."""
    table = deletions()
    table.note(TOPIC, "orders", 3, 1_000)
    table.log_ends_at(log_end, epochs)
    found = table.of_topic("orders")
    assert found is not None and found.log_end == begins


# -- tables


def test_what_stood_in_the_log_when_its_topic_was_deleted_does_not_bring_it_back() -> None:
    table = tables()
    table.topics.ensure("orders", 4)
    table.delete_topic("orders", 1_000)
    for last in (None, 0, 999):
        table.cover(QueueOf(last), "orders", 2)
        assert table.topics.find("orders") is None
    table.cover(QueueOf(1_000), "orders", 2)
    assert table.topics.find("orders") is not None


def test_a_new_master_whose_log_ends_sooner_takes_what_it_stores_for_new() -> None:
    table = tables()
    table.delete_topic("orders", 1_000)
    table.deletions.log_ends_at(900)
    table.cover(QueueOf(900), "orders", 0)
    assert table.topics.find("orders") is not None


def test_each_change_has_a_version_of_its_own_and_a_role_begins_a_greater_one() -> None:
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


def test_a_deletion_is_on_disk_behind_what_it_took_away() -> None:
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


def test_a_deletion_that_was_made_while_others_are_written_waits_for_its_turn() -> None:
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


def lacking(holders: Holders, members: list[int], wanted: Any = NOW, epoch: int = 4) -> list[int]:
    return holders.lacking(members, wanted, {2: "10.0.0.2", 3: "10.0.0.3"}, epoch)


def test_a_broker_holds_what_it_said_and_everything_older() -> None:
    holders = Holders()
    assert lacking(holders, [2, 3]) == [2, 3]
    holders.reported(2, TablesVersion(4, 20), NOW)
    holders.reported(3, TablesVersion(4, 19), NOW)
    assert lacking(holders, [2, 3]) == [3]
    assert lacking(holders, [2, 3], TablesVersion(4, 19)) == []


@pytest.mark.parametrize("said", [None, TablesVersion(4, 21), TablesVersion(9, 1)])
def test_a_version_that_this_master_never_named_is_not_held(said: TablesVersion | None) -> None:
    holders = Holders()
    holders.reported(2, said, NOW)
    assert lacking(holders, [2]) == [2]


def test_who_polls_as_java_brokers_do_is_not_waited_for_unless_it_is_one_of_ours() -> None:
    holders = Holders()
    holders.polled_as_java("10.0.0.2", NOW)
    holders.polled_as_java("10.0.0.3", NOW)
    holders.reported(3, None, NOW)
    assert lacking(holders, [2, 3]) == [3]
    assert lacking(holders, [5]) == [5], "nobody knows where it is"


def test_however_many_poll_as_java_brokers_do_only_the_last_are_remembered() -> None:
    holders = Holders()
    holders.polled_as_java("10.0.0.2", NOW)
    for number in range(OLD_HOSTS_MAX - 1):
        holders.polled_as_java(f"10.1.0.{number}", NOW)
    assert lacking(holders, [2]) == []
    holders.polled_as_java("10.0.0.2", NOW)
    holders.polled_as_java("10.2.0.1", NOW)
    assert lacking(holders, [2]) == [], "it is one of the last"
    for number in range(OLD_HOSTS_MAX):
        holders.polled_as_java(f"10.3.0.{number}", NOW)
    assert lacking(holders, [2]) == [2]


def test_under_another_epoch_everybody_is_asked_anew() -> None:
    holders = Holders()
    holders.reported(2, NOW, NOW)
    assert lacking(holders, [2], TablesVersion(5, 1), epoch=5) == [2]


@pytest.mark.parametrize("text", [None, "", "4", "4.", ".4", "-1.2", "4.x", "4.2.1"])
def test_what_is_no_version_is_none(text: str | None) -> None:
    assert TablesVersion.parse(text) is None


def test_a_version_reads_back() -> None:
    assert TablesVersion.parse(str(NOW)) == NOW
