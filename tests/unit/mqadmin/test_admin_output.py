"""The output of the admin commands, compared with upstream's tool for the same answers."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from mqadmin.commands import brokers, controllers, topics
from mqadmin.errors import ReplyMalformed
from mqadmin.replies import (
    BrokerEpochs,
    ClusterMembers,
    ControllerMetadata,
    HAStatus,
    MasterInfo,
    SyncStateInfo,
    TopicSettings,
)
from remoting import fastjson

VECTORS = Path(__file__).parents[2] / "vectors" / "config"
REPLIES = json.loads((VECTORS / "replies.json").read_text())


def upstream_printed(name: str) -> str:
    return (VECTORS / f"{name}.stdout").read_text()


def answers(name: str) -> list[tuple[str, dict[str, str], Any]]:
    """(server, header fields, decoded body) of each answer behind this output of upstream's tool."""
    return [(reply["server"], reply["ext"], fastjson.loads(reply["body"] or "{}")) for reply in REPLIES[name]]


def test_controller_metadata_reads_as_upstreams() -> None:
    [(_, ext, _)] = answers("getControllerMetaData")
    printed = controllers.format_metadata(ControllerMetadata.from_ext(ext))
    assert printed == upstream_printed("getControllerMetaData")


def test_a_controller_that_knows_no_leader_says_null() -> None:
    printed = controllers.format_metadata(ControllerMetadata.from_ext({"group": "g", "peers": ""}))
    assert printed == "\n#ControllerGroup\tg\n#ControllerLeaderId\tnull\n#ControllerLeaderAddress\tnull\n"


@pytest.mark.parametrize("name", ["getSyncStateSet", "getSyncStateSet-one-dead"])
def test_a_sync_state_set_reads_as_upstreams(name: str) -> None:
    [(_, _, body)] = answers(name)
    states = SyncStateInfo.table_from_json(body)
    assert controllers.format_sync_state(states["broker-a"]) == upstream_printed(name)


def test_an_elected_master_reads_as_upstreams() -> None:
    [(_, ext, body)] = answers("electMaster")
    elected = MasterInfo.from_reply(ext, body)
    printed = controllers.format_elected("DefaultCluster", "broker-a", elected)
    assert printed == upstream_printed("electMaster")
    assert elected.members[3] == "127.0.0.1:24210"


@pytest.mark.parametrize("name", ["getBrokerEpoch", "getBrokerEpoch-after-failover"])
def test_broker_epochs_read_as_upstreams(name: str) -> None:
    printed = "".join(
        brokers.format_epochs(server, BrokerEpochs.from_json(body)) for server, _, body in answers(name)
    )
    assert printed == upstream_printed(name)


@pytest.mark.parametrize("name", ["haStatus-master", "haStatus-slave"])
def test_replication_status_reads_as_upstreams(name: str) -> None:
    [(server, _, body)] = answers(name)
    assert brokers.format_ha_status(server, HAStatus.from_json(body), UTC) == upstream_printed(name)


@pytest.mark.parametrize(
    ("name", "now_ms"), [("clusterList", 1795257000390), ("clusterList-one-dead", 1795257355830)]
)
def test_the_cluster_list_reads_as_upstreams(name: str, now_ms: int) -> None:
    rows = cluster_rows(name)
    printed = brokers.CLUSTER_LIST_HEADING + "".join(brokers.format_broker_row(row, now_ms) for row in rows)
    assert printed == upstream_printed(name)


def test_an_empty_cluster_list_is_its_heading() -> None:
    assert upstream_printed("clusterList-none") == brokers.CLUSTER_LIST_HEADING


def test_message_counts_of_the_cluster_list_read_as_upstreams() -> None:
    rows = cluster_rows("clusterList")
    printed = brokers.HEADING_MORE + "".join(map(brokers.format_row_more, rows))
    assert printed == upstream_printed("clusterList-m")


def test_a_broker_that_does_not_answer_still_has_a_row() -> None:
    row = brokers.BrokerRow("DefaultCluster", "broker-a", 2, "127.0.0.1:1", {})
    assert "127.0.0.1:1" in brokers.format_broker_row(row, 5)
    assert brokers.format_broker_row(row, 5).endswith("     false\n")


def cluster_rows(name: str) -> list[brokers.BrokerRow]:
    (_, _, cluster), *answered = answers(name)
    info = {server: body["table"] for server, _, body in answered}
    [members] = ClusterMembers.from_json(cluster).sets_of("DefaultCluster")
    return [
        brokers.BrokerRow(members.cluster, members.broker_name, broker_id, address, info[address])
        for broker_id, address in members.addresses.items()
    ]


@pytest.mark.parametrize(("vector", "topic"), [("updateTopic", "AdmTopic"), ("updateTopic-b", "AdmTopicB")])
def test_a_created_topic_reads_as_upstreams(vector: str, topic: str) -> None:
    settings = TopicSettings(topic, read_queues=2, write_queues=2)
    printed = topics.format_created("127.0.0.1:24220") + topics.format_topic(settings)
    assert printed == upstream_printed(vector)


def test_a_route_reads_as_upstreams_json() -> None:
    [(_, _, route)] = answers("topicRoute")
    assert topics.format_json(route) == upstream_printed("topicRoute")


def test_a_route_reads_as_upstreams_list() -> None:
    [(_, _, route)] = answers("topicRoute")
    assert topics.format_list(route) == upstream_printed("topicRoute-l")


def test_an_answer_without_its_members_is_refused() -> None:
    with pytest.raises(ReplyMalformed, match="no HA status"):
        HAStatus.from_json({})
    with pytest.raises(ReplyMalformed, match="elected master"):
        MasterInfo.from_reply({"masterBrokerId": "x"}, {})
