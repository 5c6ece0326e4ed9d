"""What was ever written of a sparse file, and reads that do not touch its mapping."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqruntime.segments import RealSegmentDirectory, RealSegmentFile

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RealSegmentFile]:
    directory = RealSegmentDirectory(tmp_path / "queue")
    made = directory.create("0", 4 * MIB, reserve=0)
    yield made
    made.close()
    directory.close()


def test_only_what_was_written_is_told_and_the_rest_reads_as_zeros(file: RealSegmentFile) -> None:
    assert file.written(0, 4 * MIB) == []
    file.reserve(MIB // 2)
    file.view()[5:8] = b"one"
    file.view()[2 * MIB : 2 * MIB + 3] = b"two"
    ranges = file.written(0, 4 * MIB)
    assert sum(end - start for start, end in ranges) <= MIB + MIB // 2
    told = b"".join(file.read_now(start, end) for start, end in ranges)
    assert told.count(b"one") == told.count(b"two") == 1
    assert file.written(2 * MIB + 1, 2 * MIB + 2) == [(2 * MIB + 1, 2 * MIB + 2)]
    assert file.written(3 * MIB, 3 * MIB) == []
    assert bytes(file.read_now(3 * MIB, 3 * MIB + 10)) == bytes(10)


def test_a_read_takes_no_block(file: RealSegmentFile, tmp_path: Path) -> None:
    file.read_now(0, 4 * MIB)
    assert (tmp_path / "queue" / "0").stat().st_blocks == 0


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_where_holes_are_not_told_all_may_have_been_written(
    file: RealSegmentFile, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "lseek", refused)
    assert file.written(10, MIB) == [(10, MIB)]


def test_a_disk_that_fails_is_no_hole(file: RealSegmentFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "lseek", failed)
    with pytest.raises(OSError, match="Input/output error"):
        file.written(0, MIB)
