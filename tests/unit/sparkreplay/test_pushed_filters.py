"""Filters that Spark pushes down save work and lose no row: Spark's own filter then gives the same rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkreplay.read.options import read_options
from sparkreplay.read.pushed import Comparison
from sparkreplay.read.reader import ReadPlan, plan_read, pruned, read_all
from tests.unit.sparkreplay.storefolder import StoreFolder

Row = dict[str, Any]
EPOCHS = ((1, 0), (2, 3000), (5, 17000))
HOW: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ReadPlan:
    root = tmp_path_factory.mktemp("store")
    store = StoreFolder(root, segment_bytes=8192)
    for number in range(200):
        store.add(
            topic=("a", "b", "c")[number % 3],
            queue_id=number % 2,
            body=bytes(number % 60),
            stored_ms=1000 + number,
        )
    starts = [0, *store.ends[:-1]]
    epochs = tuple((epoch, min(at for at in starts if at >= start)) for epoch, start in EPOCHS)
    options = {"path": store.write(epochs=epochs), "columns": "full", "splitBytes": "4096"}
    return plan_read(read_options(options))


def rows_of(read: ReadPlan) -> list[Row]:
    return [row for batch in read_all(read) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def all_rows(whole: ReadPlan) -> list[Row]:
    return rows_of(whole)


def holds(comparison: Comparison, row: Row) -> bool:
    value = row[comparison.column]
    if comparison.how == "In":
        return (value in comparison.values) != comparison.negated
    return HOW[comparison.how](value, comparison.values[0]) != comparison.negated


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "physical_offset": st.integers(-10, 30000),
    "epoch": st.integers(-2, 7),
    "queue_id": st.integers(-1, 3),
    "queue_offset": st.integers(-1, 40),
    "store_timestamp": st.integers(999_000, 1_202_000).map(moment),
    "topic": st.sampled_from(["a", "b", "d", ""]),
    "broker_name": st.sampled_from(["broker-a", "broker-b"]),
    "tags": st.sampled_from(["x"]),
}


@st.composite
def compared(draw: st.DrawFn) -> Comparison:
    column = draw(st.sampled_from(sorted(set(LITERALS) - {"tags"})))
    how = draw(st.sampled_from([*HOW, "In"]))
    values = draw(st.lists(LITERALS[column], min_size=1, max_size=4 if how == "In" else 1))
    return Comparison(column, how, tuple(values), draw(st.booleans()))


@settings(max_examples=150)
@given(st.lists(compared(), min_size=1, max_size=3))
def test_filters_give_the_same_rows_on_a_pruned_read_as_on_all(
    whole: ReadPlan, all_rows: list[Row], pushed: list[Comparison]
) -> None:
    def left(rows: list[Row]) -> list[Row]:
        return [row for row in rows if all(holds(one, row) for one in pushed)]

    assert left(rows_of(pruned(whole, pushed))) == left(all_rows)


@pytest.mark.parametrize(
    ("column", "how", "values"),
    [
        ("topic", "EqualTo", ("a",)),
        ("queue_id", "In", (1,)),
        ("queue_offset", "GreaterThanOrEqual", (20,)),
        ("store_timestamp", "LessThan", (moment(1_100_500),)),
        ("physical_offset", "GreaterThan", (9000,)),
    ],
)
def test_workers_drop_rows_exactly_by_the_filters_they_support(
    whole: ReadPlan, all_rows: list[Row], column: str, how: str, values: tuple[Any, ...]
) -> None:
    comparison = Comparison(column, how, values)
    assert rows_of(pruned(whole, [comparison])) == [row for row in all_rows if holds(comparison, row)]


def test_splits_behind_the_last_matching_record_of_a_segment_are_not_read(whole: ReadPlan) -> None:
    read = pruned(whole, [Comparison("physical_offset", "LessThan", (5000,))])
    assert {stretch.segment.start_offset for stretch in read.stretches} == {0}
    read = pruned(whole, [Comparison("physical_offset", "EqualTo", (8192,))])
    assert [stretch.start for stretch in read.stretches] == [8192]


def test_the_split_before_a_needed_split_point_is_read_to_prove_it(whole: ReadPlan) -> None:
    second = [stretch.start for stretch in whole.stretches if stretch.segment.start_offset == 8192][1]
    read = pruned(whole, [Comparison("physical_offset", "EqualTo", (second,))])
    assert [stretch.start for stretch in read.stretches] == [8192, second]
    assert [row["physical_offset"] for row in rows_of(read)] == [second]


def test_epochs_and_broker_sets_leave_partitions_out(whole: ReadPlan) -> None:
    third = pruned(whole, [Comparison("epoch", "EqualTo", (5,))]).stretches
    assert third and min(stretch.segment.end_offset for stretch in third) > 17000
    assert pruned(whole, [Comparison("broker_name", "EqualTo", ("broker-b",))]).stretches == ()
    assert pruned(whole, [Comparison("broker_name", "In", ("broker-a",), negated=True)]).stretches == ()


@pytest.mark.parametrize(
    "comparison",
    [
        Comparison("tags", "EqualTo", ("x",)),
        Comparison("topic", "StringContains", ("a",)),
        Comparison("queue_id", "IsNotNull"),
        Comparison("queue_id", "IsNull"),
        Comparison("queue_id", "EqualTo", (None,)),
        Comparison("queue_id", "In", (None,), negated=True),
        Comparison("physical_offset", "EqualTo", (1.5,)),
        Comparison("store_timestamp", "EqualTo", (5,)),
    ],
)
def test_an_unsupported_filter_is_left_to_spark(whole: ReadPlan, comparison: Comparison) -> None:
    assert pruned(whole, [comparison]) == whole


def test_a_pushed_topic_filter_does_not_include_system_topics(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    for topic in ("SCHEDULE_TOPIC_XXXX", "a"):
        store.add(topic=topic)
    path = store.write()
    pushed = [Comparison("topic", "In", ("SCHEDULE_TOPIC_XXXX", "a")), Comparison("topic", "EqualTo", ("a",))]
    for options, first, both in (
        ({}, ["a"], ["a"]),
        ({"includeSystemTopics": "true"}, ["SCHEDULE_TOPIC_XXXX", "a"], ["a"]),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ["SCHEDULE_TOPIC_XXXX"], []),
    ):
        read = plan_read(read_options({"path": path, **options}))
        assert [row["topic"] for row in rows_of(pruned(read, pushed[:1]))] == first
        assert [row["topic"] for row in rows_of(pruned(read, pushed))] == both
