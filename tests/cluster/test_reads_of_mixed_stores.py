"""A store of controller mode that continues in Raft mode is read and adopted as one log."""

from __future__ import annotations

import asyncio
from pathlib import Path

from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from raftstore.adoption import adopt
from raftstore.folder import read_log
from simulation.kernel.world import World
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.log import PLAIN_LOG
from sparkreplay.store.logs import log_of
from tests.cluster.mixedset import laid_out, moved, stop_all
from tests.unit.sparkreplay.storerows import rows_of

SENT = [b"%d " % number + b"x" * (number * 37 % 900) for number in range(240)]


def mixed(root: Path) -> tuple[Path, Path]:
    """Two members' stores."""
    with World(41) as world:
        group = moved(world, SENT[:180])
        group.start_all()
        group.wait_for_master()
        group.run(group.send_all(SENT[180:]))
        world.run_until(group.caught_up, 20_000)
        stop_all(world, group.brokers)
        one, other, _ = group.brokers
        return laid_out(one, root / "one"), laid_out(other, root / "other")


def test_both_parts_of_a_mixed_store_are_read_and_adopted(tmp_path: Path) -> None:
    one, other = mixed(tmp_path)
    assert (one / "epochFileCheckpoint").exists()
    assert log_of(LocalFiles(str(one))) != PLAIN_LOG
    for options in ({}, {"index": "consumequeue", "topic": "orders"}):
        rows = rows_of(str(one), topic="orders") if not options else rows_of(str(one), **options)
        assert sorted(bytes(row["body"]) for row in rows) == sorted(SENT)  # type: ignore[arg-type]
    assert [row["physical_offset"] for row in rows_of(str(one))] == [
        row["physical_offset"] for row in rows_of(str(other))
    ]
    log = read_log(one)
    found = [bytes(message.content) for message in log.messages()]
    assert log.census.damage == "" and sum(body in content for body in SENT for content in found) >= len(SENT)
    settings = StoreSettings(mappedFileSizeCommitLog=64 * 1024)
    adopted = asyncio.run(adopt(log, {}, real_runtime(tmp_path / "new"), settings, "epochFileCheckpoint"))
    assert adopted.messages == len(found)
