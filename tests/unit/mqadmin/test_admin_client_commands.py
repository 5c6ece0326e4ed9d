"""Later commands on connected clients and on offsets of groups, against a scripted server."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqadmin import runninginfo
from mqadmin.calls.groups import GroupProgress
from mqadmin.commands import groups
from mqadmin.commands.groups import file_for
from remoting.bodies.queues import ConsumerQueues, MessageQueue, OffsetWrapper
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

QUEUE_KEY = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
CONNECTED = {
    "connectionSet": [
        {"clientId": "10.0.0.9@1", "clientAddr": "10.0.0.9:5", "language": "JAVA", "version": 479}
    ],
    "subscriptionTable": {"T": {"topic": "T", "subString": "TagA || TagB"}},
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
}
INFO: dict[str, Any] = {
    "properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "1"},
    "mqTable": {QUEUE_KEY: {"commitOffset": 5, "cachedMsgCount": 2, "lastConsumeTimestamp": 1}},
    "subscriptionSet": [{"topic": "T", "subString": "*"}],
    "statusTable": {"T": {"pullRT": 1.5, "consumeFailedMsgs": 2}},
    "jstack": "threads",
}


def stats(consumer_offset: int) -> dict[str, Any]:
    return {"offsetTable": {QUEUE_KEY: {"brokerOffset": 9, "consumerOffset": consumer_offset}}}


def test_connected_consumers_are_shown_with_their_subscriptions(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, CONNECTED)
    shown = server.run("consumerConnection", "-g", "G").stdout
    assert shown == (
        f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version\n"
        f"{'10.0.0.9@1':<36} {'10.0.0.9:5':<22} {'JAVA':<10} V5_3_3\n"
        f"\nBelow is subscription:\n{'#Topic':<20} #SubExpression\n{'T':<20} TagA || TagB\n\n"
        "ConsumeType: CONSUME_PASSIVELY\nMessageModel: CLUSTERING\nConsumeFromWhere: CONSUME_FROM_LAST_OFFSET\n"
    )
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, status=206)
    assert "no consumer of group G is online" in server.run("consumerConnection", "-g", "G").stderr


def test_connected_producers_are_numbered(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"connectionSet": CONNECTED["connectionSet"]})
    shown = server.run("producerConnection", "-g", "PG", "-t", "T").stdout
    assert shown == f"0001  {'10.0.0.9@1':<32} {'10.0.0.9:5':<22} {'JAVA':<8} V5_3_3\n"
    server.says(RequestCode.GET_PRODUCER_CONNECTION_LIST, status=1, remark="not exist")
    result = server.run("producerConnection", "-g", "PG", "-t", "T")
    assert "no producer of group PG is connected where topic T is" in result.stderr


def test_all_producers_of_a_broker_are_listed_by_group(server: ScriptedServer) -> None:
    row = {
        "clientId": "c",
        "remoteIP": "10.0.0.9:5",
        "language": "JAVA",
        "version": 479,
        "lastUpdateTimestamp": 7,
    }
    server.says(RequestCode.GET_ALL_PRODUCER_INFO, {"data": {"PG": [row]}})
    assert server.run("producer", "-b", server.address).stdout == (
        "producer group (PG) instance : clientId=c,remoteIP=10.0.0.9:5, language=JAVA, version=479, "
        "lastUpdateTimestamp=7\n"
    )


def test_consumer_status_shows_all_sections_of_one_consumer(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, CONNECTED)
    server.says(RequestCode.GET_CONSUMER_RUNNING_INFO, INFO)
    shown = server.run("consumerStatus", "-g", "G", "-i", "10.0.0.9@1", "-s").stdout
    headings = [line for line in shown.splitlines() if line.startswith("#") and line.endswith("#")]
    assert headings == [
        "#Consumer Properties#",
        "#Consumer Subscription#",
        "#Consumer Offset#",
        "#Consumer MQ Detail#",
        "#Consumer Pop Detail#",
        "#Consumer RT&TPS#",
        "#Consumer jstack#",
    ]
    assert "001 Topic: T" in shown
    assert shown.endswith("threads")
    [request] = server.requests(RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert request.ext["jstackEnable"] == "true"


def test_consumer_status_of_a_group_writes_files_and_reports_problems(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, CONNECTED)
    server.says(RequestCode.GET_CONSUMER_RUNNING_INFO, INFO)
    shown = server.run("consumerStatus", "-g", "G").stdout
    assert "Same subscription in the same group of consumer\n\nRebalance OK\n" in shown
    assert "can't consume for a while, maybe blocked" in shown
    [file] = tmp_path.glob("*/*")
    assert file.name == "10.0.0.9@1"
    server.says(RequestCode.GET_CONSUMER_RUNNING_INFO, status=1, remark="gone")
    assert server.run("consumerStatus", "-g", "G").exit_code == 1


def test_a_client_id_never_leads_to_another_folder() -> None:
    assert file_for("1", "../../etc/x@1#2") == Path("1/_.._etc_x@1#2")
    assert file_for("1", "...") == Path("1/_")


def test_different_subscriptions_are_reported_once_the_group_has_settled() -> None:
    one = ConsumerQueues.from_json(INFO)
    other = ConsumerQueues.from_json(INFO | {"subscriptionSet": [{"topic": "T", "subString": "TagA"}]})
    assert not runninginfo.same_subscription({"a": one, "b": other}, now_ms=runninginfo.SETTLED_MS + 2)
    assert runninginfo.same_subscription({"a": one, "b": other}, now_ms=runninginfo.SETTLED_MS)
    assert runninginfo.same_subscription({"a": one, "b": one}, now_ms=runninginfo.SETTLED_MS + 2)


def test_an_orderly_consumer_without_a_lock_is_reported() -> None:
    orderly = INFO["properties"] | {"PROP_CONSUMEORDERLY": "true"}
    rows = {QUEUE_KEY: {"locked": False, "lastLockTimestamp": 1_000}}
    info = ConsumerQueues.from_json(INFO | {"properties": orderly, "mqTable": rows})
    [line] = runninginfo.troubles("c", info, now_ms=61_000)
    assert line.endswith("queueId=0] can't lock for a while, 60000ms")
    pulls = ConsumerQueues.from_json(INFO | {"properties": {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"}})
    assert runninginfo.troubles("c", pulls, now_ms=10**9) == []
    assert "lastLockTimestamp=19700101000001000" in runninginfo.format_info(info, UTC)


def test_a_group_is_cloned_on_each_master_and_the_clone_is_verified(server: ScriptedServer) -> None:
    server.says(RequestCode.CLONE_GROUP_OFFSET)
    server.says(RequestCode.GET_CONSUME_STATS, stats(5))
    of = ("cloneGroupOffset", "-s", "G", "-d", "H", "-t", "T")
    assert server.run(*of).stdout == "clone group offset success. srcGroup[G], destGroup=[H], topic[T]"
    [request] = server.requests(RequestCode.CLONE_GROUP_OFFSET)
    assert request.ext == {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "false"}
    of_group = {"G": stats(5), "H": stats(0)}
    server.answers[RequestCode.GET_CONSUME_STATS] = lambda asked: asked.reply(
        body=json.dumps(of_group[asked.ext["consumerGroup"]]).encode()
    )
    assert "1 of 1 queues of T were not cloned" in server.run(*of).stderr
    server.says(RequestCode.GET_CONSUME_STATS, stats(0))
    assert "group G has committed no offset of topic T" in server.run(*of).stderr


def test_accumulated_messages_are_skipped(server: ScriptedServer) -> None:
    server.says(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"offsetTable": {QUEUE_KEY: 9}})
    shown = server.run("skipAccumulatedMessage", "-g", "G", "-t", "T").stdout
    assert shown.splitlines()[-1].split() == ["broker-a", "0", "9"]
    [request] = server.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert (request.ext["timestamp"], request.ext["isForce"]) == ("-1", "true")


def test_the_settings_of_a_group_are_shown_for_each_broker_set(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"groupName": "G", "retryMaxTimes": 3})
    shown = server.run("getConsumerConfig", "-g", "G").stdout
    rule = "=" * 29
    assert shown.startswith(f"{rule}C:broker-a{rule}\n{'groupName':<40}=  G\n")
    assert f"{'retryMaxTimes':<40}=  3\n" in shown
    assert f"{'subscriptionDataSet':<40}=  \n" in shown
    server.says(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, status=26)
    assert "no broker has a group G" in server.run("getConsumerConfig", "-g", "G").stderr


def test_a_monitoring_round_reports_undone_messages_and_problems(server: ScriptedServer) -> None:
    server.says(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {"topicList": ["T", "%RETRY%G", "%RETRY%Off"]}
    )
    server.answers[RequestCode.GET_CONSUMER_CONNECTION_LIST] = lambda asked: (
        asked.reply(body=json.dumps(CONNECTED).encode())
        if asked.ext["consumerGroup"] == "G"
        else asked.reply(206, "not online")
    )
    server.says(RequestCode.GET_CONSUME_STATS, stats(5))
    server.says(RequestCode.GET_CONSUMER_RUNNING_INFO, INFO)
    lines = server.run("startMonitoring", "--once").stdout.splitlines()
    assert lines[0].endswith("beginRound") and lines[-1].endswith("endRound")
    assert lines[1] == (
        "[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=G, topic=T, undoneMsgsTotal=4, undoneMsgsSingleMQ=4, "
        "undoneMsgsDelayTimeMills=0]"
    )
    assert "[NOTIFY] reportConsumerRunningInfo: ConsumerGroup: G, ClientId: 10.0.0.9@1" in lines[2]
    assert len(lines) == 4


def test_undone_messages_are_summed_by_topic() -> None:
    def queue(topic: str, number: int) -> MessageQueue:
        return MessageQueue(topic, "broker-a", number)

    offsets = {
        queue("T", 0): OffsetWrapper(9, 5, 5, 400),
        queue("T", 1): OffsetWrapper(9, 8, 8, 900),
        queue("U", 0): OffsetWrapper(3, 3, 3, 100),
    }
    rows = groups.undone_of("G", GroupProgress(offsets, 0.0), now_ms=1000)
    assert [row[1:] for row in rows] == [("T", 5, 4, 600), ("U", 0, 0, 0)]
