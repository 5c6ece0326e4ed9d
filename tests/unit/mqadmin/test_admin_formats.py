"""The output of the commands on topics, settings, groups and messages, compared with upstream's tool."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from mqadmin.calls import configs
from mqadmin.commands import brokers, controllers, topics
from mqadmin.report import plain
from mqadmin.times import format_time, read_time
from mqruntime.properties import parse
from remoting.bodies.queues import TopicStatsTable

VECTORS = Path(__file__).parents[2] / "vectors" / "config"
REPLIES = json.loads((VECTORS / "replies.json").read_text())


def upstream_printed(name: str) -> str:
    return (VECTORS / f"{name}.stdout").read_text()


def bodies(name: str) -> list[bytes]:
    return [
        bytes.fromhex(row["body_hex"]) if "body_hex" in row else row["body"].encode() for row in REPLIES[name]
    ]


def settings_in(body: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(body).entries}


def test_a_topics_offsets_read_as_upstreams() -> None:
    [body] = bodies("topicStatus")
    table = TopicStatsTable.decode(body)
    printed = topics.format_offsets(table.offset_table, UTC) + topics.format_rate(table.topic_put_tps)
    assert printed == upstream_printed("topicStatus")


def test_the_list_of_topics_with_groups_reads_as_upstreams() -> None:
    printed = upstream_printed("topicList-c").splitlines(keepends=True)
    assert printed[0] == topics.TOPIC_LIST_HEADING
    assert printed[1] == topics.format_topic_row(
        "DefaultCluster", "RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
    )
    assert printed[7].rstrip("\n") == topics.format_topic_row(
        "DefaultCluster", "BinTopic", "Bin_" + "LongGroup" * 10
    ).rstrip("\n")


def test_a_brokers_status_reads_as_upstreams() -> None:
    name = "brokerStatus"
    pairs = [line.split(": ", 1) for line in upstream_printed(name).splitlines()]
    table = {key.rstrip(): value for key, value in reversed(pairs)}
    assert brokers.format_status(table) == upstream_printed(name)


def test_settings_read_as_upstreams() -> None:
    [body] = bodies("getBrokerConfig")
    printed = configs.format_settings("127.0.0.1:24220", settings_in(body)) + "\n"
    assert sorted(printed.splitlines()) == sorted(upstream_printed("getBrokerConfig").splitlines())
    controllers = "".join(
        configs.format_settings(row["server"], settings_in(row["body"].encode()))
        for row in REPLIES["getControllerConfig"]
    )
    assert sorted(controllers.splitlines()) == sorted(upstream_printed("getControllerConfig").splitlines())


def test_confirmations_of_changes_read_as_upstreams() -> None:
    assert topics.format_deleted("AdmTopic", "DefaultCluster") == upstream_printed("deleteTopic")
    assert brokers.format_updated("127.0.0.1:24220") == upstream_printed("updateBrokerConfig")
    updated = controllers.format_updated(
        ["127.0.0.1:24100", "127.0.0.1:24110"], "electMasterMaxRetryCount", "3"
    )
    assert updated == upstream_printed("updateControllerConfig")
    assert controllers.format_cleaned("broker-a") == upstream_printed("cleanBrokerMetadata")


@pytest.mark.parametrize("text", ["1795256518544", "2026-11-21#10:21:58:544"])
def test_a_time_is_read_as_number_or_date(text: str) -> None:
    assert read_time("-s", text, 5, UTC) == 1795256518544
    assert format_time(1795256518544, UTC) == "2026-11-21 10:21:58,544"


def test_the_time_now_is_the_current_time() -> None:
    assert read_time("-s", "now", 5) == 5


def test_json_uses_the_names_of_the_wire() -> None:
    body: Any = plain({"a": TopicStatsTable(topic_put_tps=1.5), "b": [b"text", (1,)]})
    assert body == {"a": {"offsetTable": {}, "topicPutTps": 1.5}, "b": ["text", [1]]}
