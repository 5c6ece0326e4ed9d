"""Stores of Java brokers that contain undelivered timer messages."""

from __future__ import annotations

import asyncio
import shutil
import struct
from pathlib import Path

import pytest

from broker.retention.javatimers import TimersUndelivered, refuse_timers
from mqruntime.realruntime import real_runtime
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster

VECTORS = Path(__file__).parents[1] / "vectors" / "timer"
NAMES = ["pending", "after-kill-9"]
UNIT_BYTES = 52
DELETES = 4


@pytest.fixture(params=NAMES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(VECTORS / request.param, tmp_path, dirs_exist_ok=True)
    return tmp_path


def units(root: Path) -> list[tuple[int, int]]:
    """(magic, due time in ms) of each unit, by the description of the format."""
    found = []
    for file in sorted((root / "timerlog").iterdir()):
        content = file.read_bytes()
        for at in range(0, len(content) - UNIT_BYTES + 1, UNIT_BYTES):
            size, _, magic, write_ms, delay_ms = struct.unpack_from(">iqiqi", content, at)
            if size == UNIT_BYTES:
                found.append((magic, write_ms + delay_ms))
    return found


def listed(root: Path) -> int:
    return (root / "consumequeue/rmq_sys_wheel_timer/0" / ("0" * 20)).stat().st_size // 20


def write_check(root: Path, read_time_ms: int, queue_offset: int) -> None:
    content = struct.pack(">7q", read_time_ms, 0, queue_offset, queue_offset, 0, 0, 9)
    (root / "config/timercheck").write_bytes(content)


def refused(root: Path) -> str:
    with pytest.raises(TimersUndelivered, match="abandonTimers=true") as caught:
        asyncio.run(refuse_timers(real_runtime(root)))
    return caught.value.why


def opens(root: Path) -> None:
    asyncio.run(refuse_timers(real_runtime(root)))


def last_due(root: Path) -> int:
    return max(due_ms for magic, due_ms in units(root) if not magic & DELETES)


def test_a_store_with_undelivered_timers_is_refused_and_left_unchanged(root: Path) -> None:
    before = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    why = refused(root)
    (read_time_ms,) = struct.unpack_from(">q", (root / "config/timercheck").read_bytes())
    assert f"delivered up to {read_time_ms} ms" in why
    assert {file: file.read_bytes() for file in root.rglob("*") if file.is_file()} == before


def test_a_store_whose_timers_are_all_delivered_opens(root: Path) -> None:
    write_check(root, last_due(root) + 1, listed(root))
    opens(root)
    write_check(root, last_due(root), listed(root))
    assert f"due at {last_due(root)} ms" in refused(root)


def test_a_timer_message_that_has_no_unit_yet_is_refused(root: Path) -> None:
    write_check(root, last_due(root) + 1, listed(root) - 1)
    assert f"queue offset {listed(root) - 1}" in refused(root)


def test_a_timer_unit_that_only_deletes_does_not_count_as_undelivered(root: Path) -> None:
    for file in (root / "timerlog").iterdir():
        content = bytearray(file.read_bytes())
        for at in range(0, len(content) - UNIT_BYTES + 1, UNIT_BYTES):
            struct.pack_into(">i", content, at + 12, 1 | DELETES)
        file.write_bytes(content)
    write_check(root, 0, listed(root))
    opens(root)


@pytest.mark.parametrize("content", [None, b"", bytes(31)], ids=["absent", "empty", "short"])
def test_without_a_check_file_nothing_counts_as_delivered(root: Path, content: bytes | None) -> None:
    file = root / "config/timercheck"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    refused(root)


def test_a_store_without_timer_files_opens(tmp_path: Path) -> None:
    opens(tmp_path)


@pytest.mark.parametrize("under_controllers", [True, False])
def test_a_broker_starts_on_undelivered_timers_only_with_abandon_timers(*, under_controllers: bool) -> None:
    settings: dict[str, object] = {} if under_controllers else {"enableControllerMode": False, "brokerId": 0}

    def start(**more: object) -> BaseException | None:
        with World(7) as world:
            cluster = Cluster(world, 1, **settings, **more)
            (node,) = cluster.brokers
            for file in (VECTORS / "pending").rglob("*"):
                if file.is_file() and "consumequeue" not in file.parts:
                    node.disk.put(str(file.relative_to(VECTORS / "pending")), file.read_bytes())
            world.run_for_ms(5_000)
            assert node.failure is not None or node.running
            return node.failure

    assert isinstance(start(), TimersUndelivered)
    assert start(abandonTimers=True) is None
