"""mqreplay export: each committed row is in one part, after any kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow.parquet as pq
import pytest

from sparkreplay.export import job as exporting
from sparkreplay.export import partfiles
from sparkreplay.export.manifest import Manifest, ParquetPart, encode
from sparkreplay.export.partitions import escaped
from sparkreplay.read.reader import ReadPlan, read_stretch
from sparkreplay.records.walk import Stretch
from tests.unit.sparkreplay.commandline import Done, mqreplay, two_days
from tests.unit.sparkreplay.storefolder import StoreFolder


def export(path: str, target: Path, *more: str) -> Done:
    return mqreplay("export", path, "--to", str(target), "--split", "8k", "--workers", "1", "--json", *more)


def files_of(target: Path) -> dict[str, bytes]:
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def rows_of(target: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(target).to_pylist()
    return sorted(rows, key=lambda row: int(row["physical_offset"]))


def test_each_row_is_in_the_folder_of_its_topic_and_day(tmp_path: Path) -> None:
    path = two_days(tmp_path / "store").write()
    target = tmp_path / "parquet"
    done = export(path, target)
    assert done.code == 0, done.err
    rows = rows_of(target)
    assert [row["msg_id"] for row in rows] == [f"K{number}" for number in range(400)]
    assert {(row["topic"], row["day"]) for row in rows} == {
        (topic, day) for topic in ("orders", "payments", "%RETRY%billing") for day in ("2023-11-15", "2023-11-16")
    }  # fmt: skip
    for row in rows:
        assert row["store_timestamp"].astimezone(UTC).strftime("%Y-%m-%d") == row["day"]
    assert sorted(entry.name for entry in target.iterdir()) == [
        "_manifest.json", "topic=%25RETRY%25billing", "topic=orders", "topic=payments",
    ]  # fmt: skip


def test_the_manifest_describes_each_part(tmp_path: Path) -> None:
    store = two_days(tmp_path / "store")
    path = store.write(confirm=store.ends[299] + 3, epochs=((1, 0), (2, store.ends[10]), (3, len(store.log))))
    target = tmp_path / "parquet"
    export(path, target)
    manifest = json.loads((target / "_manifest.json").read_text())
    (ranges,) = manifest["runs"]
    assert (ranges[0]["broker_name"], ranges[0]["committed_bound"], ranges[0]["bound_source"]) == (
        "broker-a", store.ends[299] + 3, "checkpoint",
    )  # fmt: skip
    assert ranges[0]["epochs"] == [[1, 0], [2, store.ends[10]]]
    assert manifest["rows"] == sum(part["rows"] for part in manifest["parts"]) == 300
    assert set(files_of(target)) == {"_manifest.json", *(part["file"] for part in manifest["parts"])}
    for part in manifest["parts"]:
        data = (target / part["file"]).read_bytes()
        offsets = (
            pq.read_table(target / part["file"], partitioning=None).column("physical_offset").to_pylist()
        )
        assert (part["bytes"], part["crc32"], part["rows"]) == (len(data), crc32(data), len(offsets))
        assert (part["first_offset"], part["last_offset"]) == (offsets[0], offsets[-1])
        low, high = Path(part["file"]).stem.split("-")[-2:]
        assert int(low) <= offsets[0] and offsets[-1] < int(high)
    assert "body" in {column["name"] for column in manifest["columns"]}


def test_an_export_has_the_requested_columns_and_topics(tmp_path: Path) -> None:
    path = two_days(tmp_path / "store").write()
    target = tmp_path / "parquet"
    assert export(path, target, "--columns", "body,queue_id,topic", "--topic", "orders").code == 0
    table = pq.read_table(target)
    assert table.column_names == ["body", "queue_id", "topic", "day"] and table.num_rows == 134


@pytest.mark.parametrize(
    "topic",
    ["../../escape", "/etc/passwd", "..", ".", "a b", "x" * 250, "%" * 120, "__HIVE_DEFAULT_PARTITION__"],
)
def test_no_topic_writes_outside_its_own_folder(tmp_path: Path, topic: str) -> None:
    store = StoreFolder(tmp_path / "store")
    store.add(topic=topic)
    store.add(topic="orders")
    target = tmp_path / "parquet"
    done = export(store.write(), target)
    assert done.code == 0, done.err
    parts = json.loads((target / "_manifest.json").read_text())["parts"]
    assert {part["topic"] for part in parts} == {topic, "orders"}
    for part in parts:
        place = (target / part["file"]).resolve()
        assert place.is_file() and place.parent.parent.parent == target.resolve()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["parquet", "store"]
    if len(topic) < 100 and topic != "__HIVE_DEFAULT_PARTITION__":
        assert {row["topic"] for row in rows_of(target)} == {topic, "orders"}


def test_topics_that_are_cut_have_different_folders() -> None:
    first, second = escaped("%" * 120), escaped("%" * 119 + "x")
    assert first != second and max(len(first), len(second)) <= 200


def test_more_partitions_than_open_files_are_written_in_several_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreFolder(tmp_path / "store", segment_bytes=1 << 20)
    for number in range(600):
        store.add(topic=f"t{number % 7}", properties=f"UNIQ_KEY\x01K{number}\x02")
    monkeypatch.setattr(partfiles, "OPEN_FILES_MAX", 3)
    monkeypatch.setattr(exporting, "WINDOW_BYTES", 20_000)
    path, target = store.write(), tmp_path / "parquet"
    monkeypatch.setattr(exporting, "read_stretch", in_small_batches)
    assert mqreplay("export", path, "--to", str(target), "--workers", "1", "--quiet").code == 0
    assert [row["msg_id"] for row in rows_of(target)] == [f"K{number}" for number in range(600)]
    names = [Path(name).name for name in files_of(target) if name.startswith("topic=t0/")]
    assert len(names) > 1 and len(set(names)) == len(names)


def in_small_batches(read: ReadPlan, stretch: Stretch) -> Any:
    for batch in read_stretch(read, stretch):
        batch = batch.sort_by("physical_offset")
        for start in range(0, batch.num_rows, 50):
            yield batch.slice(start, 50)


def test_a_finished_export_says_so_and_changes_nothing(tmp_path: Path) -> None:
    path, target = two_days(tmp_path / "store").write(), tmp_path / "parquet"
    export(path, target)
    before = files_of(target)
    again = export(path, target)
    assert again.code == 0 and "finished before" in again.json["state"] and files_of(target) == before


@pytest.mark.parametrize("stretches_done", [0, 1, 3])
def test_a_crashed_export_continues_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretches_done: int
) -> None:
    store = two_days(tmp_path / "store")
    path, target = store.write(confirm=store.ends[300]), tmp_path / "parquet"
    whole = tmp_path / "whole"
    export(path, whole)
    done = 0

    def dies(read: ReadPlan, stretch: Stretch) -> Any:
        nonlocal done
        batches = list(read_stretch(read, stretch))
        if done == stretches_done:
            yield batches[0].slice(0, 1)
            raise OSError("the disk is gone")
        done += 1
        yield from batches

    monkeypatch.setattr(exporting, "read_stretch", dies)
    failed = export(path, target)
    assert failed.code == 1 and "the disk is gone" in failed.err
    assert [entry.name for entry in target.iterdir()] == ["_mqreplay"], "nothing is half visible"
    monkeypatch.setattr(exporting, "read_stretch", read_stretch)
    store.write()  # more was committed meanwhile; the plan does not change
    resumed = export(path, target)
    assert resumed.code == 0 and "continued" in resumed.json["state"]
    assert files_of(target) == files_of(whole)


@pytest.mark.parametrize("taken", ["", "_mqreplay"])
def test_a_folder_removed_during_an_export_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    path, folder = two_days(tmp_path / "store").write(), tmp_path / "parquet"

    def take(job: exporting.ExportJob, number: int) -> list[ParquetPart]:
        shutil.rmtree(folder / taken)
        return exporting.export_stretch(job, number)

    monkeypatch.setattr("sparkreplay.commands.export.export_stretch", take)
    done = export(path, folder)
    assert done.code == 1
    assert done.json["error"] == f"{folder}: was taken away while it ran; run the same command again"
    monkeypatch.undo()
    assert export(path, folder).json["rows"] == 400


def test_a_staged_part_that_was_lost_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = two_days(tmp_path / "store").write(), tmp_path / "parquet"
    whole = tmp_path / "whole"
    export(path, whole)
    monkeypatch.setattr("sparkreplay.export.folder.check_epochs", interrupted)
    assert export(path, target).code == 130
    monkeypatch.undo()
    part = next((target / "_mqreplay" / "staged").rglob("*.parquet"))
    part.write_bytes(b"")
    assert export(path, target).code == 0
    assert files_of(target) == files_of(whole)


def interrupted(*_: object) -> bytes:
    raise KeyboardInterrupt


def fails_on_manifest(value: object) -> bytes:
    if isinstance(value, Manifest):
        raise OSError("no space left")
    return encode(value)


@pytest.mark.parametrize("dies", [interrupted, fails_on_manifest])
def test_a_kill_before_the_plan_or_before_the_manifest_leaves_no_part_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: Callable[..., bytes]
) -> None:
    path, target = two_days(tmp_path / "store").write(), tmp_path / "parquet"
    whole = tmp_path / "whole"
    export(path, whole)
    monkeypatch.setattr("sparkreplay.export.folder.encode", dies)
    assert export(path, target).code in (1, 130)
    monkeypatch.undo()
    assert export(path, target).code == 0
    assert files_of(target) == files_of(whole)


def test_a_kill_after_the_manifest_leaves_only_the_work_folder_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = two_days(tmp_path / "store").write(), tmp_path / "parquet"
    monkeypatch.setattr("sparkreplay.export.folder.shutil.rmtree", lambda *_, **__: None)
    export(path, target)
    monkeypatch.undo()
    assert (target / "_mqreplay").exists()
    again = export(path, target, "--append")
    assert again.code == 0 and again.json["rows"] == 400
    assert not (target / "_mqreplay").exists()


def test_a_truncation_below_the_bound_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = two_days(tmp_path / "store")
    path, target = store.write(epochs=((1, 0), (2, 9000))), tmp_path / "parquet"

    def truncated_meanwhile(read: ReadPlan, stretch: Stretch) -> Any:
        yield from read_stretch(read, stretch)
        if stretch == read.stretches[-1]:
            store.write_epochs(((1, 0), (3, 8000)))

    monkeypatch.setattr(exporting, "read_stretch", truncated_meanwhile)
    failed = export(path, target)
    assert failed.code == 1 and "epochs" in failed.err
    assert [entry.name for entry in target.iterdir()] == ["_mqreplay"]
    assert export(path, target).code == 1, "the frozen plan stays void"


def test_another_request_in_the_same_folder_is_refused_by_name(tmp_path: Path) -> None:
    store = two_days(tmp_path / "store")
    path, target = store.write(), tmp_path / "parquet"
    export(path, target)
    other = two_days(tmp_path / "other").write()
    for arguments, reason in (
        ((path, target, "--topic", "orders"), "topic not given, this one has orders"),
        (
            (path, target, "--end", str(store.ends[5])),
            f"endingoffsets not given, this one has {store.ends[5]}",
        ),
        ((other, target), "path"),
    ):
        refused = export(*arguments)
        assert refused.code == 1 and reason in refused.err, refused
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    assert "cat.jpg" in export(path, tmp_path / "photos").err


def test_nightly_appends_hold_each_row_once(tmp_path: Path) -> None:
    store = two_days(tmp_path / "store")
    path, target = str(tmp_path / "store"), tmp_path / "parquet"
    for bound in (store.ends[100] - 3, store.ends[100] + 1, store.ends[250] + 20, 16384, len(store.log)):
        store.write(confirm=max(bound, 0))
        done = export(path, target, "--append")
        assert done.code == 0, done.err
    assert [row["msg_id"] for row in rows_of(target)] == [f"K{number}" for number in range(400)]
    assert "nothing to add" in export(path, target, "--append").json["state"]


def test_an_append_needs_the_exported_range_still_in_the_log(tmp_path: Path) -> None:
    store = two_days(tmp_path / "store")
    path, target = store.write(confirm=store.ends[50], epochs=((1, 0), (2, 900))), tmp_path / "parquet"
    export(path, target)
    store.write(epochs=((1, 0), (3, 800)))
    assert "epochs" in export(path, target, "--append").err
    store.write(epochs=((1, 0), (2, 900)))
    for segment in (0, 16384):
        (tmp_path / "store" / "commitlog" / f"{segment:020d}").unlink()
    assert "were deleted" in export(path, target, "--append").err


def test_two_exports_into_one_folder_exclude_each_other(tmp_path: Path) -> None:
    from sparkreplay.export.folder import ExportFolder

    path, target = two_days(tmp_path / "store").write(), tmp_path / "parquet"
    holder = ExportFolder(str(target))
    assert "another process" in export(path, target).err
    holder.close()
    assert export(path, target).code == 0


def test_day_names_are_of_utc(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path / "store")
    for moment in ("2024-02-29T23:59:59.999", "2024-03-01T00:00:00.000"):
        store.add(stored_ms=round(datetime.fromisoformat(moment + "+00:00").timestamp() * 1000))
    target = tmp_path / "parquet"
    export(store.write(), target)
    days = sorted(path.name for path in (target / "topic=orders").iterdir())
    assert days == ["day=2024-02-29", "day=2024-03-01"]


def test_a_recreated_store_is_not_appended_to_the_old_export(tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    path = two_days(tmp_path / "store").write()
    assert export(path, target).code == 0
    shutil.rmtree(path)
    recreated = StoreFolder(Path(path), segment_bytes=16384)
    for number in range(900):
        recreated.add(body=b"of another life %d" % number)
    recreated.write()
    done = export(path, target, "--append")
    assert done.code == 1 and "rows of another log of broker set broker-a" in done.err


def test_nothing_committed_is_an_export_without_parts_that_can_be_appended_to(tmp_path: Path) -> None:
    store = two_days(tmp_path / "store")
    path, target = store.write(confirm=0), tmp_path / "parquet"
    assert export(path, target).json["rows"] == 0
    assert list(files_of(target)) == ["_manifest.json"]
    store.write()
    assert export(path, target, "--append").json["rows_added"] == 400


def test_several_broker_sets_share_a_folder_without_sharing_a_name(tmp_path: Path) -> None:
    paths = []
    for name in ("broker-a", "broker-b"):
        paths.append(two_days(tmp_path / name).write())
        (tmp_path / name / "brokerIdentity").write_text(f"DefaultCluster#{name}#1")
    target = tmp_path / "parquet"
    done = mqreplay("export", *paths, "--to", str(target), "--split", "8k", "--workers", "1", "--json")
    assert done.code == 0 and done.json["rows"] == 800, done.err
    rows = pq.read_table(target).to_pylist()
    assert len({(row["broker_name"], row["physical_offset"]) for row in rows}) == 800


def test_a_late_task_attempt_changes_nothing(tmp_path: Path) -> None:
    """Two attempts of one split at once: the second ends after the first's files were published."""
    path, target = two_days(tmp_path / "store").write(), tmp_path / "parquet"
    jobs: list[exporting.ExportJob] = []

    def published(job: exporting.ExportJob, number: int) -> Any:
        jobs.append(job)
        return exporting.export_stretch(job, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparkreplay.commands.export.export_stretch", published)
        assert export(path, target).code == 0
    before = files_of(target)
    with pytest.raises(FileNotFoundError):
        exporting.export_stretch(jobs[0], 0)
    assert files_of(target) == before
    for name in (exporting.ATTEMPTS, exporting.STAGED, exporting.RECORDS):
        (jobs[0].work / name).mkdir(parents=True)
    exporting.export_stretch(jobs[0], 0)
    assert "finished before" in export(path, target).json["state"]
    assert files_of(target) == before
