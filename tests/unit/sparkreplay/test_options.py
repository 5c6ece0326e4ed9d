"""Options: their values, and how wrong ones are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sparkreplay.errors import OptionError
from sparkreplay.read.knownoptions import OPTIONS
from sparkreplay.read.offsets import Edge, QueueValue
from sparkreplay.read.options import ReadOptions, read_options
from sparkreplay.records.schema import COLUMNS, PRESETS

DOCUMENT = Path(__file__).parents[3] / "docs" / "spark.md"


def read(**options: str) -> ReadOptions:
    return read_options({"path": "/store", **options})


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        read(**options)
    return str(caught.value)


def test_the_document_lists_every_option_as_the_code_has_it() -> None:
    lines = DOCUMENT.read_text().splitlines()
    start = lines.index("| option | values | default | meaning |")
    listed = lines[start + 2 : lines.index("", start)]
    assert listed == [
        f"| `{option.name}` | {option.values} | {option.default or '–'} | {option.meaning} |"
        for option in OPTIONS
    ]


def test_the_document_lists_every_column_with_its_type_and_presets() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w<>,]+) \| ([^|]*) \|", DOCUMENT.read_text(), re.MULTILINE)
    presets = {
        column.name: {name for name, columns in PRESETS.items() if column.name in columns}
        for column in COLUMNS
    }
    assert [(name, spark) for name, spark, _ in rows] == [(column.name, column.spark) for column in COLUMNS]
    assert {name: set(re.findall(r"\w+", members)) for name, _, members in rows} == presets


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.default])
def test_a_documented_default_is_the_value_without_the_option(option: object) -> None:
    name, default = option.name, option.default.strip("`")  # type: ignore[attr-defined]
    assert read(**{name: default}) == read()


@pytest.mark.parametrize(
    "text",
    [
        '{"orders": {"0": 1, "0": 2}}',
        '{"orders": {"0": 1}, "orders": {"1": 1}}',
        '{"orders": {"0": 1, "00": 2}}',
        '{"orders": {"broker-a": {"0": 1}, "0": 2}}',
        '{"orders": {"0": 1, "broker-a": {"0": 2}}}',
    ],
)
def test_a_queue_named_twice_is_refused(text: str) -> None:
    assert "twice" in refusal(startingOffsets=text)
    assert "twice" in refusal(endingOffsetsByTimestamp=text)


def test_one_queue_id_may_be_named_for_each_broker_set() -> None:
    read(startingOffsets='{"orders": {"broker-a": {"0": 1}, "broker-b": {"0": 2}}}')


@pytest.mark.parametrize(
    "option", ["startingOffsets", "startingTimestamp", "queues", "minPartitions", "splitBytes"]
)
def test_a_number_with_too_many_digits_causes_no_traceback(option: str) -> None:
    assert "too much" in refusal(**{option: "0" * 30 + "9" * 5000})
    assert "too much" in refusal(startingOffsets=json.dumps({"orders": {"9" * 5000: 1}}))


def test_deeply_nested_json_causes_no_traceback() -> None:
    assert "is no JSON" in refusal(startingOffsets='{"a":' * 100_000)
    assert "is none" in refusal(path="[" * 100_000)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("topic", "orders,a\udcff"),
        ("startingOffsets", '{"\\ud800": {"0": 1}}'),
        ("endingOffsetsByTimestamp", '{"\\ud800": {"0": 1}}'),
    ],
)
def test_a_topic_name_that_is_no_utf_8_causes_no_traceback(option: str, text: str) -> None:
    assert "is not UTF-8" in refusal(**{option: text})


def test_offsets_of_system_topics_are_accepted_only_if_these_are_read() -> None:
    text = '{"SCHEDULE_TOPIC_XXXX": {"0": 1}}'
    assert "give includeSystemTopics=true" in refusal(startingOffsets=text)
    assert "give includeSystemTopics=true" in refusal(endingOffsetsByTimestamp=text)
    read(startingOffsets=text, includeSystemTopics="true")
    read(startingOffsets=text, topic="SCHEDULE_TOPIC_XXXX")


def test_columns_and_presets_may_be_written_in_any_case() -> None:
    assert read(columns=" META ").columns == PRESETS["meta"]
    assert read(columns="Topic,BODY").columns == ("topic", "body")
    assert read(columns="Meta", includeProperties="true").columns == (*PRESETS["meta"], "properties")


@pytest.mark.parametrize(
    ("theirs", "ours"), [("subscribe", "topic"), ("kafka.bootstrap.servers", "path"), ("nameServer", "path")]
)
def test_the_option_name_of_another_connector_is_answered_with_ours(theirs: str, ours: str) -> None:
    assert refusal(**{theirs: "x"}) == f"option {theirs}: is unknown; here it is {ours}"


def test_names_are_case_insensitive() -> None:
    assert read(STARTINGOFFSETS="77").starting == read(startingOffsets="77").starting == Edge(77)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("colums", "columns"),
        ("startingOffset", "startingOffsets"),
        ("topics", "topic"),
        ("failondatalos", "failOnDataLoss"),
    ],
)
def test_a_mistyped_option_is_answered_with_the_nearest_name(given: str, meant: str) -> None:
    assert refusal(**{given: "x"}) == f"option {given}: is unknown; did you mean {meant}?"


def test_an_unknown_option_is_answered_with_all_names() -> None:
    assert all(option.name in refusal(zzz="x") for option in OPTIONS)


def test_paths_are_one_or_a_json_list_and_a_comma_is_part_of_a_name() -> None:
    assert read_options({"path": "/a,b"}).paths == ("/a,b",)
    assert read_options({"path": '["/a", "s3://b/c"]'}).paths == ("/a", "s3://b/c")
    assert read_options({"paths": '["/a", "/b"]'}).paths == ("/a", "/b")
    with pytest.raises(OptionError, match="is given twice"):
        read_options({"path": "/a", "paths": '["/b"]'})
    for text in ("", "[]", "[1]", '["/a"', '[""]'):
        with pytest.raises(OptionError, match="option path"):
            read_options({"path": text})


def test_columns_come_in_the_order_in_which_they_are_named() -> None:
    assert read(columns="body, topic").columns == ("body", "topic")
    assert read(columns="meta").columns == PRESETS["meta"]
    assert read(includeProperties="true").columns == (*PRESETS["default"], "properties")
    assert read(includeProperties="true", columns="full").columns == PRESETS["full"]
    assert "twice" in refusal(columns="topic,topic")
    assert "among the names" in refusal(columns="topic", includeProperties="true")


def test_a_users_schema_names_a_column_once() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StringType, StructType

    from sparkreplay.source.datasource import columns_of

    assert columns_of(StructType().add("tags", StringType()).add("topic", StringType())) == ("tags", "topic")
    with pytest.raises(OptionError, match="option schema: names column topic twice"):
        columns_of(StructType().add("topic", StringType()).add("topic", StringType()))


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("64k", 65536), ("128M", 128 << 20), ("1g", 1 << 30)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert read(splitBytes=text).split_bytes == size


@pytest.mark.parametrize(
    "options",
    [
        {"splitBytes": "4095"},
        {"splitBytes": "1t"},
        {"splitBytes": "k"},
        {"splitBytes": "-4k"},
        {"minPartitions": "two"},
        {"minPartitions": "0"},
        {"queues": "1,2147483648"},
        {"queues": "1,x"},
        {"queues": ","},
        {"topic": " , "},
        {"topicPattern": "("},
        {"topicPattern": "a{99999999999999999999}"},
        {"topicPattern": "(" * 3000 + ")" * 3000},
        {"topic": "a", "topicPattern": "a.*"},
        {"transactions": "some"},
        {"crc": "yes"},
        {"mode": "report"},
        {"index": "consumequeue", "transactions": "all"},
        {"startingOffsets": "-1"},
        {"startingOffsets": "confirmed"},
        {"endingOffsets": "earliest"},
        {"endingOffsets": "latest"},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "9" * 30},
        {"startingTimestamp": "2", "endingTimestamp": "1"},
        {"startingOffsetsByTimestampStrategy": "earliest"},
        {"path": '["/a", "/b"]', "startingOffsets": "5"},
        {"path": '["/a", "/b"]', "endingOffsets": "5"},
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_that_names_its_option(options: dict[str, str]) -> None:
    message = refusal(**options)
    assert any(message.startswith(f"option {name}: ") for name in options), message


def test_json_may_name_only_topics_and_queues_that_are_read() -> None:
    offsets = json.dumps({"orders": {"3": 5}})
    assert "leaves out" in refusal(topic="payments", startingOffsets=offsets)
    assert "leaves out" in refusal(topicPattern="pay.*", endingOffsets=offsets)
    assert "leaves out" in refusal(queues="1,2", endingOffsets=offsets)
    assert read(topic="orders", queues="3", startingOffsets=offsets).starting == Edge(
        queue_offsets=(QueueValue("orders", None, 3, 5),)
    )
