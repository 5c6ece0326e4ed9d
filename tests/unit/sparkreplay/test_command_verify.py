"""mqreplay verify: everything that is wrong with a replica, and where replicas differ."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import pytest

from sparkreplay.check.findings import Findings
from sparkreplay.check.verify import StretchReport, VerifyJob, check_small_files, verify_stretch
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.snapshot import StoreSnapshot, open_store
from tests.unit.sparkreplay.commandline import Done, mqreplay, two_days
from tests.unit.sparkreplay.storefolder import StoreFolder

GOLDEN = Path(__file__).parents[2] / "vectors" / "store"


def verify(*stores: str | Path, options: tuple[str, ...] = ()) -> Done:
    return mqreplay("verify", *(str(store) for store in stores), "--workers", "1", "--json", *options)


def findings_of(done: Done) -> list[tuple[str, int | None]]:
    assert done.err == "" and done.code == (1 if done.json["findings_count"] else 0)
    return [(finding["check"], finding["offset"]) for finding in done.json["findings"]]


def with_queues(store: StoreFolder) -> StoreFolder:
    """Writes the store and the consume queues that belong to it."""
    store.write_queues()
    store.write()
    return store


def change(store: StoreFolder, at: int, data: bytes) -> None:
    start = at // store.segment_bytes * store.segment_bytes
    segment = store.root / "commitlog" / f"{start:020d}"
    raw = bytearray(segment.read_bytes())
    raw[at - start : at - start + len(data)] = data
    segment.write_bytes(raw)


def test_an_intact_replica_has_no_findings(tmp_path: Path) -> None:
    store = with_queues(two_days(tmp_path))
    done = verify(tmp_path)
    assert findings_of(done) == []
    (row,) = done.json["stores"]
    assert (row["records"], row["queues"], row["consume_queues_checked"]) == (400, 9, True)
    assert row["bytes"] == sum(end - at for (_, _, at), end in zip(store.records, store.ends, strict=True))
    assert "nothing is wrong" in mqreplay("verify", str(tmp_path), "--workers", "1").out


def test_a_store_that_java_wrote_has_no_findings(tmp_path: Path) -> None:
    source = GOLDEN / "clean-shutdown"
    shutil.copytree(source / "consumequeue", tmp_path / "consumequeue")
    shutil.copytree(source / "index", tmp_path / "index")
    (tmp_path / "checkpoint").write_bytes((source / "checkpoint").read_bytes().ljust(4096, b"\0"))
    (index,) = (tmp_path / "index").iterdir()
    index.write_bytes(index.read_bytes().ljust(40 + 4 * 2000 + 20 * 8000, b"\0"))
    (tmp_path / "commitlog").mkdir()
    for packed in (source / "commitlog").iterdir():
        data = gzip.decompress(packed.read_bytes()).ljust(262144, b"\0")
        (tmp_path / "commitlog" / packed.stem).write_bytes(data)
    StoreFolder(tmp_path).write_epochs(((1, 0),))
    done = verify(tmp_path)
    assert findings_of(done) == [], done.json["findings"]
    assert done.json["stores"][0]["records"] == (source / "messages.jsonl").read_text().count('"queueOffset"')


def test_every_damaged_record_is_listed_and_the_others_are_checked(tmp_path: Path) -> None:
    store = with_queues(two_days(tmp_path))
    places = [at for _, _, at in store.records]
    body = 35  # of 64 bytes
    change(store, places[10] + 4, b"\xff")  # magic
    change(store, places[body] + 90, b"\xff\xff\xff")  # body
    change(store, places[60] + 28, struct.pack(">q", 77))  # physical offset
    change(store, places[200], struct.pack(">i", 1 << 30))  # size
    done = verify(tmp_path)
    assert {finding for finding in findings_of(done) if finding[0] in ("log", "record")} == {
        ("log", places[10]), ("record", places[body]), ("record", places[60]), ("log", places[200]),
    }  # fmt: skip
    assert done.json["stores"][0]["records"] == 398


def test_damage_that_takes_many_records_is_walked_past(tmp_path: Path) -> None:
    store = with_queues(two_days(tmp_path))
    places = [at for _, _, at in store.records]
    change(store, places[20], bytes(places[40] - places[20]))
    done = verify(tmp_path)
    findings = findings_of(done)
    assert findings[0] == ("log", places[20]) and done.json["stores"][0]["records"] == 380
    assert {check for check, _ in findings[1:]} == {"queue offsets"}


def test_a_duplicate_or_missing_queue_offset_is_reported_with_its_record(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, segment_bytes=4096)
    for _ in range(5):
        store.add()
    store.next_queue_offset["orders", 0] = 4
    twice = store.add()
    for _ in range(40):
        store.add()
    store.next_queue_offset["orders", 0] += 2
    left_out = store.add()
    store.write()
    done = verify(tmp_path)
    assert findings_of(done) == [("queue offsets", twice), ("queue offsets", left_out)]
    assert done.json["stores"][0]["consume_queues_checked"] is False


def test_consume_queue_entries_that_disagree_with_the_log_are_reported(tmp_path: Path) -> None:
    store = with_queues(two_days(tmp_path))
    queue = tmp_path / "consumequeue" / "orders" / "1"
    names = sorted(queue.iterdir())
    data = bytearray(names[0].read_bytes())
    data[3 * 20 : 4 * 20] = struct.pack(">qiq", 1, 2, 3)
    names[0].write_bytes(data)
    tail = bytearray(names[-1].read_bytes())  # entries 40 to 44 and room for more
    tail[5 * 20 : 6 * 20] = struct.pack(">qiq", store.records[0][2], 100, 0)
    names[-1].write_bytes(tail)
    stray = tmp_path / "consumequeue" / "ghosts" / "0"
    stray.mkdir(parents=True)
    (stray / f"{0:020d}").write_bytes(struct.pack(">qiq", 500, 100, 0).ljust(800, b"\0"))
    done = verify(tmp_path)
    fourth = [at for topic, queue_id, at in store.records if (topic, queue_id) == ("orders", 1)][3]
    assert findings_of(done) == [
        ("consume queue", fourth), ("consume queue", 500), ("consume queue", store.records[0][2]),
    ]  # fmt: skip
    assert "queue offset 3 has the entry (1, 2)" in done.json["findings"][0]["what"]


def test_a_missing_queue_is_one_finding(tmp_path: Path) -> None:
    store = with_queues(two_days(tmp_path))
    shutil.rmtree(tmp_path / "consumequeue" / "payments" / "2")
    done = verify(tmp_path)
    assert len(findings_of(done)) == len({at // store.segment_bytes for _, _, at in store.records})
    assert all("has no entry" in finding["what"] for finding in done.json["findings"])


@pytest.mark.parametrize(
    ("name", "data", "check"),
    [
        ("checkpoint", struct.pack(">5q", 0, -5, 0, 0, 900).ljust(4096, b"\0"), "store"),
        ("index/20240101000000000", struct.pack(">qqqqii", 9, 1, 7, 8, 1, 5).ljust(400, b"\0"), "index"),
        ("index/20240101000000000", b"short", "index"),
    ],
)
def test_small_files_that_contradict_the_log_are_reported(
    tmp_path: Path, name: str, data: bytes, check: str
) -> None:
    with_queues(two_days(tmp_path))
    (tmp_path / "index").mkdir()
    (tmp_path / name).write_bytes(data)
    done = verify(tmp_path)
    assert {name_of_check for name_of_check, _ in findings_of(done)} >= {check}


def test_an_epoch_that_starts_inside_a_record_is_reported(tmp_path: Path) -> None:
    store = with_queues(two_days(tmp_path))
    store.write_epochs(((1, 0), (2, store.ends[5]), (3, store.ends[9] + 1)))
    assert findings_of(verify(tmp_path)) == [("epoch file", store.ends[9] + 1)]


def test_a_folder_without_a_store_is_one_finding_and_other_stores_are_checked(tmp_path: Path) -> None:
    with_queues(two_days(tmp_path / "intact"))
    (tmp_path / "empty").mkdir()
    done = verify(tmp_path / "empty", tmp_path / "intact")
    assert findings_of(done) == [("store", None)] and done.json["stores"][0]["records"] == 400


def replicas(root: Path, *bounds: int) -> list[StoreFolder]:
    made = []
    for number, bound in enumerate(bounds):
        store = two_days(root / f"broker-{number}")
        store.write(confirm=bound or len(store.log), epochs=((1, 0), (3, store.ends[100])))
        made.append(store)
    return made


def test_replicas_that_hold_the_same_bytes_are_alike_up_to_the_lower_bound(tmp_path: Path) -> None:
    one, other = replicas(tmp_path, 0, 20_000)
    change(other, 20_000, b"\xff" * 50)
    (other.root / "commitlog" / f"{0:020d}").unlink()
    done = verify(one.root, other.root, options=("--compare-only",))
    assert findings_of(done) == []
    assert done.json["compared"][0] | {"one": "", "other": ""} == {
        "one": "", "other": "", "start_offset": 16384, "end_offset": 20_000, "bytes": 20_000 - 16384,
        "segments_deleted_meanwhile": 0,
    }  # fmt: skip


def test_each_record_in_which_replicas_differ_is_reported_with_its_epoch(tmp_path: Path) -> None:
    one, other, third = replicas(tmp_path, 0, 0, 0)
    places = [at for _, _, at in one.records]
    for number in (50, 250):
        change(other, places[number] + 100, b"\x01")
    done = verify(one.root, other.root, third.root, options=("--compare-only",))
    assert findings_of(done) == [("bytes", places[50] + 100), ("bytes", places[250] + 100)]
    first, second = (finding["what"] for finding in done.json["findings"])
    assert f"the record at {places[50]} (%RETRY%billing/1, queue offset 5), epoch 1" in first
    assert second.endswith("epoch 3")


def test_bytes_behind_the_end_of_a_segment_do_not_count(tmp_path: Path) -> None:
    one, other = replicas(tmp_path, 0, 0)
    change(other, 16384 - 3, b"abc")
    assert findings_of(verify(one.root, other.root, options=("--compare-only",))) == []


def test_replicas_whose_epochs_differ_are_no_replicas(tmp_path: Path) -> None:
    one, other = replicas(tmp_path, 0, 0)
    other.write_epochs(((1, 0), (2, other.ends[90])))
    done = verify(one.root, other.root, options=("--compare-only",))
    assert findings_of(done)[0] == ("epochs", other.ends[90])


def test_findings_are_bounded_and_counted(tmp_path: Path) -> None:
    store = with_queues(two_days(tmp_path))
    for _, _, at in store.records:
        change(store, at + 8, b"\x12\x34")
    done = mqreplay("verify", str(tmp_path), "--workers", "1")
    assert done.code == 1 and "more" in done.out
    assert len(done.out.splitlines()) < 120


def test_files_deleted_by_retention_during_a_check_are_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_queues(two_days(tmp_path, 1200))
    (tmp_path / "index").mkdir()

    def then_delete(path: str, **options: bool) -> StoreSnapshot:
        opened = open_store(path, **options)
        log_min = store.delete_first(2)
        for topic, queue_id in store.next_queue_offset:
            folder = tmp_path / "consumequeue" / topic / str(queue_id)
            owned = [at for name, queue, at in store.records if (name, queue) == (topic, queue_id)]
            for first in range(0, len(owned), 20):
                if owned[min(first + 20, len(owned)) - 1] < log_min:
                    (folder / f"{first * 20:020d}").unlink()
        return opened

    monkeypatch.setattr("sparkreplay.commands.verify.open_store", then_delete)
    done = verify(tmp_path)
    assert findings_of(done) == [], done.json["findings"]
    (row,) = done.json["stores"]
    assert (row["start_offset"], row["segments_deleted_meanwhile"]) == (store.log_min, 2)


def test_segments_that_were_checked_and_then_deleted_with_the_next_ones_are_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_queues(two_days(tmp_path, 1200))

    def then_delete(job: VerifyJob, number: int) -> StretchReport:
        report = verify_stretch(job, number)
        if number == 0:
            store.delete_first(2)
        return report

    monkeypatch.setattr("sparkreplay.commands.verify.verify_stretch", then_delete)
    done = verify(tmp_path)
    assert findings_of(done) == [], done.json["findings"]
    assert done.json["stores"][0]["segments_deleted_meanwhile"] == 2


def test_a_segment_that_is_taken_from_the_middle_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_queues(two_days(tmp_path, 1200))

    def then_take(path: str, **options: bool) -> StoreSnapshot:
        opened = open_store(path, **options)
        (tmp_path / "commitlog" / f"{16384:020d}").unlink()
        return opened

    monkeypatch.setattr("sparkreplay.commands.verify.open_store", then_take)
    done = verify(tmp_path)
    assert done.code == 1 and ("log", 16384) in [
        (each["check"], each["offset"]) for each in done.json["findings"]
    ]


def test_replicas_are_compared_outside_ranges_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = replicas(tmp_path, 0, 0)

    def then_delete(path: str, **options: bool) -> StoreSnapshot:
        opened = open_store(path, **options)
        if path == str(other.root):
            other.delete_first(1)
        return opened

    monkeypatch.setattr("sparkreplay.commands.verify.open_store", then_delete)
    done = verify(one.root, other.root, options=("--compare-only",))
    assert findings_of(done) == []
    assert done.json["compared"][0]["segments_deleted_meanwhile"] == 1


def test_a_gap_with_filler_entries_is_reported_once(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, segment_bytes=4096)
    for _ in range(5):
        store.add()
    store.next_queue_offset["orders", 0] += 2
    behind = store.add()
    store.write()
    filler = struct.pack(">qiq", 0, 0x7FFFFFFF, behind)
    entries = [
        struct.pack(">qiq", at, end - at, 0)
        for (_, _, at), end in zip(store.records, store.ends, strict=True)
    ]
    queue = tmp_path / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(
        b"".join([*entries[:5], filler, filler, *entries[5:]]).ljust(400, b"\0")
    )
    assert findings_of(verify(tmp_path)) == [("queue offsets", behind)]


def test_the_crc_of_a_whole_record_is_checked_when_asked_for(tmp_path: Path) -> None:
    source = GOLDEN / "non-controller-record-crc"
    (tmp_path / "commitlog").mkdir()
    (packed,) = (source / "commitlog").iterdir()
    content = bytearray(gzip.decompress(packed.read_bytes()) if packed.suffix else packed.read_bytes())
    end = len(content.rstrip(b"\0"))
    content[415 + 48] ^= 1  # the born host of the second record
    (tmp_path / "commitlog" / packed.stem).write_bytes(content.ljust(65536, b"\0"))
    (tmp_path / "checkpoint").write_bytes(struct.pack(">5q", 0, 0, 0, 0, end).ljust(4096, b"\0"))
    StoreFolder(tmp_path).write_epochs(((1, 0),))
    assert findings_of(verify(tmp_path)) == []
    assert findings_of(verify(tmp_path, options=("--record-crc",))) == [("record", 415)]


def test_a_log_that_grows_during_a_check_is_no_finding(tmp_path: Path) -> None:
    with_queues(two_days(tmp_path))
    store = open_store(LocalFiles(str(tmp_path)))
    end = store.segments[-1].end_offset
    (tmp_path / "commitlog" / f"{end:020d}").write_bytes(bytes(end - store.segments[-1].start_offset))
    checkpoint = bytearray((tmp_path / "checkpoint").read_bytes())
    findings = Findings()
    for confirm in (end + 1, end + store.segments[-1].size_bytes + 1):
        struct.pack_into(">q", checkpoint, 32, confirm)
        (tmp_path / "checkpoint").write_bytes(checkpoint)
        check_small_files(store, findings)
    assert [finding.offset for finding in findings.kept] == [confirm]
