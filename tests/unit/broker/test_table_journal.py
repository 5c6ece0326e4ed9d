"""The journal of the tables: torn ends, flipped bits, kills, power cuts, and stores changed by upstream."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from broker.settings.broker import BrokerSettings
from broker.tables.journal import FILE, Journal, JournalDamaged, JournalRecord, framed, records_of
from broker.tables.tables import Tables
from broker.tables.topics import TOPICS_FILE
from mqruntime.serve import EXIT_USAGE, exit_code
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.tables import TableChanges
from remoting.bodies.topics import TopicConfig
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from tests.support.doubles import ManualClock, MemoryFiles, NoQueues


def tables(files: Any, **more: Any) -> Tables:
    return Tables(BrokerSettings(), files, ManualClock(), NoQueues(), **more)


def loaded(files: Any) -> Tables:
    found = tables(files)
    asyncio.run(found.load())
    return found


def written(*, changes: int = 3) -> MemoryFiles:
    """Files of tables that were saved and changed afterwards."""
    files = MemoryFiles()
    table = tables(files)

    async def write() -> None:
        table.topics.put(TopicConfig("first", 8, 8))
        await table.save()
        for number in range(changes):
            table.topics.put(TopicConfig(f"topic-{number}", 8, 8))
            await table.save_facts()

    asyncio.run(write())
    return files


def journals(files: MemoryFiles) -> list[str]:
    return sorted(name for name in files.content if name.startswith(FILE))


def record(number: int) -> JournalRecord:
    return JournalRecord(number, TableChanges(topics=[TopicConfig(f"topic-{number}", 8, 8)]))


# -- the file


def test_each_change_is_one_journal_record_and_rewrites_no_table() -> None:
    files = written(changes=5)
    (name,) = journals(files)
    found = [*records_of(name, files.content[name])]
    assert [each.number for each in found] == [1, 2, 3, 4, 5]
    assert [topic.topic_name for topic in found[3].changes.topics] == ["topic-3"]
    assert b"topic-0" not in files.content[TOPICS_FILE]
    again = loaded(files)
    assert {"first", *(f"topic-{number}" for number in range(5))} <= set(again.topics.names())


def test_saved_tables_need_no_journal() -> None:
    files = written()
    asyncio.run(loaded(files).save())
    assert journals(files) == []
    assert b"topic-2" in files.content[TOPICS_FILE]
    assert loaded(files).topics.find("topic-2") is not None


def test_a_torn_record_at_the_end_of_the_journal_is_ignored() -> None:
    first, second = framed(record(1)), framed(record(2))
    for size in range(len(second)):
        found = [*records_of("j", first + second[:size])]
        assert [each.number for each in found] == [1]
    assert [each.number for each in records_of("j", first + second)] == [1, 2]


def test_a_flipped_bit_raises_if_records_follow_and_is_never_read_as_valid() -> None:
    first, second = framed(record(1)), framed(record(2))
    for at in range(len(first)):
        broken = bytearray(first + second)
        broken[at] ^= 1 << at % 8
        with pytest.raises(JournalDamaged, match="damaged record at byte 0"):
            list(records_of("j", bytes(broken)))
    for at in range(len(second)):
        broken = bytearray(first + second)
        broken[len(first) + at] ^= 1 << at % 8
        assert [each.number for each in records_of("j", bytes(broken))] == [1]


def test_a_broker_does_not_start_with_a_gap_in_the_journal() -> None:
    files = MemoryFiles({f"{FILE}00000001": framed(record(1)), f"{FILE}00000002": framed(record(3))})
    with pytest.raises(JournalDamaged, match=r"record 3 after 1.*restore the folder config"):
        asyncio.run(Journal(files).load(0))


def test_a_broker_does_not_start_with_a_missing_beginning_of_the_journal() -> None:
    files = MemoryFiles({f"{FILE}00000002": framed(record(9))})
    with pytest.raises(JournalDamaged, match="record 9 where 6 is due") as refused:
        asyncio.run(Journal(files).load(5))
    assert exit_code(refused.value) == EXIT_USAGE, "a restart does not help"


@pytest.mark.parametrize("removed", ["1", "2", "9"])
def test_a_file_whose_removal_a_power_cut_undid_comes_first(removed: str) -> None:
    """The start between the kill and the power cut saw no file, and began with the first file number again."""
    files = written()
    (name,) = journals(files)
    old = files.content.pop(name)

    async def live() -> list[int]:
        journal = Journal(files)
        await journal.load(3)
        for number in (4, 5):
            await journal.append(record(number))
        files.content[f"{FILE}0000001{removed}"] = old
        found = [each.number for each in await Journal(files).load(5)]
        again = Journal(files)
        await again.load(5)
        await again.append(record(6))
        assert len(journals(files)) == 3, "no file is continued"
        await again.drop(again.end_file())
        assert not journals(files)
        return found

    assert asyncio.run(live()) == [1, 2, 3, 4, 5]


def test_a_record_whose_write_failed_is_written_again_to_another_file() -> None:
    class Failing(MemoryFiles):
        fails = False

        async def append(self, name: str, data: bytes) -> None:
            await super().append(name, data[: len(data) // 2] if self.fails else data)
            if self.fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    files = Failing()
    table = tables(files)

    async def write() -> None:
        table.topics.put(TopicConfig("first", 8, 8))
        await table.save()
        table.topics.put(TopicConfig("second", 8, 8))
        files.fails = True
        with pytest.raises(OSError, match="Input/output"):
            await table.save_facts()
        files.fails = False
        table.topics.put(TopicConfig("third", 8, 8))
        await table.save_facts()
        table.topics.put(TopicConfig("fourth", 8, 8))
        await table.save_facts()

    asyncio.run(write())
    assert len(journals(files)) == 2
    assert {"first", "second", "third", "fourth"} <= set(loaded(files).topics.names())


# -- changes by upstream's brokers and by operators


@pytest.mark.parametrize("change", ["group", "deletion", "group and deletion"])
@pytest.mark.parametrize("steps", range(12))  # a save has this many await points
def test_a_record_written_during_a_save_is_kept_until_a_table_file_contains_it(
    steps: int, change: str
) -> None:
    files = MemoryFiles()
    table = tables(files)

    async def write() -> None:
        table.topics.put(TopicConfig("first", 8, 8))
        table.groups.put(SubscriptionGroupConfig("first"))
        table.topics.put(TopicConfig("deleted", 8, 8))
        await table.save_facts()
        table.delete_group("first", clean_offset=False)
        table.topics.put(TopicConfig("gone", 8, 8))
        await table.save()
        table.topics.put(TopicConfig("before", 8, 8))
        saving = asyncio.create_task(table.save())
        for _ in range(steps):
            await asyncio.sleep(0)
        if "group" in change:
            table.groups.put(SubscriptionGroupConfig("meanwhile"))
        if "deletion" in change:
            table.deletions.note("group", "other", 0)
        await asyncio.gather(saving, table.save_facts())
        await table.save()
        table.topics.put(TopicConfig("next", 8, 8))
        await table.save_facts()

    asyncio.run(write())
    again = loaded(files)
    assert (again.groups.find("meanwhile") is not None) == ("group" in change)
    assert (again.deletions.find("group", "other") is not None) == ("deletion" in change)
    assert {"before", "next"} <= set(again.topics.names())


def test_tables_written_by_an_upstream_broker_replace_the_journal() -> None:
    """Upstream's broker reads and writes topics.json, and has no journal."""
    files = written()
    content = orjson.loads(files.content[TOPICS_FILE])
    del content["journal"], content["topicConfigTable"]["first"]
    files.content[TOPICS_FILE] = orjson.dumps(content)
    again = loaded(files)
    assert again.topics.find("first") is None
    assert again.topics.find("topic-2") is None


