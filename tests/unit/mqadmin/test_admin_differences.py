"""Differences from upstream's tool in docs/mqadmin.md that no test of the command itself shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remoting.codes import RequestCode
from tests.unit.mqadmin.messageanswers import PULLED, RECORD, sent_as, two_queues

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer


def member(client_id: str) -> dict[str, Any]:
    return {"clientId": client_id, "clientAddr": "10.0.0.9:5", "language": "JAVA", "version": 479}


def connected(client_id: str) -> dict[str, Any]:
    return {
        "connectionSet": [member(client_id)],
        "subscriptionTable": {"T": {"topic": "T", "subString": "*"}},
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    }


@pytest.fixture
def sets(server: ScriptedServer, another_server: ScriptedServer) -> tuple[ScriptedServer, ScriptedServer]:
    """Masters of set `broker-a` of cluster C and of `broker-b` of cluster D, which both have the topic; the first one is the
    name server, too."""
    rows = [
        {"brokerAddrs": {"0": one.address}, "brokerName": name, "cluster": cluster}
        for one, name, cluster in ((server, "broker-a", "C"), (another_server, "broker-b", "D"))
    ]
    queues = [
        {
            "brokerName": row["brokerName"],
            "perm": 6,
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "topicSysFlag": 0,
        }
        for row in rows
    ]
    server.says(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        {
            "brokerAddrTable": {row["brokerName"]: row for row in rows},
            "clusterAddrTable": {"C": ["broker-a"], "D": ["broker-b"]},
        },
    )
    server.says(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"brokerDatas": rows, "queueDatas": queues})
    return server, another_server


def test_all_clusters_of_a_topic_are_listed(sets: tuple[ScriptedServer, ScriptedServer]) -> None:
    assert sets[0].run("topicClusterList", "-t", "T").stdout == "C\nD\n"


def test_every_master_is_asked_for_connected_clients(
    sets: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one, client_id in zip(sets, ("here@1", "there@2"), strict=True):
        one.says(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"connectionSet": [member(client_id)]})
        one.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, connected(client_id))
        info = {"properties": {"PROP_CONSUMER_START_TIMESTAMP": "1"}, "subscriptionSet": []}
        one.says(RequestCode.GET_CONSUMER_RUNNING_INFO, info)
    producers = sets[0].run("producerConnection", "-g", "PG", "-t", "T").stdout
    assert [line.split()[1] for line in producers.splitlines()] == ["here@1", "there@2"]
    consumers = sets[0].run("consumerConnection", "-g", "G").stdout
    assert [line.split()[0] for line in consumers.splitlines()[1:3]] == ["here@1", "there@2"]
    monkeypatch.chdir(tmp_path)
    assert sets[0].run("consumerStatus", "-g", "G").exit_code == 0
    assert {path.name for path in tmp_path.glob("*/*")} == {"here@1", "there@2"}


def test_a_new_permission_keeps_each_brokers_queue_number_and_order(
    sets: tuple[ScriptedServer, ScriptedServer],
) -> None:
    for one, queues, order in zip(sets, (8, 3), (True, False), strict=True):
        topic = {
            "topicName": "T",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "order": order,
        }
        one.says(RequestCode.GET_TOPIC_CONFIG, topic)
        one.says(RequestCode.UPDATE_AND_CREATE_TOPIC)
    for cluster in ("C", "D"):
        assert sets[0].run("updateTopicPerm", "-c", cluster, "-t", "T", "-p", "4").exit_code == 0
    changes = [one.requests(RequestCode.UPDATE_AND_CREATE_TOPIC)[0].ext for one in sets]
    assert [(each["writeQueueNums"], each["order"], each["perm"]) for each in changes] == [
        ("8", "true", "4"),
        ("3", "false", "4"),
    ]


def test_printing_ends_at_the_end_time_and_light_topics_are_refused(server: ScriptedServer) -> None:
    two_queues(server)
    server.says(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext={"offset": "0"})
    server.says(RequestCode.PULL_MESSAGE, RECORD, ext=PULLED)
    assert "MSGID" in server.run("printMsg", "-t", "T").stdout
    shown = server.run("printMsg", "-t", "T", "-e", "1000")
    assert shown.exit_code == 0 and "MSGID" not in shown.stdout
    [request, _] = server.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert request.ext["timestamp"] == "1001"
    refused = server.run("printMsg", "-t", "T", "-l", "parent")
    assert refused.exit_code == 1
    assert (
        refused.stderr == "mqadmin printMsg: -l: queues of light topics (LMQ) are not built; leave it out\n"
    )


@pytest.mark.parametrize("line", ["sendMsgStatus -b broker-a -c 2", "checkMsgSendRT -t T -a 2"])
def test_a_timed_send_without_safe_storage_is_a_failure(server: ScriptedServer, line: str) -> None:
    sent_as(server, 12)
    result = server.run(*line.split())
    assert result.exit_code == 1
    assert "2 of 2 sends failed" in result.stderr and "stored, but not safe" in result.stderr


def test_topics_and_groups_are_exported_when_neither_option_is_given(
    server: ScriptedServer, tmp_path: Path
) -> None:
    topic = {"topicName": "T", "readQueueNums": 8, "writeQueueNums": 4, "perm": 6}
    server.says(RequestCode.GET_ALL_TOPIC_CONFIG, {"topicConfigTable": {"T": topic}})
    server.says(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {"topicList": []})
    groups = {"subscriptionGroupTable": {"G": {"groupName": "G", "retryQueueNums": 1}}}
    server.says(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups)
    assert server.run("exportMetadata", "-b", server.address, "-f", str(tmp_path)).exit_code == 0
    written = json.loads((tmp_path / "metadata.json").read_text())
    assert written["topicConfigTable"].keys() == {"T"} and written["subscriptionGroupTable"].keys() == {"G"}


def test_a_reset_is_limited_to_the_named_cluster_for_clients_of_all_languages(
    sets: tuple[ScriptedServer, ScriptedServer],
) -> None:
    for one, name in zip(sets, ("broker-a", "broker-b"), strict=True):
        queue = json.dumps({"brokerName": name, "queueId": 0, "topic": "T"})
        one.says(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"offsetTable": {queue: 9}})
    reset = ("resetOffsetByTime", "-g", "G", "-t", "T")
    for options in (("-s", "1000"), ("-c", "-s", "1000"), ("-s", "1000", "-c")):
        shown = sets[0].run(*reset, *options).stdout
        assert "broker-a" in shown and "broker-b" in shown
    shown = sets[0].run(*reset, "-s", "1000", "-c", "D").stdout
    assert "broker-a" not in shown and "broker-b" in shown
    asked = [[each.ext for each in one.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)] for one in sets]
    assert (len(asked[0]), len(asked[1])) == (3, 4)
    assert all(each == asked[0][0] for each in [*asked[0], *asked[1]])


@pytest.mark.parametrize(
    ("option", "slaves"), [((), False), (("-a",), True), (("-a", "true"), True), (("-a", "false"), False)]
)
def test_slaves_get_a_setting_with_upstreams_option_and_without_a_value(
    server: ScriptedServer, another_server: ScriptedServer, option: tuple[str, ...], slaves: bool
) -> None:
    row = {
        "brokerAddrs": {"0": server.address, "2": another_server.address},
        "brokerName": "broker-a",
        "cluster": "C",
    }
    tables = {"brokerAddrTable": {"broker-a": row}, "clusterAddrTable": {"C": ["broker-a"]}}
    server.says(RequestCode.GET_BROKER_CLUSTER_INFO, tables)
    for one in (server, another_server):
        one.says(RequestCode.UPDATE_BROKER_CONFIG)
        one.says(RequestCode.GET_BROKER_CONFIG, b"fileReservedTime=72\n")
    change = ("updateBrokerConfig", "-c", "C", *option, "-k", "fileReservedTime", "-v", "72")
    assert server.run(*change).exit_code == 0
    assert [len(one.requests(RequestCode.UPDATE_BROKER_CONFIG)) for one in (server, another_server)] == [
        1,
        int(slaves),
    ]
