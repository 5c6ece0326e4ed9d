"""Changed rows of tables that slaves get, in slices and across changes of the master."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.neighbours.tablecopy import Slices
from broker.settings.broker import BrokerSettings
from broker.tables import rowchanges, tables
from broker.tables.holders import TablesVersion
from broker.tables.rowchanges import Named, RowChanges
from broker.tables.tables import Tables
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.tables import TableChanges
from remoting.bodies.topics import TopicConfig
from remoting.headers.group import CopyTablesHeader, TablesVersionHeader
from tests.support.doubles import ManualClock, MemoryFiles, NoQueues


class Broker:
    def __init__(self, life: int) -> None:
        clock = ManualClock()
        clock.ms = life
        self.tables = Tables(BrokerSettings(), MemoryFiles(), clock, NoQueues())
        self.slices = Slices()
        self.bodies: list[TableChanges] = []

    def ask(self, master: Broker) -> bool:
        """Sends one request, and returns whether the copy is complete."""
        header = CopyTablesHeader(1)
        self.slices.ask(header, self.tables.changes.exact)
        answer_header, body = master.tables.slice_for(CopyTablesHeader.from_ext(header.to_ext()))
        self.bodies.append(TableChanges.decode(body))
        last = self.slices.take(TablesVersionHeader.from_ext(answer_header.to_ext()), self.bodies[-1])
        if last:
            self.slices.adopt(self.tables)
        return last

    def copy(self, master: Broker) -> None:
        while not self.ask(master):
            pass


def facts(broker: Broker) -> dict[str, Any]:
    copy = broker.tables.copy()
    return {
        "topics": copy.topics.topic_config_table,
        "topics' version": copy.topics.data_version,
        "groups": copy.groups.subscription_group_table,
        "groups' version": copy.groups.data_version,
        "locks": sorted(
            (lock.group, lock.topic, lock.queue_id, lock.client_id) for lock in copy.queue_locks.locks
        ),
        "resets": broker.tables.resets.standing,
        "limits": dict(broker.tables.resets.limits.all),
    }


@pytest.fixture
def pair() -> tuple[Broker, Broker]:
    master, slave = Broker(1), Broker(2)
    master.tables.role_taken(3, leads=True)
    slave.tables.role_taken(3, leads=False)
    slave.copy(master)
    return master, slave


def test_a_slave_gets_changed_rows_only(pair: tuple[Broker, Broker]) -> None:
    master, slave = pair
    for number in range(50):
        master.tables.topics.put(TopicConfig(f"before-{number}", 8, 8))
    slave.copy(master)
    master.tables.topics.put(TopicConfig("orders", 8, 8))
    slave.copy(master)
    assert [topic.topic_name for topic in slave.bodies[-1].topics] == ["orders"]
    assert facts(slave) == facts(master)


def test_a_full_copy_is_sent_in_slices_and_includes_changes_made_meanwhile(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Broker, Broker]
) -> None:
    monkeypatch.setattr(tables, "SLICE_ROWS", 7)
    master, _ = pair
    for number in range(40):
        master.tables.topics.put(TopicConfig(f"before-{number}", 8, 8))
    late = Broker(9)
    assert not late.ask(master)
    assert late.tables.topics.find("before-0") is None, "a partial copy is not adopted"
    master.tables.delete_topic("before-0", 5)
    master.tables.topics.put(TopicConfig("before-39", 4, 4))
    late.copy(master)
    assert len(late.bodies) >= 40 // 7
    assert facts(late) == facts(master)


def test_tables_that_grow_are_never_sent_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Broker, Broker]
) -> None:
    """The list of removed rows is bounded, that of present rows is not."""
    monkeypatch.setattr(rowchanges, "GONE_MAX", 3)
    master, slave = pair
    for number in range(20):
        master.tables.topics.put(TopicConfig(f"topic-{number}", 8, 8))
        slave.copy(master)
        assert [topic.topic_name for topic in slave.bodies[-1].topics] == [f"topic-{number}"]
    for number in range(20):
        master.tables.topics.remove(f"topic-{number}")
    master.tables.topics.put(TopicConfig("last", 8, 8))
    slave.copy(master)
    assert facts(slave) == facts(master)


def test_a_slave_gets_only_changed_rows_from_the_next_master(pair: tuple[Broker, Broker]) -> None:
    """Both were slaves of a master that died; one of them leads now."""
    master, next_master = pair
    third = Broker(3)
    for number in range(50):
        master.tables.topics.put(TopicConfig(f"before-{number}", 8, 8))
    next_master.copy(master)
    third.copy(master)
    master.tables.topics.put(TopicConfig("orders", 8, 8))
    next_master.copy(master)
    next_master.tables.role_taken(4, leads=True)
    next_master.tables.groups.put(SubscriptionGroupConfig("CG"))
    third.copy(next_master)
    assert [topic.topic_name for topic in third.bodies[-1].topics] == ["orders"]
    assert facts(third) == facts(next_master)


def test_a_former_master_with_extra_rows_gets_the_tables_of_the_next_one(pair: tuple[Broker, Broker]) -> None:
    master, next_master = pair
    master.tables.topics.put(TopicConfig("never-copied", 8, 8))
    next_master.tables.role_taken(4, leads=True)
    master.tables.role_taken(4, leads=False)
    master.copy(next_master)
    assert master.tables.topics.find("never-copied") is None
    assert facts(master) == facts(next_master)


def test_a_slave_of_a_master_restarted_in_its_epoch_gets_its_tables() -> None:
    first, slave, again = Broker(1), Broker(2), Broker(7)
    first.tables.role_taken(3, leads=True)
    first.tables.topics.put(TopicConfig("of-before", 8, 8))
    slave.copy(first)
    again.tables.role_taken(3, leads=True)
    for number in range(5):
        again.tables.topics.put(TopicConfig(f"topic-{number}", 8, 8))
    slave.copy(again)
    assert facts(slave) == facts(again)


def test_a_row_that_a_slave_created_is_removed_by_the_next_copy(pair: tuple[Broker, Broker]) -> None:
    master, slave = pair
    slave.tables.groups.put(SubscriptionGroupConfig("of-a-reader"))
    slave.copy(master)
    assert slave.tables.groups.find("of-a-reader") is None
    assert facts(slave) == facts(master)


def test_a_row_created_as_a_slave_is_sent_as_a_master(pair: tuple[Broker, Broker]) -> None:
    master, slave = pair
    third = Broker(3)
    third.copy(master)
    slave.tables.groups.put(SubscriptionGroupConfig("of-a-reader"))
    slave.tables.role_taken(4, leads=True)
    third.copy(slave)
    assert third.tables.groups.find("of-a-reader") is not None


@pytest.mark.parametrize("seed", range(40))
def test_slaves_have_their_masters_tables_after_random_changes_of_rows_and_masters(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(tables, "SLICE_ROWS", chance.choice([2, 5, 300]))
    monkeypatch.setattr(rowchanges, "GONE_MAX", chance.choice([3, 10_000]))
    monkeypatch.setattr(rowchanges, "REVISIONS_MAX", chance.choice([4, 4_096]))
    brokers = [Broker(life) for life in (1, 2, 3)]
    master, epoch = brokers[0], 3
    master.tables.role_taken(epoch, leads=True)
    for _ in range(300):
        dice = chance.random()
        if dice < 0.02:
            master, epoch = chance.choice(brokers), epoch + 1
            for broker in brokers:
                broker.tables.role_taken(epoch, leads=broker is master)
                broker.slices.begin_again()
        elif dice < 0.3:
            slave = chance.choice([broker for broker in brokers if broker is not master])
            slave.ask(master)
        elif dice < 0.32:
            change(chance.choice(brokers).tables, chance, epoch)
        else:
            change(master.tables, chance, epoch)
    for broker in brokers:
        if broker is not master:
            broker.copy(master)
            assert facts(broker) == facts(master)
            for deletion in master.tables.deletions.wrapper().deletions:
                known = broker.tables.deletions.find(deletion.kind, deletion.name)
                assert known is not None and known.order >= deletion.order


def change(on: Tables, chance: random.Random, epoch: int) -> None:
    name, group, queue = f"t{chance.randrange(6)}", f"g{chance.randrange(6)}", chance.randrange(3)
    choice = chance.randrange(8)
    if choice == 0:
        on.topics.put(TopicConfig(name, chance.randrange(1, 9), 4))
    elif choice == 1:
        on.groups.put(SubscriptionGroupConfig(group, retry_max_times=chance.randrange(9)))
    elif choice == 2:
        on.delete_topic(name, chance.randrange(100))
    elif choice == 3:
        on.delete_group(group, clean_offset=chance.random() < 0.5)
    elif choice == 4:
        on.locks.lock(group, [(name, queue)], f"client-{chance.randrange(2)}")
    elif choice == 5:
        on.locks.unlock(group, [(name, queue)], f"client-{chance.randrange(2)}")
    elif choice == 6:
        on.offsets.reset({(group, name, queue): chance.randrange(50)})
    else:
        on.resets.pulled(group, name, queue, chance.randrange(50))


def test_an_unknown_version_requires_a_full_copy() -> None:
    changes = RowChanges(lambda row: True)
    changes.replace([("t", "a", "", 0)], Named(TablesVersion(3, 5), 1))
    assert changes.place_of(None) is None
    assert changes.place_of(Named(TablesVersion(3, 5), 2)) is None
    assert changes.place_of(Named(TablesVersion(3, 6), 1)) is None
    assert changes.place_of(Named(TablesVersion(2, 5), 1)) is None
    assert changes.place_of(Named(TablesVersion(3, 5), 1)) is not None


@pytest.mark.parametrize("text", ["", "3.4", "3.4@", "@5", "3.4@-1", "3.4@" + "9" * 21, "a.b@3"])
def test_a_malformed_named_version_parses_to_none(text: str) -> None:
    assert Named.parse(text) is None


def test_a_named_version_round_trips_through_its_text() -> None:
    named = Named(TablesVersion(3, 4), 1_700_000_000_000)
    assert Named.parse(str(named)) == named