def test_a_table_whose_file_was_removed_starts_empty() -> None:
    files = written()
    del files.content[TOPICS_FILE]
    assert loaded(files).topics.find("topic-2") is None


# -- offsets


def test_a_replayed_deletion_removes_no_offset_committed_after_it() -> None:
    files = MemoryFiles()
    table = tables(files)

    async def write() -> None:
        table.topics.put(TopicConfig("orders", 8, 8))
        table.offsets.commit("CG", "orders", 0, 7)
        await table.save()
        table.delete_topic("orders", 0)
        await table.save_facts()
        table.topics.put(TopicConfig("orders", 8, 8))
        table.offsets.commit("CG", "orders", 0, 2)
        table._note_commits()
        await table.saved_offsets.save()
        table.deletions.log_ends_at(-1)
        await table.save_facts()

    asyncio.run(write())
    assert loaded(files).offsets.find("CG", "orders", 0) == 2


def test_a_group_that_took_a_reset_continues_there_after_a_restart() -> None:
    files = MemoryFiles()
    table = tables(files)

    async def write() -> None:
        table.offsets.commit("CG", "orders", 0, 100)
        table.offsets.reset({("CG", "orders", 1): 1})
        await table.save()
        table.offsets.reset({("CG", "orders", 0): 5})
        table.offsets.pulled("CG", "orders", 0, 100)
        table.offsets.pulled("CG", "orders", 0, 5)
        await table.save_facts()

    asyncio.run(write())
    assert loaded(files).offsets.find("CG", "orders", 0) == 5


