"""Damaged and hostile stores: each is refused by name, with a hint, in bounded memory."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from sparkreplay.errors import LogCorrupted, ReplayError, StoreUnreadable
from sparkreplay.store import files
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.remotefiles import RemoteFiles
from sparkreplay.store.snapshot import open_store
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import rows_of_store

MEMORY_BYTES_MAX = 40 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = StoreFolder(tmp_path / "store", segment_bytes=16384)
    for _ in range(50):
        store.add(body=bytes(700))
    store.write()
    return store.root


def confirm_of(offset: int) -> bytes:
    return (bytes(32) + struct.pack(">q", offset)).ljust(4096, b"\0")


def epoch_file(lines: bytes, count: int, crc: int | None = None) -> bytes:
    return b"%d\n%d\n%b" % (count, zlib.crc32(lines) & 0x7FFFFFFF if crc is None else crc, lines)


def put(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(data)


def linked(name: str, to: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(to)

    return make


def piped(name: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        os.mkfifo(root / name)

    return make


def sparse(name: str, size: int) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        with (root / name).open("r+b" if (root / name).exists() else "w+b") as file:
            file.truncate(size)

    return make


def moved(name: str, to: str) -> Callable[[Path], object]:
    return lambda root: (root / name).rename(root / to)


FIRST, SECOND, THIRD = (f"commitlog/{number * 16384:020d}" for number in range(3))
MALFORMED: list[tuple[str, Callable[[Path], object], str, str]] = [
    ("an empty checkpoint", put("checkpoint", b""), "checkpoint", "0 bytes long, too short"),
    ("a checkpoint of an older version", put("checkpoint", bytes(24)), "checkpoint", "24 bytes long, too short"),
    ("a negative confirm offset", put("checkpoint", confirm_of(-2)), "checkpoint", "confirm offset -2"),
    ("a confirm offset beyond the log", put("checkpoint", confirm_of(1 << 50)), "", "beyond the end of the log's last"),
    ("a checkpoint of 1 TiB", sparse("checkpoint", 1 << 40), "checkpoint", "is longer than"),
    ("a checkpoint that is a pipe", piped("checkpoint"), "checkpoint", "no plain file"),
    ("a checkpoint that is a link", linked("checkpoint", "/etc/hostname"), "checkpoint", "is a symbolic link"),
    ("a million epochs", put("epochFileCheckpoint", epoch_file(
        b"".join(b"%d-%d\n" % (n, n) for n in range(1_000_000)), 1_000_000)), "epochFileCheckpoint", "longer than"),
    ("more epochs than promised", put("epochFileCheckpoint", epoch_file(b"1-0\n2-5\n", 1)), "epochFileCheckpoint", "2 whole"),
    ("200000 epochs", put("epochFileCheckpoint", epoch_file(
        b"".join(b"%d-%d\n" % (n, n) for n in range(200_000)), 200_000)), "epochFileCheckpoint", "200000 entries"),
    ("lines that end in CRLF", put("epochFileCheckpoint", b"1\r\n0\r\n1-0\r\n"), "epochFileCheckpoint", "count and CRC"),
    ("CRLF after the entries", put("epochFileCheckpoint", b"1\n0\n1-0\r\n"), "epochFileCheckpoint", "not epoch-startOffset"),
    ("a byte order mark", put("epochFileCheckpoint", b"\xef\xbb\xbf1\n0\n1-0\n"), "epochFileCheckpoint", "count and CRC"),
    ("a wrong CRC", put("epochFileCheckpoint", epoch_file(b"1-0\n", 1, crc=7)), "epochFileCheckpoint", "CRC 7"),
    ("epochs that fall", put("epochFileCheckpoint", epoch_file(b"2-0\n1-9\n", 2)), "epochFileCheckpoint", "cannot follow"),
    ("no epochs", put("epochFileCheckpoint", b""), "epochFileCheckpoint", "read another replica"),
    ("an endless number", put("epochFileCheckpoint", b"1" * 5000 + b"\n0\n1-0\n"), "epochFileCheckpoint", "count and CRC"),
    ("an identity of 1 TiB", sparse("brokerIdentity", 1 << 40), "brokerIdentity", "is longer than"),
    ("an identity of 1 MiB", put("brokerIdentity", b"c#b" * 350_000 + b"#1"), "brokerIdentity", "cluster#brokerName#id"),
    ("an identity without id", put("brokerIdentity", b"cluster#broker"), "brokerIdentity", "cluster#brokerName#id"),
    ("an identity that is a link", linked("brokerIdentity", "/etc/passwd"), "brokerIdentity", "is a symbolic link"),
    ("an identity that is no text", put("brokerIdentity", b"\xff\xfe\x00"), "brokerIdentity", "cluster#brokerName#id"),
    ("a mark of contract A that says nothing", put("contractA", b"maybe"), "", "contractA: has the line 'maybe'"),
    ("a segment that is a link", linked(FIRST, "/etc/passwd"), FIRST, "is a symbolic link"),
    ("a segment that is a pipe", piped(SECOND), SECOND, "no plain file"),
    ("a file with another name", put("commitlog/readme.txt", b"x"), "commitlog/readme.txt", "move it elsewhere"),
    ("a name of two lines", put("commitlog/1\n2", b"x"), "commitlog/'1\\n2'", "move it elsewhere"),
    ("a name that is no text", lambda root: Path(os.fsdecode(os.fsencode(root) + b"/commitlog/\xff")).touch(),
     "commitlog/'\\udcff'", "move it elsewhere"),
    ("a name in other digits", put("commitlog/" + "\u0661" * 20, b"x"), "commitlog/", "20 digits"),
    ("a name beyond all offsets", put("commitlog/" + "9" * 20, b"x"), "commitlog/9", "more than a segment can be"),
    ("a segment of 1 TiB", sparse(THIRD, 1 << 40), THIRD, "more than a segment can be"),
    ("a segment that was cut", sparse(SECOND, 9000), SECOND, "copy it again"),
    ("a segment that is missing", lambda root: (root / SECOND).unlink(), THIRD, "a segment is missing"),
    ("a segment with another offset", moved(THIRD, f"commitlog/{2 * 16384 + 1:020d}"), "commitlog/", "a multiple of its size"),
    ("no log", lambda root: (root / "commitlog").rename(root / "gone"), "", "has no files in its folder commitlog"),
    ("a log that is a file", lambda root: ((root / "commitlog").rename(root / "x"), (root / "commitlog").touch()),
     "commitlog", "Not a directory"),
    ("an empty log of which something was committed", lambda root: [
        file.unlink() for file in (root / "commitlog").iterdir()], "", "has no files in its folder commitlog"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("harm", "where", "why"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED]
)
def test_a_malformed_store_is_refused_by_name_in_little_memory(
    root: Path, harm: Callable[[Path], object], where: str, why: str
) -> None:
    harm(root)
    tracemalloc.start()
    try:
        with pytest.raises(StoreUnreadable, match=why) as refused:
            open_store(str(root))
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()
    said = str(refused.value)
    assert said.startswith(str(root / where))
    assert ";" in said, "what is wrong comes with what to do"
    assert "\n" not in said and len(said) < 700


@pytest.mark.parametrize("confirm", [0, -1])
def test_a_checkpoint_without_a_confirm_offset_commits_nothing(root: Path, confirm: int) -> None:
    put("checkpoint", confirm_of(confirm))(root)
    store = open_store(str(root))
    assert (store.bound, rows_of_store(store)) == (0, [])


def test_a_broker_that_has_stored_nothing_has_no_rows(root: Path) -> None:
    shutil.rmtree(root / "commitlog")
    put("checkpoint", confirm_of(0))(root)
    store = open_store(str(root))
    assert (store.segments, store.bound, rows_of_store(store)) == ((), 0, [])


def test_a_sparse_segment_below_the_bound_is_corruption_not_an_empty_one(root: Path) -> None:
    data = (root / SECOND).read_bytes()
    (root / SECOND).write_bytes(data[:1000])
    sparse(SECOND, len(data))(root)
    with pytest.raises(LogCorrupted, match="physical offset"):
        rows_of_store(open_store(str(root)))


def test_a_copy_without_an_identity_is_called_by_its_folder(root: Path) -> None:
    (root / "brokerIdentity").unlink()
    store = open_store(f"{root}/")
    assert (store.broker_name, store.cluster_name) == ("store", "")


def test_an_empty_segment_in_front_of_others_is_a_hole_not_retention(root: Path) -> None:
    (root / "commitlog" / f"{0:020d}").write_bytes(b"")
    with pytest.raises(StoreUnreadable, match="is empty, but others follow it"):
        open_store(str(root))


def test_an_unfinished_segment_and_folders_are_skipped(root: Path) -> None:
    (root / f"commitlog/{3 * 16384:020d}").touch()
    (root / f"commitlog/{4 * 16384:020d}.new").write_bytes(bytes(100))
    (root / "commitlog/lost+found").mkdir()
    assert len(open_store(str(root)).segments) == 3


def test_a_log_on_another_disk_is_linked_into_the_store(root: Path) -> None:
    expected = rows_of_store(open_store(str(root)))
    (root / "commitlog").rename(root.parent / "other disk")
    (root / "commitlog").symlink_to(root.parent / "other disk")
    assert rows_of_store(open_store(str(root))) == expected


@pytest.mark.parametrize("name", ["checkpoint", "epochFileCheckpoint", "commitlog", FIRST])
def test_a_denied_file_is_refused_with_the_user_to_run_as(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = str(root / name)

    def as_another_user(function: Callable[..., object]) -> Callable[..., object]:
        def call(path: str, *rest: object, **named: object) -> object:
            if path == denied:
                raise PermissionError(13, "Permission denied", path)
            return function(path, *rest, **named)

        return call

    if os.geteuid() == 0:  # root may read a file of any mode
        monkeypatch.setattr(os, "open", as_another_user(os.open))
        monkeypatch.setattr(os, "scandir", as_another_user(os.scandir))
    else:
        (root / name).chmod(0)
    with pytest.raises(ReplayError, match="may not be read by this user; run as") as refused:
        rows_of_store(open_store(str(root)))
    assert denied in str(refused.value)


def test_a_folder_with_too_many_entries_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FOLDER_ENTRIES_MAX", 20)
    for number in range(20):
        (root / "commitlog" / f"{number}.txt").touch()
    for place in (LocalFiles(str(root)), RemoteFiles(str(root), fs.LocalFileSystem())):
        with pytest.raises(
            StoreUnreadable, match="commitlog: has more than 20 entries; it is no broker's folder"
        ):
            open_store(place)


def test_a_disk_that_fails_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(root))

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", fails)
    file = LocalFiles(store.root).open(FIRST)
    with pytest.raises(StoreUnreadable, match="Input/output error; correct that, or read another replica"):
        file.read_into(memoryview(bytearray(8)), 0)
    file.close()
