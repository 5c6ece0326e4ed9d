"""The commands on consumer groups, against upstream's output and against a scripted server."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from mqadmin.calls.groups import GroupProgress
from mqadmin.commands import groups, offsets
from mqadmin.commands.groups import GroupRow
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import Connection, ConsumerConnection
from remoting.bodies.queues import ConsumeStats, MessageQueue
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

VECTORS = Path(__file__).parents[2] / "vectors" / "config"
QUEUE_KEY = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
RETRY_KEY = '{"brokerName":"broker-a","queueId":0,"topic":"%RETRY%G"}'
STATS = {
    "consumeTps": 2.0,
    "offsetTable": {
        QUEUE_KEY: {"brokerOffset": 9, "consumerOffset": 5, "pullOffset": 7, "lastTimestamp": 0},
        RETRY_KEY: {"brokerOffset": 1, "consumerOffset": 0, "pullOffset": 0, "lastTimestamp": 0},
    },
}


def upstream_printed(name: str) -> str:
    return (VECTORS / f"{name}.stdout").read_text()


def test_a_groups_progress_reads_as_upstreams() -> None:
    [reply] = json.loads((VECTORS / "replies.json").read_text())["consumerProgress"]
    stats = ConsumeStats.decode(reply["body"].encode())
    offsets = {queue: row for queue, row in stats.offset_table.items() if queue.topic == "VecTopic"}
    assert groups.format_progress(GroupProgress(offsets, 0.0), UTC) == upstream_printed("consumerProgress")


def test_the_list_of_groups_reads_as_upstreams() -> None:
    printed = upstream_printed("consumerProgress-all").splitlines(keepends=True)
    assert printed[0] == groups.GROUP_HEADING
    assert printed[1] == groups.format_group_row(GroupRow("Bin_PULL", None, 0.0, 25))


def test_a_connected_group_shows_its_oldest_version() -> None:
    members = [Connection("a", "1", "JAVA", 479), Connection("b", "2", "JAVA", 401)]
    connected = ConsumerConnection(members, {}, "CONSUME_PASSIVELY", "CLUSTERING", None)
    line = groups.format_group_row(GroupRow("G", connected, 1.4, 3))
    assert line.split() == ["G", "2", "V4_9_4", "PUSH", "CLUSTERING", "1", "3"]


def test_a_reset_reads_as_upstreams() -> None:
    rows = [(3, 3), (2, 3), (1, 4), (0, 18)]
    printed = offsets.format_start("Cd_CG", "CdTopic", True, "-1", -1) + offsets.RESET_HEADING
    printed += "".join(
        offsets.format_reset(MessageQueue("CdTopic", "broker-a", queue), offset) for queue, offset in rows
    )
    assert printed == upstream_printed("resetOffsetByTime")


def test_a_created_and_a_deleted_group_read_as_upstreams() -> None:
    group = SubscriptionGroupConfig("AdmGroup", consume_from_min_enable=False, consume_broadcast_enable=False)
    printed = groups.format_created("127.0.0.1:24220") + groups.format_group_config(group)
    assert printed == upstream_printed("updateSubGroup")
    deleted = groups.format_deleted("AdmGroup", "127.0.0.1:24220", "DefaultCluster")
    assert deleted == upstream_printed("deleteSubGroup")


def test_progress_of_one_group_leaves_out_its_retries(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_CONSUME_STATS, STATS)
    shown = server.run("consumerProgress", "-g", "G")
    assert shown.exit_code == 0
    assert "Consume Diff Total: 4\nConsume Inflight Total: 2\n" in shown.stdout
    report = json.loads(server.run("consumerProgress", "-g", "G", "--json").stdout)
    assert report["diffTotal"] == 4
    assert [row["topic"] for row in report["queues"]] == ["T"]


def test_a_group_without_offsets_is_reported_as_unknown(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_CONSUME_STATS, {"offsetTable": {}})
    result = server.run("consumerProgress", "-g", "G")
    assert result.exit_code == 1
    assert "group G has committed no offset" in result.stderr


def test_all_groups_are_those_with_retries_or_offsets(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {"topicList": ["T", "%RETRY%G1"]})
    server.says(RequestCode.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@G2": {"0": 5}}})
    server.says(RequestCode.GET_CONSUME_STATS, STATS)
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, status=206, remark="not online")
    report = json.loads(server.run("consumerProgress", "--json").stdout)
    assert [(row["group"], row["consumers"]) for row in report["groups"]] == [("G1", None), ("G2", None)]
    assert server.run("consumerProgress").stdout.count("OFFLINE") == 2


def test_the_offsets_of_a_group_are_reset_to_a_time(server: ScriptedServer) -> None:
    server.says(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"offsetTable": {QUEUE_KEY: 3}})
    options = ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "2026-11-21#10:21:58:544")
    shown = server.run(*options)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1].split() == ["broker-a", "0", "3"]
    [request] = server.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert request.ext["timestamp"].endswith("8544")
    assert request.ext["queueId"] == "-1"
    assert "offset" not in request.ext


def test_one_queue_of_a_group_is_reset_to_an_offset(server: ScriptedServer) -> None:
    server.says(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"offsetTable": {QUEUE_KEY: 3}})
    options = ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "-1", "-b", server.address)
    assert server.run(*options, "-q", "0", "-o", "3").exit_code == 0
    [request] = server.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert (request.ext["queueId"], request.ext["offset"], request.ext["timestamp"]) == ("0", "3", "-1")
    assert server.run(*options, "-o", "3").exit_code == 1  # no queue is named


def test_a_reset_to_now_moves_to_the_end_of_the_queues(server: ScriptedServer) -> None:
    server.says(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"offsetTable": {QUEUE_KEY: 9}})
    assert server.run("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now").exit_code == 0
    [request] = server.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert request.ext["timestamp"] == "-1"


def test_the_offsets_of_an_unknown_group_are_not_reset(server: ScriptedServer) -> None:
    server.says(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, status=26, remark="no group")
    result = server.run("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now")
    assert result.exit_code == 1
    assert "updateSubGroup" in result.stderr


def test_a_group_is_created_on_every_master(server: ScriptedServer) -> None:
    server.says(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    policy = '{"type":"EXPONENTIAL"}'
    result = server.run("updateSubGroup", "-c", "C", "-g", "G", "-r", "3", "-d", "true", "-p", policy)
    assert result.exit_code == 0, result.stderr
    [request] = server.requests(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    sent = orjson.loads(bytes(request.body or b""))
    assert (sent["groupName"], sent["retryMaxTimes"], sent["consumeBroadcastEnable"]) == ("G", 3, True)
    assert sent["groupRetryPolicy"] == {"type": "EXPONENTIAL"}


@pytest.mark.parametrize("options", [["-p", "often"], ["-p", "{}"], ["-r", "x"], ["-s", "yes"]])
def test_an_unusable_setting_of_a_group_is_refused(server: ScriptedServer, options: list[str]) -> None:
    result = server.run("updateSubGroup", "-c", "C", "-g", "G", *options)
    assert result.exit_code == 1
    assert not server.asked


def test_a_group_is_deleted_with_its_retry_and_dead_letter_topics(server: ScriptedServer) -> None:
    for code in (
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    ):
        server.says(code)
    assert server.run("deleteSubGroup", "-c", "C", "-g", "G", "-r", "true").exit_code == 0
    [request] = server.requests(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    assert request.ext == {"groupName": "G", "cleanOffset": "true"}
    deleted = [request.ext["topic"] for request in server.requests(RequestCode.DELETE_TOPIC_IN_BROKER)]
    assert deleted == ["%RETRY%G", "%DLQ%G"]


def test_deleting_an_unknown_group_fails(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, status=26)
    result = server.run("deleteSubGroup", "-b", server.address, "-g", "G")
    assert result.exit_code == 1
    assert "has a group G" in result.stderr
