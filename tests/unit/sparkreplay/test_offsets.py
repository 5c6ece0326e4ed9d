"""The start and end of a read, parsed from options."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkreplay.errors import OptionError
from sparkreplay.read.offsets import Edge, QueueValue, ending_edge, per_queue, starting_edge

VALUES = st.integers(0, 2**63 - 1)
BY_QUEUE = st.dictionaries(
    st.text(min_size=1),
    st.dictionaries(st.integers(0, 1000), VALUES, min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(BY_QUEUE)
def test_json_per_queue_says_every_value(by_topic: dict[str, dict[int, int]]) -> None:
    found = per_queue("startingOffsets", json.dumps(by_topic))
    assert {(one.topic, one.queue_id): one.value for one in found} == {
        (topic, queue): value for topic, queues in by_topic.items() for queue, value in queues.items()
    }
    assert all(one.broker_name is None for one in found)


@given(st.dictionaries(st.text(min_size=1), BY_QUEUE, min_size=1, max_size=3))
def test_json_per_broker_set_says_every_value(named: dict[str, dict[str, dict[int, int]]]) -> None:
    found = per_queue("startingOffsets", json.dumps(named))
    assert {(one.topic, one.broker_name, one.queue_id): one.value for one in found} == {
        (topic, broker, queue): value
        for topic, brokers in named.items()
        for broker, queues in brokers.items()
        for queue, value in queues.items()
    }


@given(ANY_JSON)
def test_any_other_json_is_refused_not_misread(value: object) -> None:
    try:
        found = per_queue("startingOffsets", json.dumps(value))
    except OptionError:
        return
    assert isinstance(value, dict) and found
    assert all(one.value >= 0 and one.queue_id >= 0 for one in found)


@given(st.text())
def test_any_text_as_a_start_is_an_edge_or_is_refused(text: str) -> None:
    try:
        edge = starting_edge(text, None, None)
    except OptionError as error:
        assert str(error).startswith("option startingOffsets: ")
    else:
        assert edge == Edge() or edge.at_bound or edge.physical_offset is not None or edge.queue_offsets


def test_earliest_and_confirmed_are_an_empty_edge() -> None:
    assert starting_edge("earliest", None, None) == ending_edge("confirmed", None, None) == Edge()
    assert starting_edge('{"t": {"0": -2, "1": 7}}', None, None) == Edge(
        queue_offsets=(QueueValue("t", None, 1, 7),)
    )
    assert ending_edge('{"t": {"0": -1}}', None, None) == Edge()


@pytest.mark.parametrize("value", [-1, -3, 1.5, "7", True, None, 2**63])
def test_a_start_is_a_queue_offset_or_minus_two(value: object) -> None:
    with pytest.raises(OptionError, match="t/0: .* is not a whole number or -2"):
        starting_edge(json.dumps({"t": {"0": value}}), None, None)


def test_an_end_offset_may_be_minus_one_and_a_time_may_not() -> None:
    with pytest.raises(OptionError, match="or -1"):
        ending_edge('{"t": {"0": -2}}', None, None)
    for sentinel in (-1, -2):
        with pytest.raises(OptionError, match="is not a whole number$"):
            starting_edge("earliest", json.dumps({"t": {"0": sentinel}}), None)


def test_a_time_wins_over_times_per_queue_and_these_over_offsets() -> None:
    by_time = '{"t": {"0": 5}}'
    for edge in (starting_edge, ending_edge):
        assert edge("7", by_time, "9") == Edge(timestamp=9)
        assert edge("7", by_time, None) == Edge(queue_timestamps=(QueueValue("t", None, 0, 5),))
        assert edge("7", None, None) == Edge(physical_offset=7)
