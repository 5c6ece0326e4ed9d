"""A Raft-mode broker's store adopted into controller mode, opened and compared; and give-back."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dledger.storage.memberfolder import read_folder
from epochfile.file import EpochFile
from epochfile.history import EpochHistory
from messagestore.messages import RecoveryReport
from messagestore.record import Message, decode
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from mqruntime.smallfiles import RealSmallFiles
from raftstore.adoption import adopt
from raftstore.cli import raftstore
from raftstore.folder import read_log
from raftstore.framing import PlacedMessage
from raftstore.messagelog import MessageLog
from tests.unit.raftstore.raftstores import (
    FILE_BYTES,
    MEMBER,
    StoreOfMessages,
    contents,
    lay_out,
    message,
    messages_in,
)

ROOT = Path(__file__).parents[3]


def adopted(store: Path, root: Path, file_bytes: int = FILE_BYTES) -> Result:
    file = root.parent / "broker.conf"
    file.write_text(
        f"brokerName=broker-a\nstorePathRootDir={root}\n"
        f"mappedFileSizeCommitLog={file_bytes}\nmappedFileSizeConsumeQueue=400\n"
    )
    before = contents(store)
    result = CliRunner().invoke(raftstore, ["adopt", "-c", str(file), str(store)])
    assert contents(store) == before
    return result


def opened(root: Path, file_bytes: int = FILE_BYTES) -> tuple[RecoveryReport, dict[int, list[Message]]]:
    """The recovery report of the store, and the messages of each queue of Orders by its consume queue."""

    async def read() -> tuple[RecoveryReport, dict[int, list[Message]]]:
        settings = StoreSettings(mappedFileSizeCommitLog=file_bytes, mappedFileSizeConsumeQueue=400)
        store = MessageStore(real_runtime(root), settings, on_fatal=lambda error: None)
        report = await store.start()
        queues: dict[int, list[Message]] = {}
        for topic, queue_id in store.queues():
            assert topic == "Orders"
            first, end = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
            entries = store.entries(topic, queue_id, first, end - first)
            found = [await store.message_at(entry.physical_offset) for entry in entries]
            queues[queue_id] = [decode(record) for record in found if record is not None]
            assert [one.queue_offset for one in queues[queue_id]] == list(range(first, end))
        await store.stop()
        return report, queues

    return asyncio.run(read())


@pytest.mark.parametrize("name", ["killed", "mixed"])
def test_an_adopted_java_store_keeps_its_queue_offsets(tmp_path: Path, name: str) -> None:
    store, root = lay_out(name, tmp_path / "java"), tmp_path / "new"
    result = adopted(store, root)
    assert result.exit_code == 0, result.output
    before = [decode(each.content) for each in messages_in(store)[0]]
    assert f"holds {len(before)} messages, from 0 to" in result.output
    report, queues = opened(root)
    assert report.clean and report.confirm_offset == report.dispatched_offset == report.max_offset
    for queue_id in (0, 1):
        theirs = [one for one in before if one.queue_id == queue_id]
        assert [
            (one.body, one.queue_offset, one.properties, one.store_timestamp) for one in queues[queue_id]
        ] == [(one.body, one.queue_offset, one.properties, one.store_timestamp) for one in theirs]
    assert (root / "config/topics.json").read_bytes() == (store / "config/topics.json").read_bytes()
    history = asyncio.run(EpochFile(RealSmallFiles(root)).load())
    assert history == EpochHistory([(0, 0)])


def test_records_of_the_old_commit_log_keep_their_offsets(tmp_path: Path) -> None:
    store, root = lay_out("mixed", tmp_path / "java"), tmp_path / "new"
    assert adopted(store, root).exit_code == 0
    for name in ("00000000000000000000", "00000000000000016384"):
        old, new = [(folder / "commitlog" / name).read_bytes() for folder in (store, root)]
        end = old.rindex(b"\xcb\xd4\x31\x94") + 4
        assert new[:end] == old[:end]


def store_of_group(root: Path, bodies: list[bytes], term: int = 3) -> Path:
    made = StoreOfMessages(root, file_bytes=4096)
    for number, body in enumerate(bodies):
        made.add(message(number, body, number), term=term)
    return made.write()


def test_adopt_uses_the_store_that_holds_most_messages(tmp_path: Path) -> None:
    stores = [
        store_of_group(tmp_path / f"n{number}", [b"a", b"b", b"c"][: number + 1]) for number in (1, 2, 0)
    ]
    file, root = tmp_path / "broker.conf", tmp_path / "new"
    file.write_text(
        f"storePathRootDir={root}\nmappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=400\n"
    )
    result = CliRunner().invoke(raftstore, ["adopt", "-c", str(file), *map(str, stores)])
    assert result.exit_code == 0, result.output
    assert f"most is held by {tmp_path / 'n2'}" in result.output and "holds 3 messages" in result.output
    assert len(opened(root, 4096)[1][0]) == 3


def test_adopt_rejects_stores_of_two_groups(tmp_path: Path) -> None:
    stores = [store_of_group(tmp_path / "n0", [b"a", b"b"]), store_of_group(tmp_path / "n1", [b"a", b"x"])]
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path / 'new'}\nmappedFileSizeCommitLog=4096\n")
    result = CliRunner().invoke(raftstore, ["adopt", "-c", str(file), *map(str, stores)])
    assert result.exit_code == 1 and "not of one group: entry 1 of term 3 differs" in result.output


def test_an_adopted_log_keeps_its_start_offset(tmp_path: Path) -> None:
    made = StoreOfMessages(tmp_path / "java", file_bytes=4096, begin=8192, first_index=30)
    for number in range(60):
        made.add(message(number, b"b" * (10 * number), 500 + number))
    root = tmp_path / "new"
    result = adopted(made.write(), root, 4096)
    assert result.exit_code == 0, result.output
    report, queues = opened(root, 4096)
    assert (report.min_offset, len(queues[0]), queues[0][0].queue_offset) == (8192, 60, 500)
    assert asyncio.run(EpochFile(RealSmallFiles(root)).load()) == EpochHistory([(0, 8192)])


def test_a_rejected_adoption_changes_nothing(tmp_path: Path) -> None:
    store, root = lay_out("killed", tmp_path / "java"), tmp_path / "new"
    result = adopted(store, root, 8192)
    assert result.exit_code == 1 and "set mappedFileSizeCommitLog=16384" in result.output
    (store / "dledger-n0/checkpoint").write_text("committedIndex=50\nendIndex=50\n")
    result = adopted(store, root)
    assert result.exit_code == 1 and "nothing is done, for a log is damaged" in result.output
    assert not root.exists() or not any(root.iterdir())
    root.mkdir(exist_ok=True)
    (root / "something").touch()
    result = adopted(store, root)
    assert result.exit_code == 1 and "is not empty" in result.output


def test_adopt_rejects_a_broker_without_controller_mode(tmp_path: Path) -> None:
    store, file = lay_out("killed", tmp_path / "java"), tmp_path / "broker.conf"
    file.write_text(f"enableControllerMode=false\nstorePathRootDir={tmp_path / 'new'}\n")
    result = CliRunner().invoke(raftstore, ["adopt", "-c", str(file), str(store)])
    assert result.exit_code == 1 and "slaves of a pair would be missing" in result.output


class Broken(MessageLog):
    """A log whose disk fails while it is read."""

    def messages(self) -> Iterator[PlacedMessage]:
        for number, each in enumerate(super().messages()):
            if number == 40:
                raise OSError(errno.EIO, "read error")
            yield each


def test_a_half_adopted_store_has_no_epoch_file_and_does_not_start(tmp_path: Path) -> None:
    files = read_folder(lay_out("killed", tmp_path / "java"))
    root, settings = tmp_path / "new", StoreSettings(mappedFileSizeCommitLog=FILE_BYTES)
    log = Broken([], files)
    with pytest.raises(OSError, match="read error"):
        asyncio.run(adopt(log, {}, real_runtime(root), settings, "epochFileCheckpoint"))
    assert len(list((root / "commitlog").iterdir())) == 2
    assert not (root / "epochFileCheckpoint").exists()
    said = subprocess.run(
        [sys.executable, "-m", "broker", f"storePathRootDir={root}", "controllerAddr=127.0.0.1:9", "listenPort=0",
         f"mappedFileSizeCommitLog={FILE_BYTES}"],
        env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 1 and "no epoch is known for it" in said.stderr


def test_a_log_that_changes_between_two_reads_is_not_adopted(tmp_path: Path) -> None:
    store = lay_out("killed", tmp_path / "java")
    log = read_log(store)
    assert len(list(log.messages())) == 43
    file = store / MEMBER / "data/00000000000000016384"
    content = bytearray(file.read_bytes())
    content[content.rindex(b"...")] ^= 1
    file.write_bytes(content)  # the log sees it through its mapping
    root, settings = tmp_path / "new", StoreSettings(mappedFileSizeCommitLog=FILE_BYTES)
    with pytest.raises(OSError, match="reads differently than a moment ago"):
        asyncio.run(adopt(log, {}, real_runtime(root), settings, "epochFileCheckpoint"))
    assert not (root / "epochFileCheckpoint").exists()


def test_a_store_without_messages_is_not_adopted(tmp_path: Path) -> None:
    made = StoreOfMessages(tmp_path / "java", file_bytes=4096)
    made.add_body(b"")
    result = adopted(made.write(), tmp_path / "new", 4096)
    assert result.exit_code == 1 and "holds no message" in result.output


def given_back(store: Path, root: Path, file_bytes: int = FILE_BYTES) -> Result:
    file = root.parent / "raft.conf"
    file.write_text(
        f"enableDLegerCommitLog=true\ndLegerSelfId=n0\nstorePathRootDir={root}\n"
        f"mappedFileSizeCommitLog={file_bytes}\n"
    )
    before = contents(store)
    result = CliRunner().invoke(raftstore, ["give-back", "-c", str(file), str(store)])
    assert contents(store) == before
    return result


def test_give_back_restores_the_bytes_of_java(tmp_path: Path) -> None:
    """Except two fields of an entry that Java leaves 0 and does not read."""
    java, ours, back = lay_out("killed", tmp_path / "java"), tmp_path / "ours", tmp_path / "back"
    assert adopted(java, ours).exit_code == 0
    result = given_back(ours, back)
    assert result.exit_code == 0 and "holds 43 messages" in result.output, result.output
    for name in ("00000000000000000000", "00000000000000016384", "00000000000000032768"):
        theirs, made = [(root / MEMBER / "data" / name).read_bytes() for root in (java, back)]
        at = 0
        while at + 48 <= FILE_BYTES and made[at : at + 4] == b"\0\0\0\1":
            made = made[: at + 36] + bytes(8) + made[at + 44 :]
            at += int.from_bytes(made[at + 4 : at + 8], "big")
        assert made == theirs
    units = [read_folder(root / MEMBER).index[0][1][: 43 * 32] for root in (java, back)]
    assert units[0] == units[1]
    assert (back / MEMBER / "checkpoint").read_text() == "endIndex=42\ncommittedIndex=42\n"
    assert (back / MEMBER / "currterm").read_text() == "voteLeader=\ncurrTerm=0\n"
    assert (back / "abort").exists()  # so that Java builds its queues
    assert CliRunner().invoke(raftstore, ["inspect", str(back)]).exit_code == 0


def test_give_back_requires_a_cleanly_closed_store(tmp_path: Path) -> None:
    java, ours, back = lay_out("mixed", tmp_path / "java"), tmp_path / "ours", tmp_path / "back"
    assert adopted(java, ours).exit_code == 0
    (ours / "abort.spare").rename(ours / "abort")
    result = given_back(ours, back)
    assert result.exit_code == 1 and "was not closed by a broker of this implementation" in result.output
    assert not back.exists()
    (ours / "abort").unlink()
    assert given_back(ours, back).exit_code == 0
    before, after = messages_in(java)[0], messages_in(back)[0]
    assert [one.facts for one in after] == [one.facts for one in before]


def test_give_back_rejects_files_too_small_for_a_message(tmp_path: Path) -> None:
    made = StoreOfMessages(tmp_path / "java", file_bytes=8192)
    made.add(message(0, b"b" * 5000, 0))
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert adopted(made.write(), ours, 8192).exit_code == 0
    result = given_back(ours, back, 4096)
    assert result.exit_code == 1 and "set mappedFileSizeCommitLog larger" in result.output
    assert given_back(ours, back, 8192).exit_code == 0
