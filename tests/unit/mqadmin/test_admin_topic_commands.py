"""Later commands on topics, queues and traffic, against a scripted server."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mqadmin.commands import brokers, messages, topics
from mqadmin.traces import Trace, traces_in
from mqadmin.versions import version_name
from remoting.bodies.queues import MessageQueue, OffsetWrapper
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from remoting.command import RemotingCommand
    from tests.unit.mqadmin.conftest import ScriptedServer

QUEUE_KEY = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
TOPIC = {"topicName": "T", "readQueueNums": 8, "writeQueueNums": 4, "perm": 6, "order": True}


def sent_body(request: RemotingCommand) -> Any:
    return orjson.loads(bytes(request.body or b""))


def item(count: int, tps: float = 0.0) -> dict[str, Any]:
    return {"sum": count, "tps": tps, "avgpt": 1.0}


def test_attributes_go_as_brokers_read_them(server: ScriptedServer) -> None:
    """Java brokers find no value behind the equals sign in `-k=`, and fail."""
    server.says(RequestCode.UPDATE_AND_CREATE_TOPIC)
    done = server.run("updateTopic", "-b", server.address, "-t", "T", "-a", "+a=b,-k")
    assert done.exit_code == 0
    [request] = server.requests(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert request.ext["attributes"] == "+a=b,-k"


def test_a_permission_changes_and_nothing_else_of_the_topic(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_TOPIC_CONFIG, TOPIC)
    server.says(RequestCode.UPDATE_AND_CREATE_TOPIC)
    shown = server.run("updateTopicPerm", "-c", "C", "-t", "T", "-p", "4")
    assert shown.stdout == f"update topic perm from 6 to 4 in {server.address} success.\n"
    [request] = server.requests(RequestCode.UPDATE_AND_CREATE_TOPIC)
    asked = request.ext
    assert (asked["perm"], asked["readQueueNums"], asked["writeQueueNums"], asked["order"]) == (
        "4", "8", "4", "true",
    )  # fmt: skip
    same = server.run("updateTopicPerm", "-b", server.address, "-t", "T", "-p", "6")
    assert same.stdout == "new perm equals to the old one!\n"
    other = server.run("updateTopicPerm", "-b", "127.0.0.1:1", "-t", "T", "-p", "6")
    assert "127.0.0.1:1 is no master that has topic T" in other.stderr


@pytest.mark.parametrize(
    ("command", "code", "member", "row"),
    [
        ("updateTopicList", RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, "topicConfigList", TOPIC),
        (
            "updateSubGroupList",
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            "groupConfigList",
            {"groupName": "G", "retryMaxTimes": 3},
        ),
    ],
)
def test_a_file_is_sent_to_every_master_in_one_request(
    server: ScriptedServer, tmp_path: Path, command: str, code: RequestCode, member: str, row: dict[str, Any]
) -> None:
    server.says(code)
    file = tmp_path / "list.json"
    file.write_text(json.dumps([row, row]))
    done = server.run(command, "-c", "C", "-f", str(file))
    assert f"config to {server.address} success, please check the result later." in done.stdout
    [request] = server.requests(code)
    rows = sent_body(request)[member]
    assert len(rows) == 2 and row.items() <= rows[0].items()
    for content, why in (
        ("[]", "holds no JSON array"),
        ("{", "is no JSON"),
        ('[{"perm": 6}]', "[0] is missing"),
    ):
        file.write_text(content)
        refused = server.run(command, "-c", "C", "-f", str(file))
        assert refused.exit_code == 1
        assert why in refused.stderr
    assert "cannot be read" in server.run(command, "-c", "C", "-f", str(tmp_path / "nowhere")).stderr
    assert len(server.requests(code)) == 1


def test_the_clusters_of_a_topic_are_listed(server: ScriptedServer) -> None:
    assert server.run("topicClusterList", "-t", "T").stdout == "C\n"


def test_each_consumer_is_assigned_neighbouring_queues() -> None:
    queues = [MessageQueue("T", "broker-a", number) for number in range(8)]
    shares = topics.shares(queues, ["a", "b", "c"])
    assert {name: [queue.queue_id for queue in of_one] for name, of_one in shares.items()} == {
        "a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7],
    }  # fmt: skip
    assert topics.shares(queues[:1], ["a", "b"]) == {"a": queues[:1], "b": []}


def test_queues_are_allocated_without_asking_a_broker(server: ScriptedServer) -> None:
    shown = json.loads(server.run("allocateMQ", "-t", "T", "-i", "10.0.0.1,10.0.0.2").stdout)
    assert [len(of_one) for of_one in shown["result"].values()] == [1, 1]
    assert [request.code for request in server.asked] == [RequestCode.GET_ROUTEINFO_BY_TOPIC]


def test_queue_entries_are_numbered_from_the_first_one_returned(server: ScriptedServer) -> None:
    entry = {"physicOffset": 690, "physicSize": 230, "tagsCode": 7, "eval": False}
    server.says(
        RequestCode.QUERY_CONSUME_QUEUE,
        {"filterData": "G@T is not online!", "queueData": [entry], "maxQueueIndex": 9, "minQueueIndex": 5},
    )
    shown = server.run("queryCq", "-t", "T", "-q", "0", "-i", "2", "-g", "G").stdout
    rule = "======================================\n"
    assert shown == (
        f"Filter data: \nG@T is not online!\n{rule}Queue data: \nmax: 9, min: 5\n{rule}idx: 5\n"
        "ConsumeQueueData{physicOffset=690, physicSize=230, tagsCode=7, extendDataJson='null', bitMap='null', "
        f"eval=false, msg='null'}}\n{rule}"
    )
    [request] = server.requests(RequestCode.QUERY_CONSUME_QUEUE)
    assert (request.ext["index"], request.ext["count"]) == ("2", "10")


def test_traffic_is_shown_by_topic_and_group(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {"topicList": ["T", "%RETRY%G", "%DLQ%G"]})
    stats = {"statsMinute": item(60, 1.0), "statsHour": item(0), "statsDay": item(0)}
    server.says(RequestCode.VIEW_BROKER_STATS_DATA, stats)
    server.says(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"groupList": ["G"]})
    server.says(
        RequestCode.GET_CONSUME_STATS, {"offsetTable": {QUEUE_KEY: {"brokerOffset": 9, "consumerOffset": 5}}}
    )
    heading, row = server.run("statsAll").stdout.splitlines()
    assert heading.split()[:3] == ["#Topic", "#Consumer", "Group"]
    assert row.split() == ["T", "G", "4", "1.00", "1.00", "60", "60"]
    server.says(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"groupList": []})
    server.says(RequestCode.VIEW_BROKER_STATS_DATA, status=1, remark="not exist")
    assert server.run("statsAll").stdout.splitlines()[1].split() == ["T", "0", "0.00", "0", "NO_CONSUMER"]
    assert server.run("statsAll", "-a").stdout.splitlines() == [heading]


def test_the_backlog_of_every_group_of_a_broker_is_listed(server: ScriptedServer) -> None:
    row = {"brokerOffset": 9, "consumerOffset": 5, "lastTimestamp": 1000}
    stats = [{"offsetTable": {QUEUE_KEY: row}}]
    server.says(RequestCode.GET_BROKER_CONSUME_STATS, {"consumeStatsList": [{"G": stats}], "totalDiff": 4})
    shown = server.run("brokerConsumeStats", "-b", server.address).stdout.splitlines()
    assert shown[1].split()[:7] == ["T", "G", "broker-a", "0", "9", "5", "4"]
    assert shown[-1] == "Diff Total: 4"
    assert len(server.run("brokerConsumeStats", "-b", server.address, "-l", "5").stdout.splitlines()) == 3
    line = brokers.format_queue("G", MessageQueue("T", "b", 0), OffsetWrapper(9, 5, 5, 1000), UTC)
    assert line.rstrip().endswith("1970-01-01 00:00:01")


SENT = "\x01".join(["Pub", "1000", "R", "PG", "T", "KEY", "t", "k", "h", "4", "7", "0", "off", "true", "h"])
OLD_SENT = "\x01".join(["Pub", "1000", "R", "PG", "T", "KEY", "t", "k", "h", "4", "7", "0", "false"])
READ = "\x01".join(["SubAfter", "req", "KEY", "5", "true", "k", "0", "2000", "CG"])
OLD_READ = "\x01".join(["SubAfter", "req", "KEY", "5", "false", "k"])


def test_traces_of_new_and_old_clients_are_read_and_others_left_out() -> None:
    before = "\x01".join(["SubBefore", "1", "R", "CG", "req", "KEY", "0", "k"])
    other = SENT.replace("KEY", "ANOTHER")
    body = "\x02".join([SENT, OLD_SENT, READ, OLD_READ, before, other, "Pub\x01x", ""])
    assert traces_in(body, "KEY") == [
        Trace("Pub", "PG", 1000, 7, True),
        Trace("Pub", "PG", 1000, 7, False),
        Trace("SubAfter", "CG", 2000, 5, True),
        Trace("SubAfter", "", 0, 5, False),
    ]


def test_a_trace_is_shown_in_blocks() -> None:
    found = [(trace, "10.0.0.9") for trace in traces_in(f"{SENT}\x02{READ}", "KEY")]
    lines = messages.format_traces(found, UTC).splitlines()
    assert lines[0].split() == [
        "#Type",
        "#ProducerGroup",
        "#ClientHost",
        "#SendTime",
        "#CostTimes",
        "#Status",
    ]
    assert lines[1].split() == ["Pub", "PG", "10.0.0.9", "1970-01-01", "00:00:01", "7ms", "success"]
    assert lines[4].split() == ["Sub", "CG", "10.0.0.9", "1970-01-01", "00:00:02", "5ms", "success"]


def test_a_message_without_a_trace_is_reported(server: ScriptedServer) -> None:
    server.says(RequestCode.QUERY_MESSAGE, status=22)
    result = server.run("queryMsgTraceById", "-i", "KEY")
    assert result.exit_code == 1
    assert "topic RMQ_SYS_TRACE_TOPIC has no trace of message KEY" in result.stderr


def test_exports_are_files_that_hold_users_topics_and_groups(server: ScriptedServer, tmp_path: Path) -> None:
    topics = {name: TOPIC | {"topicName": name} for name in ("T", "TBW102", "broker-a", "%RETRY%G")}
    groups = {
        name: {"groupName": name, "retryQueueNums": 1} for name in ("G", "TOOLS_CONSUMER", "CID_RMQ_SYS_X")
    }
    server.says(RequestCode.GET_ALL_TOPIC_CONFIG, {"topicConfigTable": topics})
    server.says(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {"topicList": ["broker-a"]})
    server.says(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"subscriptionGroupTable": groups})
    server.says(RequestCode.GET_BROKER_CONFIG, b"brokerName=broker-a\nfileReservedTime=72\nlistenPort=1\n")
    server.says(
        RequestCode.GET_BROKER_RUNTIME_INFO, {"table": {"putTps": "2.5 1 0", "commitLogDiskRatio": "0.1"}}
    )
    server.says(RequestCode.VIEW_BROKER_STATS_DATA, status=1)
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, status=206)
    to = ("-f", str(tmp_path / "new"))
    done = server.run("exportMetadata", "-c", "C", *to)
    path = tmp_path / "new" / "metadata.json"
    assert done.stdout == f"export {path} success\n"
    written = json.loads(path.read_text())
    assert written["topicConfigTable"].keys() == {"T"}
    assert written["subscriptionGroupTable"].keys() == {"G"}
    server.run("exportMetadata", "-b", server.address, "-t", "-s", *to)
    special = json.loads((tmp_path / "new" / "topic.json").read_text())
    assert special["topicConfigTable"].keys() == {"T", "%RETRY%G"}
    server.run("exportConfigs", "-c", "C", *to)
    configs = json.loads((tmp_path / "new" / "configs.json").read_text())
    assert configs["brokerConfigs"]["broker-a"] == {"brokerName": "broker-a", "fileReservedTime": "72"}
    assert configs["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    server.run("exportMetrics", "-c", "C", *to)
    metrics = json.loads((tmp_path / "new" / "metrics.json").read_text())
    quota = metrics["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert (quota["tps"]["normalInTps"], quota["topicSize"], quota["groupSize"]) == (2.5, 1, 1)
    assert metrics["totalData"]["totalTps"]["totalNormalInTps"] == 2.5
    server.says(RequestCode.GET_BROKER_RUNTIME_INFO, {"table": {"putTps": " "}})
    young = json.loads(server.run("exportMetrics", "-c", "C", *to, "--json").stdout)
    assert young["totalData"]["totalTps"]["totalNormalInTps"] == 0


def test_an_export_that_cannot_be_written_fails_with_the_path(server: ScriptedServer, tmp_path: Path) -> None:
    server.says(RequestCode.GET_BROKER_CONFIG, b"brokerName=broker-a\n")
    (tmp_path / "file").write_text("")
    result = server.run("exportConfigs", "-c", "C", "-f", str(tmp_path / "file"))
    assert result.exit_code == 1
    assert f"{tmp_path / 'file' / 'configs.json'} cannot be written" in result.stderr
    (tmp_path / "configs.json").symlink_to(tmp_path / "file")
    assert server.run("exportConfigs", "-c", "C", "-f", str(tmp_path)).exit_code == 1


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (479, "V5_3_3"),
        (478, "V5_3_3_SNAPSHOT"),
        (413, "V5_0_0"),
        (401, "V4_9_4"),
        (213, "V4_0_0"),
        (100, "100"),
    ],
)
def test_versions_are_named_as_upstream_names_them(number: int, name: str) -> None:
    assert version_name(number) == name


def test_the_queues_of_an_ordered_topic_are_set_on_name_servers(server: ScriptedServer) -> None:
    server.says(RequestCode.UPDATE_AND_CREATE_TOPIC)
    server.says(RequestCode.PUT_KV_CONFIG)
    server.says(RequestCode.GET_KV_CONFIG, ext={"value": "broker-z:2;broker-a:9"})
    of_cluster = server.run("updateTopic", "-c", "C", "-t", "T", "-w", "4", "-o", "true")
    assert "set cluster orderConf. isOrder=true, orderConf=[broker-a:4]\n" in of_cluster.stdout
    of_one = server.run("updateTopic", "-b", server.address, "-t", "T", "-w", "4", "-o", "true")
    assert "set broker orderConf. isOrder=true, orderConf=[broker-a:4]\n" in of_one.stdout
    server.says(RequestCode.GET_KV_CONFIG, status=22)
    assert server.run("updateTopic", "-b", server.address, "-t", "T", "-o", "true").exit_code == 0
    put = [request.ext["value"] for request in server.requests(RequestCode.PUT_KV_CONFIG)]
    assert put == ["broker-a:4", "broker-z:2;broker-a:4", "broker-a:8"]
    stranger = server.run("updateTopic", "-b", server.address, "-t", "T", "-o", "true", "-n", "127.0.0.1:9")
    assert stranger.exit_code == 1
