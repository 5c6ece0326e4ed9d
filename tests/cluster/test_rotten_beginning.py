"""Retention of a Raft-mode broker with a corrupt entry before the new log start."""

from __future__ import annotations

import pytest

from simulation.groups.committed import BLANK_MAGIC, HEADER, RECORD_HEAD, CommittedEntry, entry_in
from simulation.kernel.world import World
from tests.cluster.groupset import GroupSet

SEGMENT = 64 * 1024
POSITION_AT, CHECK_AT = 24, 36
STORED_AT = HEADER.size + RECORD_HEAD.size + 8
"""The offset of the store time within an entry."""


def last_entry(content: bytes) -> CommittedEntry:
    """The last entry of the log's first file."""
    at, found = 0, None
    while (entry := entry_in(content, at, SEGMENT)) is not None:
        found, at = entry, entry.end
        if int.from_bytes(content[at : at + 4], "big", signed=True) == BLANK_MAGIC:
            break
    assert found is not None
    return found


@pytest.mark.parametrize("at", [POSITION_AT, CHECK_AT])
def test_old_files_are_kept_while_the_entry_before_the_new_log_start_is_corrupt(
    caplog: pytest.LogCaptureFixture, at: int
) -> None:
    """Its check value matters, too: as the check value of the log start nothing could repair it."""
    with World(7) as world:
        group = GroupSet(
            world, mappedFileSizeCommitLog=SEGMENT, fileReservedSeconds=20, cleanResourceInterval=500,
            deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
        )  # fmt: skip
        group.start_up()
        sent = [b"%d " % number + b"x" * 3_600 for number in range(26)]
        group.run(group.send_all(sent))
        damaged = group.slaves[0]
        member = group.app(damaged).store._member.node
        path = f"{member.store.name}/data/{0:020d}"
        content = damaged.disk.content(path)
        assert content is not None
        damaged.disk.flip_bit(path, last_entry(content).position + at, 3)
        world.run_for_ms(40_000)
        assert damaged.running and member.log_begin() == 0
        log = group.app(damaged).store._log
        log.begin_at(SEGMENT)  # as when a full disk forces the deletion of young files
        for _ in range(2):
            group.run(log.delete_former())
        assert caplog.text.count("stay for now") == 1
        assert damaged.running and member.log_begin() == 0
        for _ in range(3):
            group.run(group.send_all(sent))
        world.run_until(lambda: member.log_begin() > SEGMENT, 60_000)
        assert damaged.running and path not in damaged.disk.entries
        store = group.app(damaged).store
        store.integrity.begin_again(store.dispatched_offset() // SEGMENT * SEGMENT)
        group.run(store.integrity.check(store.min_offset(), SEGMENT))
        assert not store.integrity.damages


@pytest.mark.parametrize("byte", [0, 2])
def test_a_corrupt_store_time_neither_deletes_a_young_file_nor_keeps_an_old_one(byte: int) -> None:
    """The age of a file is the store time of the first message behind it: here far past or future."""
    with World(7) as world:
        group = GroupSet(
            world, mappedFileSizeCommitLog=SEGMENT, fileReservedSeconds=60, cleanResourceInterval=500,
            deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
        )  # fmt: skip
        group.start_up()
        sent = [b"%d " % number + b"x" * 3_600 for number in range(52)]
        group.run(group.send_all(sent))
        began_ms = world.now_ms
        for node in group.brokers:
            path = f"{group.app(node).store._member.node.store.name}/data/{SEGMENT:020d}"
            node.disk.flip_bit(path, STORED_AT + byte, 0)
        begins = [group.app(node).store for node in group.brokers]
        world.run_until(
            lambda: world.now_ms > began_ms + 40_000 or any(one.min_offset() for one in begins), 60_000
        )
        assert [one.min_offset() for one in begins] == [0, 0, 0], "files are kept until they are a minute old"
        world.run_until(lambda: all(one.min_offset() for one in begins), 60_000)
        assert all(node.running for node in group.brokers)
