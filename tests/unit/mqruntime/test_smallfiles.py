from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqruntime.smallfiles import BadFileName, RealSmallFiles


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RealSmallFiles]:
    made = RealSmallFiles(tmp_path / "store")
    yield made
    made.close()


def test_a_file_is_replaced_read_listed_and_removed(files: RealSmallFiles) -> None:
    async def scenario() -> None:
        assert await files.read("config/topics.json") is None
        assert await files.names("") == []
        await files.replace("config/topics.json", b"{}")
        await files.replace("config/topics.json", b'{"a":1}')
        await files.replace("brokerIdentity", b"x")
        assert await files.read("config/topics.json") == b'{"a":1}'
        assert await files.names("") == ["brokerIdentity", "config/topics.json"]
        assert await files.names("config") == ["config/topics.json"]
        await files.remove("brokerIdentity")
        await files.remove("brokerIdentity")
        assert await files.read("brokerIdentity") is None

    asyncio.run(scenario())


def test_content_and_folder_are_synced_around_the_rename(
    files: RealSmallFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def seen_fsync(descriptor: int) -> None:
        steps.append(f"sync {os.readlink(f'/proc/self/fd/{descriptor}')}")
        fsync(descriptor)

    def seen_replace(path: Path, target: Path) -> Path:
        steps.append(f"rename {path} {target}")
        return replace(path, target)

    asyncio.run(files.replace("vote", b"1"))
    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "replace", seen_replace)
    asyncio.run(files.replace("vote", b"2"))
    vote = tmp_path / "store" / "vote"
    assert steps == [f"sync {vote}.tmp", f"rename {vote}.tmp {vote}", f"sync {vote.parent}"]


def test_appended_bytes_are_synced_and_the_folder_of_a_new_file_too(
    files: RealSmallFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "fdatasync"):
        sync = getattr(os, name)

        def seen(descriptor: int, sync: Callable[[int], None] = sync) -> None:
            steps.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            sync(descriptor)

        monkeypatch.setattr(os, name, seen)
    journal = tmp_path / "store" / "journal"
    asyncio.run(files.append("journal", b"one"))
    assert steps[-2:] == [str(journal), str(journal.parent)]
    del steps[:]
    asyncio.run(files.append("journal", b"two"))
    assert steps == [str(journal)]
    assert journal.read_bytes() == b"onetwo"


def test_a_failure_keeps_the_old_content_and_cleans_up(
    files: RealSmallFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario() -> None:
        await files.replace("vote", b"old")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                await files.replace("vote", b"new")
        assert await files.read("vote") == b"old"
        assert [path.name for path in (tmp_path / "store").iterdir()] == ["vote"]

    asyncio.run(scenario())


def test_half_written_files_are_neither_listed_nor_in_the_way(files: RealSmallFiles, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "vote.tmp").write_bytes(b"left by a crash")

    async def scenario() -> None:
        assert await files.names("") == []
        await files.replace("vote", b"1")
        assert await files.read("vote") == b"1"

    asyncio.run(scenario())
    assert not (tmp_path / "store" / "vote.tmp").exists()


def test_a_cancelled_replace_does_not_overtake_a_later_one(files: RealSmallFiles) -> None:
    async def scenario() -> None:
        for _ in range(20):
            first = asyncio.ensure_future(files.replace("vote", b"1"))
            await asyncio.sleep(0)
            first.cancel()
            await files.replace("vote", b"2")
            assert await files.read("vote") == b"2"

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\0b", "a.tmp"])
def test_names_stay_below_the_root(files: RealSmallFiles, name: str) -> None:
    with pytest.raises(BadFileName):
        asyncio.run(files.read(name))


def test_a_write_that_fails_names_the_file(
    files: RealSmallFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    asyncio.run(files.replace("other", b""))  # the folder is there
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        asyncio.run(files.replace("checkpoint", b"content"))
    assert caught.value.filename == str(tmp_path / "store" / "checkpoint")
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["other"]


def test_an_overwritten_file_keeps_its_inode_with_any_length(files: RealSmallFiles, tmp_path: Path) -> None:
    async def scenario() -> None:
        await files.replace("epochs", b"medium")
        inode = (tmp_path / "store" / "epochs").stat().st_ino
        for data in (b"short", b"a longer one"):
            await files.overwrite("epochs", data)
            assert await files.read("epochs") == data
        assert (tmp_path / "store" / "epochs").stat().st_ino == inode
        with pytest.raises(FileNotFoundError):
            await files.overwrite("absent", b"")

    asyncio.run(scenario())


def test_files_and_folders_are_moved_below_another_folder(files: RealSmallFiles, tmp_path: Path) -> None:
    async def scenario() -> None:
        await files.replace("commitlog/0", b"log")
        await files.replace("mark", b"m")
        assert await files.move("commitlog", "aside")
        assert await files.move("mark", "aside")
        assert not await files.move("mark", "aside"), "there is none any more"
        assert await files.names("") == ["aside/commitlog/0", "aside/mark"]
        await files.replace("commitlog/0", b"another")
        assert await files.read("aside/commitlog/0") == b"log"
        await files.discard("aside")
        await files.discard("aside")
        assert await files.names("") == ["commitlog/0"]

    asyncio.run(scenario())


def test_links_are_not_moved(files: RealSmallFiles, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    asyncio.run(files.replace("mark", b"m"))
    (tmp_path / "store" / "commitlog").symlink_to(tmp_path / "elsewhere")
    assert asyncio.run(files.immovable(["mark", "commitlog", "absent"])) == ["commitlog"]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and folders that `fsync` was called for, in order."""
    seen: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def test_a_move_is_synced_in_both_folders(files: RealSmallFiles, tmp_path: Path, synced: list[str]) -> None:
    asyncio.run(files.replace("mark", b"m"))
    asyncio.run(files.move("mark", "aside"))
    store = tmp_path / "store"
    assert synced[-2:] == [str(store / "aside"), str(store)]


def test_a_move_that_a_kill_left_unsynced_is_durable_when_it_is_repeated(
    files: RealSmallFiles, tmp_path: Path, synced: list[str]
) -> None:
    """The earlier process renamed it and was killed before the sync."""
    store = tmp_path / "store"
    (store / "aside").mkdir(parents=True)
    (store / "aside" / "mark").write_bytes(b"m")
    assert not asyncio.run(files.move("mark", "aside"))
    assert synced[-2:] == [str(store / "aside"), str(store)]
