"""Answers without rows that are no empty log: all records above the bound, or an unknown topic."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest

from sparkreplay.errors import TopicMissing
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from tests.unit.sparkreplay.commandline import mqreplay
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.streamscene import Query

LIE_ABOVE = "lie above the committed bound"


def rows_of(path: str, **options: str) -> list[dict[str, object]]:
    batches = list(read_all(plan_read(read_options({"path": path, **options}))))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def spread(root: Path, seconds: int) -> StoreFolder:
    """Nine records over four segments, the last stored so long after the first."""
    made = StoreFolder(root, segment_bytes=4096)
    for number in range(9):
        made.add(body=bytes(1500), stored_ms=1_700_000_000_000 + number * seconds * 1000 // 8)
    return made


@pytest.mark.parametrize(
    ("seconds", "confirmed", "warned"), [(0, 0, True), (12, 1, True), (5, 1, False), (60, 9, False)]
)
def test_a_bound_that_does_not_follow_its_log_is_reported(
    tmp_path: Path, seconds: int, confirmed: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = spread(tmp_path, seconds)
    path = made.write(confirm=([0, *made.ends])[confirmed])
    assert len(rows_of(path)) == confirmed
    assert (LIE_ABOVE in caplog.text) == warned
    assert (f", {made.ends[-1]}), {LIE_ABOVE}" in caplog.text) == warned
    for command in ("scan", "verify"):
        done = mqreplay(command, path)
        assert done.code == warned
        assert (LIE_ABOVE in done.out + done.err) == (warned or (command == "scan" and confirmed < 9))
    above = mqreplay("verify", path, "--json").json["stores"][0]["bytes_above_bound"]
    assert (above == 0) == (confirmed == 9)


def test_a_bound_set_by_the_user_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = spread(tmp_path, 60)
    path = made.write(confirm=made.ends[3])
    rows_of(path, endingOffsets=str(made.ends[0]))
    rows_of(path, endingOffsets="latest", allowUncommitted="true")
    assert LIE_ABOVE not in caplog.text
    assert mqreplay("scan", path, "--end", str(made.ends[0])).code == 0


def test_a_stream_that_reads_nothing_reports_the_bound_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = spread(tmp_path, 60)
    query = Query(path=made.write(confirm=made.ends[3]))
    for _ in range(8):
        query.run()
    assert len(query.rows) == 4 and caplog.text.count(LIE_ABOVE) == 1


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = StoreFolder(tmp_path)
    made.add(topic="orders")
    made.add(topic="payments", queue_id=1)
    return made.write()


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "ordres"},
        {"topic": "orders,ordres"},
        {"startingOffsets": '{"ordres": {"0": 0}}'},
        {"startingOffsets": '{"ordres": {"0": -2}}'},
        {"endingOffsets": '{"ordres": {"0": -1}}'},
        {"endingOffsetsByTimestamp": '{"ordres": {"0": 5}}'},
    ],
)
def test_an_unknown_topic_is_an_error(
    path: str, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TopicMissing, match="topic ordres is unknown there") as caught:
        rows_of(path, **options)
    assert caught.value.topics == ["ordres"]
    rows = rows_of(path, failOnMissingTopic="false", **options)
    assert "topic ordres is unknown there" in caplog.text
    assert [row["topic"] for row in rows if "topic" in options] == ["orders"] * (
        "orders," in options.get("topic", "")
    )


def test_a_topic_known_to_queues_or_topic_table_is_not_unknown(path: str, tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "quiet" / "0").mkdir(parents=True)
    (tmp_path / "batchconsumequeue" / "batched" / "0").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    topics = {"topicConfigTable": {"made": {"topicName": "made"}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(topics))
    for topic in ("quiet", "batched", "made"):
        assert rows_of(path, topic=topic) == []
    assert len(rows_of(path, topic="orders")) == 1, "deleted: no queue, not in the table, but a record"
    with pytest.raises(TopicMissing, match="did you mean quiet"):
        rows_of(path, topic="quite")
    (tmp_path / "config" / "topics.json").write_text("no JSON")
    with pytest.raises(TopicMissing):
        rows_of(path, topic="made")


def test_planning_an_unknown_topic_reports_no_damage(path: str, tmp_path: Path) -> None:
    segment = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[4] ^= 0xFF
    segment.write_bytes(data)
    assert plan_read(read_options({"path": path, "topic": "nowhere"})).stretches


def test_a_stream_waits_for_a_missing_topic_only_with_the_option(tmp_path: Path) -> None:
    made = StoreFolder(tmp_path)
    made.add(topic="orders")
    path = made.write()
    for options in ({"topic": "later"}, {"startingOffsets": '{"later": {"0": 0}}'}):
        with pytest.raises(TopicMissing):
            Query(path=path, **options).run()
    query = Query(path=path, topic="later", failOnMissingTopic="false")
    query.run()
    made.add(topic="later")
    made.write()
    query.run()
    assert [row["topic"] for row in query.rows] == ["later"]


def test_warnings_name_the_broker_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparkreplay"):
        query = Query(path=spread(tmp_path, 0).write(confirm=0))
        query.run()
    assert "broker set broker-a: " in caplog.text