# -- crashes


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("seed", range(25))
def test_saved_tables_survive_a_kill_or_power_cut_at_any_moment(seed: int, *, power_cut: bool) -> None:
    chance = random.Random(f"{seed}/{power_cut}")
    with World(seed) as world:
        node = world.node("broker", "10.0.0.1")
        clock = SimulatedClock(node)
        durable: list[dict[str, Any]] = [{}]
        for _ in range(4):
            files = node.runtime().files
            table = Tables(BrokerSettings(), files, clock, NoQueues())
            history: list[dict[str, Any]] = []
            saved = [0]

            async def life(
                table: Tables = table, history: list[dict[str, Any]] = history, saved: list[int] = saved
            ) -> None:
                await table.load()
                table.role_taken(3, leads=True)
                history.append(facts(table))
                while True:
                    change(table, chance)
                    history.append(facts(table))
                    before = len(history) - 1
                    await chance.choice([table.save_facts, table.save_facts, table.save])()
                    saved[0] = before

            node.spawn(life())
            world.run_for_ms(chance.randrange(5, 400))
            node.kill(power_cut=power_cut)
            if history:
                assert_later(history[0], durable)
                durable = history[saved[0] :]


def facts(table: Tables) -> dict[str, Any]:
    copy = table.copy()
    return {
        "topics": set(copy.topics.topic_config_table),
        "groups": dict(copy.groups.subscription_group_table),
        "locks": sorted((lock.group, lock.topic, lock.client_id) for lock in copy.queue_locks.locks),
        "resets": dict(table.resets.standing),
        "deleted": {(each.kind, each.name, each.number) for each in copy.deletions.deletions},
    }


def assert_later(found: dict[str, Any], durable: list[dict[str, Any]]) -> None:
    """Each table is in its last saved state or a later one."""
    for name, table in found.items():
        assert durable == [{}] or table in [state[name] for state in durable], name


def change(on: Tables, chance: random.Random) -> None:
    name, group = f"t{chance.randrange(6)}", f"g{chance.randrange(6)}"
    changes: list[Callable[[], object]] = [
        lambda: on.topics.put(TopicConfig(name, chance.randrange(1, 9), 4)),
        lambda: on.groups.put(SubscriptionGroupConfig(group, retry_max_times=chance.randrange(9))),
        lambda: on.delete_topic(name, 5),
        lambda: on.delete_group(group, clean_offset=True),
        lambda: on.locks.lock(group, [(name, 0)], f"client-{chance.randrange(3)}"),
        lambda: on.offsets.reset({(group, name, 0): chance.randrange(50)}),
    ]
    chance.choice(changes)()


# -- Raft mode


def test_a_loaded_copy_has_the_version_of_its_journal() -> None:
    files = MemoryFiles()
    table = tables(files, stamped=True)

    async def write() -> None:
        await table.load()
        table.role_taken(3, leads=True)
        table.topics.put(TopicConfig("first", 8, 8))
        await table.save()
        table.topics.put(TopicConfig("second", 8, 8))
        await table.save_facts()

    asyncio.run(write())
    assert journals(files)
    again = tables(files, stamped=True)
    asyncio.run(again.load())
    assert again.stamp.version == table.version
    assert again.topics.find("second") is not None
