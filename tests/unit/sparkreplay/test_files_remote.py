"""A store gives the same rows on every file system; an unreachable one is named with a hint."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyarrow import fs

from sparkreplay.errors import EpochChanged, OptionError, ReplayError, SegmentGone, StoreUnreadable
from sparkreplay.store.files import Files, LocalFiles
from sparkreplay.store.remotefiles import READ_AHEAD_BYTES, RemoteFiles
from sparkreplay.store.snapshot import open_store
from tests.unit.sparkreplay.ledgerfolder import LedgerFolder
from tests.unit.sparkreplay.memoryfilesystem import content_of, memory_file_system, s3_server
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import rows_of_store, stretches_of

EPOCHS = ((1, 0), (2, 16384))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of three segments and two epochs, in a folder whose name needs encoding in a URI."""
    store = StoreFolder(tmp_path / "broker a%", segment_bytes=16384)
    for number in range(60):
        store.add(queue_id=number % 3, body=bytes([number]) * (number * 37 % 900))
    store.write(epochs=EPOCHS)
    return store.root


def test_rows_and_epochs_are_the_same_on_every_file_system(folder: Path) -> None:
    expected = rows_of_store(open_store(str(folder)))
    assert len(expected) == 60 and {row["epoch"] for row in expected} == {1, 2}
    places: list[str | Files] = [
        folder.as_uri(),
        "file:" + str(folder).replace("%", "%25"),
        RemoteFiles(str(folder), fs.LocalFileSystem()),
        RemoteFiles("stores/a", memory_file_system(content_of(folder, "stores/a"))),
    ]
    for place in places:
        store = open_store(place)
        assert (store.epochs, store.broker_name) == (EPOCHS, "broker-a")
        for split_bytes in (4096, 1 << 20):
            assert rows_of_store(store, split_bytes) == expected


def test_a_raft_mode_brokers_store_is_the_same_on_every_file_system(tmp_path: Path) -> None:
    ledger = LedgerFolder(tmp_path, 16384)
    for number in range(60):
        ledger.term = number // 25
        ledger.add(body=bytes([number]) * (number * 37 % 900))
    ledger.write()
    expected = rows_of_store(open_store(str(tmp_path)))
    assert len(expected) == 60 and {row["epoch"] for row in expected} == {0, 1, 2}
    place = RemoteFiles("stores/a", memory_file_system(content_of(tmp_path, "stores/a")))
    assert rows_of_store(open_store(place), 4096) == expected
    with s3_server(content_of(tmp_path, "logs/a")) as (options, _):
        assert rows_of_store(open_store(f"s3://reader:hush@logs/a?{options}"), 4096) == expected


def test_a_store_in_s3_is_read_by_ranges_and_credentials_are_never_shown(folder: Path) -> None:
    expected = rows_of_store(open_store(str(folder)))
    with s3_server(content_of(folder, "logs/team/a")) as (options, ranges):
        store = open_store(f"s3://reader:hush@logs/team/a?{options}")
        assert rows_of_store(store, 4096) == expected
        assert store.root == "s3://logs/team/a"
        assert "hush" not in repr(store)
        assert len(ranges) < 60, "the few bytes that planning looks at come in blocks"


def test_a_missing_bucket_and_refused_credentials_are_reported_with_a_hint(folder: Path) -> None:
    with s3_server(content_of(folder, "logs/a")) as (options, _):
        for uri, why in (
            (f"s3://reader:hush@other/a?{options}", "s3://other/a: is no folder"),
            (f"s3://reader:hush@logs/b?{options}", "s3://logs/b: is no folder"),
            (
                f"s3://stranger:hush@logs/a?{options}",
                r"(?i)access.?denied.*check bucket, region and credentials",
            ),
        ):
            with pytest.raises(StoreUnreadable, match=why) as refused:
                open_store(uri)
            assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("hdfs://127.0.0.1:1/store", "libhdfs is found"),
        ("carrier-pigeon://user:hush@loft/store", "carrier-pigeon://loft/store: .*a local folder, file://"),
        ("s3:/store", "a local folder, file://, s3:// or hdfs:// is expected"),
        ("file://elsewhere/store", "names another machine"),
        ("file://[store", "a file URI is file:///FOLDER"),
        ("", "must name a store"),
        ("/no/such/store", "/no/such/store: is no folder"),
        ("/d1/commitlog,/d2/commitlog", "spreads over several folders"),
    ],
)
def test_an_unreadable_location_is_refused_with_a_hint(path: str, why: str) -> None:
    with pytest.raises((OptionError, StoreUnreadable), match=why) as refused:
        open_store(path)
    assert "hush" not in str(refused.value)


def test_workers_reopen_a_pickled_store(folder: Path) -> None:
    memory = memory_file_system(content_of(folder, "a"))
    for place in (
        LocalFiles(str(folder)),
        RemoteFiles(str(folder), fs.LocalFileSystem()),
        RemoteFiles("a", memory),
    ):
        store = open_store(place)
        assert rows_of_store(pickle.loads(pickle.dumps(store))) == rows_of_store(store)


def test_remote_reads_return_the_stored_bytes_at_any_offset_and_size(folder: Path) -> None:
    content = bytes(range(256)) * 3000
    files = RemoteFiles("a", memory_file_system({"a/f": content}))
    file = files.open("f")
    for at, size in (
        (0, 8), (5, 8), (READ_AHEAD_BYTES - 3, 8), (100, READ_AHEAD_BYTES), (700_000, READ_AHEAD_BYTES * 2),
        (len(content) - 3, 8), (len(content), 8), (17, 0), (3, 40),
    ):  # fmt: skip
        buffer = bytearray(size)
        held = file.read_into(memoryview(buffer), at)
        assert bytes(buffer[:held]) == content[at : at + size]
    file.close()


def test_a_deleted_remote_segment_and_changed_epochs_fail_the_read(folder: Path) -> None:
    content = content_of(folder, "a")
    store = open_store(RemoteFiles("a", memory_file_system(content)))
    planned = stretches_of(store)
    content["a/epochFileCheckpoint"] = b"2\n0\n1-0\n3-900\n"
    with pytest.raises(EpochChanged):
        rows_of_store(store)
    del content[f"a/{planned[0].segment.name}"]
    with pytest.raises(SegmentGone):
        rows_of_store(store)


def test_an_oversized_small_file_is_refused_unread(folder: Path) -> None:
    content = content_of(folder, "a") | {"a/brokerIdentity": bytes(5 << 20)}
    with pytest.raises(ReplayError, match="brokerIdentity: is longer than"):
        open_store(RemoteFiles("a", memory_file_system(content)))


def test_an_object_deleted_during_a_read_is_named(folder: Path) -> None:
    content = content_of(folder, "logs/a")
    with s3_server(content) as (options, _):
        store = open_store(f"s3://reader:hush@logs/a?{options}")
        file = store.files.open(store.segments[0].name)
        del content[f"logs/a/{store.segments[0].name}"]
        with pytest.raises(SegmentGone, match="was deleted"):
            file.read_into(memoryview(bytearray(64)), 0)
