"""A start reads only the written ranges after the log end in the last segment."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from messagestore.log.commitlog import CommitLog
from messagestore.walker import segment_name
from mqruntime.segments import RealSegmentDirectory, RealSegmentFile
from simulation.kernel.disk import SimulatedSegmentFile
from simulation.kernel.world import World

MIB = 1 << 20
SEGMENT = 64 * MIB
END = 105
LEFT = b"a truncated or unfinished record"


def no_seek(*_: int) -> int:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


async def start(directory: RealSegmentDirectory) -> tuple[CommitLog, int]:
    """Load the log; return it and the number of erased bytes."""
    log = CommitLog(directory, SEGMENT, hot_segments=2)
    await log.load(0, never_saved=False)
    erased, _ = await log.found_end(END)
    return log, erased


@pytest.mark.parametrize("reserved", [None, 0])
def test_a_start_does_not_read_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserved: int | None
) -> None:
    directory = RealSegmentDirectory(tmp_path)
    file = directory.create(segment_name(0), SEGMENT, reserve=reserved)
    file.view()[:END] = b"r" * END
    file.close()
    read: list[int] = []
    read_cold = RealSegmentFile.read_cold

    async def counted(self: RealSegmentFile, begin: int, end: int) -> bytes:
        read.append(end - begin)
        return await read_cold(self, begin, end)

    monkeypatch.setattr(RealSegmentFile, "read_cold", counted)
    asyncio.run(start(directory))
    assert sum(read) <= SEGMENT // 4, "a file system may report read neighbours of a write as written"


@pytest.mark.parametrize("holes_are_reported", [True, False])
def test_bytes_after_the_log_end_are_erased_anywhere_in_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holes_are_reported: bool
) -> None:
    directory = RealSegmentDirectory(tmp_path)
    file = directory.create(segment_name(0), SEGMENT)
    places = [END, 4095, 5 * MIB - 3, 33 * MIB, SEGMENT - len(LEFT)]
    for place in places:
        file.view()[place : place + len(LEFT)] = LEFT
    file.close()
    if not holes_are_reported:
        monkeypatch.setattr(os, "lseek", no_seek)
    log, erased = asyncio.run(start(directory))
    assert erased == len(places) * len(LEFT)
    assert not any(log.segment_view(0)[0][END:])


def test_unsynced_bytes_are_synced_before_holes_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_the_disk(self: SimulatedSegmentFile, begin: int, end: int) -> list[tuple[int, int]]:
        return [(begin, end)] if any(self.inode._on_disk()[begin:end]) else []

    monkeypatch.setattr(SimulatedSegmentFile, "written", of_the_disk)
    with World(1) as world:
        directory = world.node("broker-0", "10.0.0.1").runtime().segments
        directory.create(segment_name(0), 8192).view()[5000:5007] = b"hardest"
        log = CommitLog(directory, 8192, hot_segments=2)

        async def story() -> tuple[int, int]:
            await log.load(0, never_saved=False)
            return await log.found_end(100)

        assert world.run(story()) == (7, 0)
        assert not any(log.segment_view(0)[0])
