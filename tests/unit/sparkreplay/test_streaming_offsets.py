"""The content of a stream's offset, and when a log is no longer the log of that offset."""

from __future__ import annotations

import json

import pytest

from sparkreplay.errors import LogTruncated, OffsetUnreadable
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.snapshot import StoreSnapshot
from sparkreplay.stream.position import SetOffset, StreamOffset, require_same_log, set_offset_at


def log(*epochs: tuple[int, int], bound: int = 1000) -> StoreSnapshot:
    return StoreSnapshot(LocalFiles("/store"), "broker-a", (), epochs, bound)


READ = SetOffset(began=0, offset=500, epoch=3, epoch_start=200)


@pytest.mark.parametrize("initial", [True, False])
def test_an_offset_survives_its_json(initial: bool) -> None:
    other = SetOffset(500, 500, epoch=3, epoch_start=200) if initial else READ
    offset = StreamOffset({"broker-b": other, "broker-a": SetOffset(0, 0)}, initial)
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text))
    assert again == offset and json.dumps(again.to_json()) == text


def test_the_json_is_small_and_names_broker_sets_not_folders() -> None:
    assert StreamOffset({"broker-a": READ}).to_json() == {
        "version": 2,
        "sets": {"broker-a": {"began": 0, "offset": 500, "epoch": 3, "epoch_start": 200}},
    }


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"version": 3, "sets": {}},
        {"version": 1},
        {"version": 1, "sets": {"broker-a": 5}},
        {"version": 1, "sets": {"broker-a": {"offset": 5}}},
        {"version": 1, "sets": {"broker-a": {"began": 0, "offset": -1}}},
        {"version": 1, "sets": {"broker-a": {"began": 0, "offset": "5"}}},
        {"version": 1, "sets": {"broker-a": {"began": 0, "offset": 5, "more": 1}}},
    ],
)
def test_an_offset_of_another_source_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(OffsetUnreadable, match="checkpointLocation"):
        StreamOffset.from_json(value)


def test_the_epoch_of_an_offset_is_that_of_the_byte_below_it() -> None:
    epochs = ((1, 0), (3, 200), (4, 500))
    assert set_offset_at(0, 200, epochs) == SetOffset(0, 200, 1, 0)
    assert set_offset_at(0, 500, epochs) == READ
    assert set_offset_at(0, 501, epochs) == SetOffset(0, 501, 4, 500)
    assert set_offset_at(0, 0, epochs) == SetOffset(0, 0)


def test_the_first_batch_begins_at_its_recorded_start_though_the_log_start_moved() -> None:
    asked_again = StreamOffset({"broker-a": SetOffset(300, 300)}, initial=True)
    assert asked_again.begin_of("broker-a", READ) == 0
    assert StreamOffset({"broker-a": SetOffset(0, 300)}).begin_of("broker-a", READ) == 300


def test_a_set_that_joins_later_begins_at_the_start_its_first_batch_recorded() -> None:
    before = StreamOffset({"broker-a": READ})
    assert before.begin_of("broker-b", SetOffset(began=64, offset=128)) == 64


@pytest.mark.parametrize(
    "epochs",
    [
        ((1, 0), (3, 200)),
        ((1, 0), (3, 200), (4, 500)),  # the next epoch begins at the offset of the stream
        ((1, 0), (3, 200), (4, 800)),
        ((4, 500), (5, 800)),  # retention dropped the epochs below
    ],
)
def test_a_log_that_grew_is_the_same_log(epochs: tuple[tuple[int, int], ...]) -> None:
    require_same_log("broker-a", READ, log(*epochs))


def test_a_replica_that_has_not_reached_the_epoch_is_waited_for() -> None:
    require_same_log("broker-a", READ, log((1, 0), bound=200))


@pytest.mark.parametrize(
    ("epochs", "intact"),
    [
        (((1, 0), (3, 200), (4, 450)), 450),
        (((1, 0), (3, 200), (4, 450), (5, 480)), 450),
        (((1, 0), (4, 150)), 150),
        (((1, 0), (2, 100), (4, 300)), 200),
        (((1, 0), (3, 250)), 200),
        (((1, 0), (3, 100)), 100),
        (((1, 0),), 200),  # committed beyond where epoch 3 began, without it
    ],
)
def test_a_log_that_was_cut_below_the_offset_fails_with_the_range_that_changed(
    epochs: tuple[tuple[int, int], ...], intact: int
) -> None:
    with pytest.raises(LogTruncated, match=r"epoch 3 \(from 200\).*new checkpointLocation") as raised:
        require_same_log("broker-a", READ, log(*epochs))
    assert raised.value.intact == intact and f"[{intact}, 500)" in str(raised.value)
