"""The written ranges of a sparse file, and reads that do not touch its mapping."""

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


def test_only_written_ranges_are_returned_and_the_rest_reads_as_zeros(file: RealSegmentFile) -> None:
    assert file.written(0, 4 * MIB) == []
    file.reserve(MIB // 2)
    file.view()[5:8] = b"one"
    file.view()[2 * MIB : 2 * MIB + 3] = b"two"
    ranges = file.written(0, 4 * MIB)
    assert sum(end - start for start, end in ranges) <= MIB + MIB // 2
    content = b"".join(file.read_now(start, end) for start, end in ranges)
    assert content.count(b"one") == content.count(b"two") == 1
    assert file.written(2 * MIB + 1, 2 * MIB + 2) == [(2 * MIB + 1, 2 * MIB + 2)]
    assert file.written(3 * MIB, 3 * MIB) == []
    assert bytes(file.read_now(3 * MIB, 3 * MIB + 10)) == bytes(10)


def test_the_only_file_of_a_folder_is_read_up_to_its_last_hole(file: RealSegmentFile, tmp_path: Path) -> None:
    directory = RealSegmentDirectory(tmp_path / "queue")
    file.view()[5:8] = b"one"
    name, size, head = directory.sole_file() or ("", 0, b"")
    assert (name, size, head) == ("0", 4 * MIB, b"\0\0\0\0\0one" + bytes(4088))
    file.view()[8_190:8_195] = b"three"
    _, _, head = directory.sole_file() or ("", 0, b"")
    assert head is not None
    assert head[8_190:8_195] == b"three"
    assert 8_195 <= len(head) <= 64 << 10
    file.view()[8_190:8_195] = bytes(5)
    assert directory.sole_file() == (name, size, b"\0\0\0\0\0one" + bytes(4088)), "zeros count as holes"
    file.view()[2 * MIB] = 1
    assert directory.sole_file() == ("0", 4 * MIB, None)
    directory.close()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_the_only_file_without_known_holes_is_not_read(
    file: RealSegmentFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    directory = RealSegmentDirectory(tmp_path / "queue")
    monkeypatch.setattr(os, "lseek", refused)
    assert directory.sole_file() == ("0", 4 * MIB, None)
    directory.close()


def test_a_folder_with_anything_else_has_no_only_file(file: RealSegmentFile, tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    directory, absent = RealSegmentDirectory(folder), RealSegmentDirectory(tmp_path / "absent")
    assert absent.sole_file() is None
    (folder / "1").write_bytes(b"")
    assert directory.sole_file() is None
    (folder / "0").rename(tmp_path / "0")
    assert directory.sole_file() == ("1", 0, b"")
    (folder / "1").rename(folder / "1.new")
    assert directory.sole_file() is None
    (folder / "1.new").unlink()
    assert directory.sole_file() is None
    (folder / "2").mkdir()
    assert directory.sole_file() is None
    (folder / "2").rmdir()
    os.mkfifo(folder / "3")
    assert directory.sole_file() is None, "a pipe is not opened, because that may block forever"
    directory.close()
    absent.close()


def test_a_read_takes_no_block(file: RealSegmentFile, tmp_path: Path) -> None:
    file.read_now(0, 4 * MIB)
    assert (tmp_path / "queue" / "0").stat().st_blocks == 0


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_without_known_holes_the_whole_range_counts_as_written(
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
