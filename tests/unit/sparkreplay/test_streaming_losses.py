"""How many messages a deleted part of a log held: exactly, or a lower limit, from its consume queues."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sparkreplay.store.files import FolderMember, LocalFiles, OpenFile
from sparkreplay.stream.losses import messages_lost
from tests.unit.sparkreplay.storefolder import StoreFolder


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    made = StoreFolder(tmp_path)
    for number in range(200):
        made.add(topic=("orders", "payments")[number % 2], queue_id=number % 3)
    made.write()
    made.write_queues()
    return made


def queue_files(folder: StoreFolder) -> list[Path]:
    return sorted((folder.root / "consumequeue").glob("*/*/*"))


def test_every_queue_is_counted_for_any_range(folder: StoreFolder) -> None:
    ends = [0, *folder.ends]
    for first, last in ((0, 200), (0, 1), (17, 17), (60, 133), (199, 200)):
        assert messages_lost(LocalFiles(str(folder.root)), ends[first], ends[last]) == (
            f"{last - first} messages by their queue offsets"
        )


def test_queue_files_deleted_with_the_log_leave_a_lower_limit(folder: StoreFolder) -> None:
    gone = queue_files(folder)[0]
    gone.unlink()
    assert messages_lost(LocalFiles(str(folder.root)), 0, folder.ends[-1]) == (
        "at least 180 messages by their queue offsets"
    )


def test_a_deleted_queue_file_below_the_range_changes_nothing(folder: StoreFolder) -> None:
    queue_files(folder)[0].unlink()
    start = folder.ends[150]
    assert messages_lost(LocalFiles(str(folder.root)), start, folder.ends[-1]) == (
        "49 messages by their queue offsets"
    )


def test_fillers_before_a_queues_first_entry_are_no_messages(folder: StoreFolder) -> None:
    file = queue_files(folder)[0]
    filler = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    file.write_bytes(filler * 5 + file.read_bytes()[100:])
    assert messages_lost(LocalFiles(str(folder.root)), 0, folder.ends[-1]) == (
        "195 messages by their queue offsets"
    )


def test_queue_files_deleted_while_counting_leave_a_lower_limit(folder: StoreFolder) -> None:
    class Shrinking(LocalFiles):
        """The queue files that are listed are gone when they are opened, and a topic goes as a whole."""

        def entries(self, name: str) -> list[FolderMember]:
            if name == "consumequeue/payments":
                raise FileNotFoundError(name)
            return super().entries(name)

        def open(self, name: str) -> OpenFile:
            if "orders/0" in name:
                raise FileNotFoundError(name)
            return super().open(name)

    assert messages_lost(Shrinking(str(folder.root)), 0, folder.ends[-1]).startswith("at least 66 messages")


def test_a_store_without_queues_reports_an_unknown_number_lost(tmp_path: Path) -> None:
    assert "unknown number" in messages_lost(LocalFiles(str(tmp_path)), 0, 100)
