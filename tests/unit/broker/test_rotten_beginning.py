"""Retention of a Raft-mode broker where an entry has rotted that the log would begin behind."""

from __future__ import annotations

import pytest

from simulation.groups.decided import BLANK_MAGIC, Entry, entry_in
from simulation.kernel.world import World
from tests.unit.broker.groupset import GroupSet

SEGMENT = 64 * 1024
POSITION_AT = 24


def last_entry(content: bytes) -> Entry:
    """Of the log's first file."""
    at, found = 0, None
    while (entry := entry_in(content, at, SEGMENT)) is not None:
        found, at = entry, entry.end
        if int.from_bytes(content[at : at + 4], "big", signed=True) == BLANK_MAGIC:
            break
    assert found is not None
    return found


def test_old_files_stay_while_what_the_log_would_begin_behind_has_rotted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(7) as world:
        group = GroupSet(
            world, mappedFileSizeCommitLog=SEGMENT, fileReservedSeconds=20, cleanResourceInterval=500,
            deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
        )  # fmt: skip
        group.start_up()
        sent = [b"%d " % number + b"x" * 900 for number in range(100)]
        group.run(group.send_all(sent))
        rotten = next(node for node in group.brokers if node is not group.master)
        member = group.app(rotten).store._member.node
        path = f"{member.store.name}/data/{0:020d}"
        content = rotten.disk.content(path)
        assert content is not None
        rotten.disk.flip_bit(path, last_entry(content).position + POSITION_AT, 3)
        world.run_until(lambda: "stay for now" in caplog.text, 60_000)
        world.run_for_ms(2_000)
        assert caplog.text.count("stay for now") == 1
        assert rotten.running and member.log_begin() == 0
        for _ in range(3):
            group.run(group.send_all(sent))
        world.run_until(lambda: member.log_begin() > SEGMENT, 60_000)
        assert rotten.running and path not in rotten.disk.entries
