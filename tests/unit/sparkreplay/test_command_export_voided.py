"""mqreplay export when planned segments are gone: an error with a hint, and a list of skipped ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sparkreplay.commandline import Done, mqreplay, two_days
from tests.unit.sparkreplay.storefolder import StoreFolder


def export(store: StoreFolder, target: Path, *more: str) -> Done:
    return mqreplay(
        "export", str(store.root), "--to", str(target), "--workers", "1", "--split", "8k", "--json", *more
    )


@pytest.fixture
def store(tmp_path: Path) -> StoreFolder:
    made = two_days(tmp_path / "store", 1200)
    made.write()
    return made


@pytest.fixture
def begun(store: StoreFolder, tmp_path: Path) -> Path:
    """The folder of an export that was interrupted when its plan was frozen."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparkreplay.commands.export.export", interrupted)
        assert export(store, tmp_path / "lake").code == 130
    return tmp_path / "lake"


def test_a_plan_with_deleted_segments_fails_and_continues_with_the_hinted_option(
    store: StoreFolder, begun: Path
) -> None:
    log_min = store.delete_first(2)
    failed = export(store, begun)
    assert failed.code == 1 and f"{0:020d}: was deleted after the read was planned" in failed.err
    assert f"remove {begun}/_mqreplay" in failed.err and "-o failOnDataLoss=false" in failed.err
    went_on = export(store, begun, "-o", "failOnDataLoss=false")
    assert went_on.code == 0, went_on.err
    left = sum(at >= log_min for _, _, at in store.records)
    assert went_on.json["rows"] == left < 1200
    assert went_on.json["deleted_meanwhile"] == [
        {"store": str(store.root), "start_offset": 0, "end_offset": log_min}
    ]
    assert export(store, begun, "--append").json["state"] == "has nothing to add"


def test_a_plan_with_a_truncated_log_fails_with_the_hint_to_start_over(
    store: StoreFolder, begun: Path
) -> None:
    store.write_epochs(((1, 0), (2, 9000)))
    failed = export(store, begun)
    assert failed.code == 1 and "epochs" in failed.err and "failOnDataLoss" not in failed.err
    assert f"remove {begun}/_mqreplay" in failed.err


def test_a_skipped_range_is_printed_as_text_too(store: StoreFolder, begun: Path) -> None:
    log_min = store.delete_first(2)
    arguments = ("--to", str(begun), "--split", "8k", "--workers", "1", "-o", "failOnDataLoss=false")
    done = mqreplay("export", str(store.root), *arguments)
    assert f"left out of {store.root}: [0, {log_min})" in done.out


def test_an_export_is_appended_to_with_another_way_to_find_rows(store: StoreFolder, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    assert export(store, target).json["deleted_meanwhile"] == []
    store.add(topic="orders")
    store.write()
    added = export(store, target, "--append", "--crc", "-o", "minPartitions=3")
    assert added.code == 0 and added.json["rows_added"] == 1, added.err


def test_an_export_of_rows_that_a_truncation_took_is_not_appended_to(
    store: StoreFolder, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    assert export(store, target).code == 0
    store.write_epochs(((1, 0), (2, 9000)))
    failed = export(store, target, "--append")
    assert failed.code == 1 and "are no longer the log's; export to a new folder" in failed.err
