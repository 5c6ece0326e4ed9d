"""Retention of a Raft-mode broker where an entry has rotted that the log would begin behind."""

from __future__ import annotations

import pytest

from simulation.groups.committed import BLANK_MAGIC, HEADER, RECORD_HEAD, CommittedEntry, entry_in
from simulation.kernel.world import World
from tests.unit.broker.groupset import GroupSet

SEGMENT = 64 * 1024
POSITION_AT, CHECK_AT = 24, 36
STORED_AT = HEADER.size + RECORD_HEAD.size + 8
"""Of an entry: when its message was stored."""


def last_entry(content: bytes) -> CommittedEntry:
    """Of the log's first file."""
    at, found = 0, None
    while (entry := entry_in(content, at, SEGMENT)) is not None:
        found, at = entry, entry.end
        if int.from_bytes(content[at : at + 4], "big", signed=True) == BLANK_MAGIC:
            break
    assert found is not None
    return found


@pytest.mark.parametrize("at", [POSITION_AT, CHECK_AT])
def test_old_files_stay_while_what_the_log_would_begin_behind_has_rotted(
    caplog: pytest.LogCaptureFixture, at: int
) -> None:
    """Of the check value, too: it would be that of the log's beginning from then on, which nothing mends."""
    with World(7) as world:
        group = GroupSet(
            world, mappedFileSizeCommitLog=SEGMENT, fileReservedSeconds=20, cleanResourceInterval=500,
            deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
        )  # fmt: skip
        group.start_up()
        sent = [b"%d " % number + b"x" * 3_600 for number in range(26)]
        group.run(group.send_all(sent))
        rotten = next(node for node in group.brokers if node is not group.master)
        member = group.app(rotten).store._member.node
        path = f"{member.store.name}/data/{0:020d}"
        content = rotten.disk.content(path)
        assert content is not None
        rotten.disk.flip_bit(path, last_entry(content).position + at, 3)
        world.run_for_ms(40_000)
        assert rotten.running and member.log_begin() == 0
        log = group.app(rotten).store._log
        log.begin_at(SEGMENT)  # as where the disk is too full for what is young
        for _ in range(2):
            group.run(log.delete_former())
        assert caplog.text.count("stay for now") == 1
        assert rotten.running and member.log_begin() == 0
        for _ in range(3):
            group.run(group.send_all(sent))
        world.run_until(lambda: member.log_begin() > SEGMENT, 60_000)
        assert rotten.running and path not in rotten.disk.entries
        store = group.app(rotten).store
        store.integrity.begin_again(store.dispatched_offset() // SEGMENT * SEGMENT)
        group.run(store.integrity.check(store.min_offset(), SEGMENT))
        assert not store.integrity.damages


@pytest.mark.parametrize("byte", [0, 2])
def test_a_store_time_that_rotted_lets_no_young_file_go_and_keeps_no_old_one(byte: int) -> None:
    """Of the first message behind a file, whose age it tells: long ago, or as if it were to come."""
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
        assert [one.min_offset() for one in begins] == [0, 0, 0], "all of it is a minute old at least"
        world.run_until(lambda: all(one.min_offset() for one in begins), 60_000)
        assert all(node.running for node in group.brokers)
