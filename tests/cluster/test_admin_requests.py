"""Requests of administrators about groups, their members and traffic, each over the simulated network."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from remoting import fastjson
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import (
    BrokerStatsHeader,
    CloneGroupOffsetHeader,
    ConsumerStatusHeader,
    ConsumeStatsInBrokerHeader,
    CreateTopicHeader,
    GetConsumeStatsHeader,
    GroupAndTopicHeader,
    GroupHeader,
    TopicHeader,
)
from remoting.headers.offsets import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from remoting.peer import Peer
from remoting.router import Router
from tests.cluster.served import Served

QUEUE_1 = '{"brokerName":"broker-a","queueId":1,"topic":"orders"}'


def commit(served: Served, group: str, offset: int) -> None:
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader(group, "orders", 1, offset))


def committed(served: Served, group: str) -> str | None:
    header = QueryConsumerOffsetHeader(group, "orders", 1, set_zero_if_not_found=False)
    return served.ask(RequestCode.QUERY_CONSUMER_OFFSET, header).ext.get("offset")


def body_of(reply: RemotingCommand) -> Any:
    assert reply.code == 0, reply.remark
    return fastjson.loads(bytes(reply.body or b""))


def test_traffic_is_counted_by_topic_while_metrics_are_off(served: Served) -> None:
    stats = served.json(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsHeader("TOPIC_PUT_NUMS", "orders"))
    assert [stats[name]["sum"] for name in ("statsMinute", "statsHour", "statsDay")] == [3, 3, 3]
    assert stats["statsMinute"]["avgpt"] == 1.0
    sizes = served.json(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsHeader("TOPIC_PUT_SIZE", "orders"))
    assert sizes["statsDay"]["sum"] > 300
    assert served.json(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("orders"))["topicPutTps"] > 0
    unknown = served.ask(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsHeader("GROUP_GET_NUMS", "orders@CG"))
    assert (unknown.code, unknown.remark) == (1, "The stats <GROUP_GET_NUMS> <orders@CG> not exist")


def test_consume_stats_list_the_offsets_of_every_group(served: Served) -> None:
    for group, offset in (("CG", 2), ("DG", 0)):
        body = json.dumps({"groupName": group}).encode()
        served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        commit(served, group, offset)
    stats = served.json(RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsInBrokerHeader())
    of_group = {name: each for row in stats["consumeStatsList"] for name, each in row.items()}
    [of_cg] = of_group["CG"]
    assert of_cg["offsetTable"][QUEUE_1]["consumerOffset"] == 2
    assert of_cg["offsetTable"][QUEUE_1]["brokerOffset"] == 3
    assert stats["totalDiff"] == 1 + 3
    ordered = served.json(RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsInBrokerHeader(is_order=True))
    assert all(each == [] for row in ordered["consumeStatsList"] for each in row.values())
    one = served.json(RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader("CG"))
    assert one["offsetTable"][QUEUE_1] == of_cg["offsetTable"][QUEUE_1]


def test_many_queues_and_topics_that_are_named_again_do_not_block_the_broker(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []

    @types.coroutine
    def noted(where: str) -> Iterator[None]:
        turns.append(where)
        yield

    for module in ("progress", "topics"):
        monkeypatch.setattr(f"broker.admin.{module}.yield_to_loop", partial(noted, module))
    wide = CreateTopicHeader("wide", "TBW102", 3_500, 3_500, 6)
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wide).code == 0
    again = GetConsumeStatsHeader("CG", topic_list="wide;" * 1_000)
    assert len(served.json(RequestCode.GET_CONSUME_STATS, again)["offsetTable"]) == 3_500
    assert turns == ["progress"] * 4, "three within the queues of the topic, one after it"
    served.json(RequestCode.QUERY_CONSUME_TIME_SPAN, GroupAndTopicHeader("CG", "wide"))
    served.json(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("wide"))
    assert turns == ["progress"] * 7 + ["topics"] * 3


def test_consume_time_span_reports_the_delay_of_a_group_in_ms(served: Served) -> None:
    commit(served, "CG", 1)
    stats = served.json(RequestCode.QUERY_CONSUME_TIME_SPAN, GroupAndTopicHeader("CG", "orders"))
    [span] = [row for row in stats["consumeTimeSpanSet"] if row["messageQueue"]["queueId"] == 1]
    assert span["minTimeStamp"] == span["consumeTimeStamp"] <= span["maxTimeStamp"]
    assert span["delayTime"] > 0
    commit(served, "CG", 3)
    stats = served.json(RequestCode.QUERY_CONSUME_TIME_SPAN, GroupAndTopicHeader("CG", "orders"))
    [span] = [row for row in stats["consumeTimeSpanSet"] if row["messageQueue"]["queueId"] == 1]
    assert (span["consumeTimeStamp"], span["delayTime"]) == (span["maxTimeStamp"], 0)
    assert served.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, GroupAndTopicHeader("CG", "none")).code == 17


def test_a_cloned_group_starts_at_the_offsets_of_the_other_group(served: Served) -> None:
    commit(served, "CG", 2)
    for header in (CloneGroupOffsetHeader("CG", "DG", "orders"), CloneGroupOffsetHeader("CG", "EG")):
        assert served.ask(RequestCode.CLONE_GROUP_OFFSET, header).code == 0
    assert [committed(served, group) for group in ("DG", "EG")] == ["2", "2"]
    assert served.ask(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetHeader("CG", "FG", "none")).code == 0
    assert committed(served, "FG") is None
    on_slave = served.ask(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetHeader("CG", "FG"), slave=True)
    assert on_slave.code == 1
    assert served.json(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupHeader("DG"))["topicList"] == ["orders"]


class Members:
    """A consumer of group CG that reads `topic`, and a producer of group PG, on one connection."""

    def __init__(self, served: Served, topic: str = "orders") -> None:
        self.served = served
        self.topic = topic
        self.offsets = json.dumps({"messageQueueTable": {QUEUE_1: 2}}).encode()
        self.router = Router()
        self.router.add(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)

    def _status(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=self.offsets)

    def ask(self, code: int, header: Any = None) -> RemotingCommand:
        """The master's answer while they are connected."""
        served = self.served

        async def scenario() -> RemotingCommand:
            data = HeartbeatData(
                "c1",
                [ProducerData("PG")],
                [ConsumerData("CG", subscription_data_set=[SubscriptionData(self.topic, "TagA")])],
            )
            beat = RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())
            async with served.cluster.client(self.router) as client, served.cluster.client() as admin:
                await client.remoting.call(served.master.address, beat)
                question = RemotingCommand.request(code, header)
                return await admin.remoting.call(served.master.address, question)

        answer: RemotingCommand = served.cluster.run(scenario())
        return answer


def test_consumers_report_their_queue_offsets_to_administrators(served: Served) -> None:
    code, members = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Members(served)
    stats = body_of(members.ask(code, ConsumerStatusHeader("orders", "CG", "")))
    assert stats["consumerTable"] == {"c1": {QUEUE_1: 2}}
    nobody = body_of(members.ask(code, ConsumerStatusHeader("orders", "CG", "c2")))
    assert nobody["consumerTable"] == {}
    offline = served.ask(code, ConsumerStatusHeader("orders", "DG"))
    assert (offline.code, offline.remark) == (1, "No Any Consumer online in the consumer group: [DG]")


@pytest.mark.parametrize(
    "answer",
    [
        b'{"messageQueueTable":{{"topic":"t","brokerName":"b","queueId":1}:1},"x":[%s1]}'
        % (b"'a'," * 100_000),
        b'{"messageQueueTable":{},"x":[%s1]}' % (b"1," * 50_000),
    ],
    ids=["dialect", "pieces"],
)
def test_offsets_that_take_long_to_read_are_left_out(served: Served, answer: bytes) -> None:
    members = Members(served)
    members.offsets = answer
    stats = body_of(
        members.ask(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusHeader("orders", "CG", "")
        )
    )
    assert stats["consumerTable"] == {}


def test_few_consumers_are_asked_for_their_offsets_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.clients.calls.ASKED_MAX", 0)
    code, members = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Members(served)
    assert members.ask(code, ConsumerStatusHeader("orders", "CG", "")).code == ResponseCode.SYSTEM_BUSY


def test_producers_and_subscriptions_are_shown(served: Served) -> None:
    members = Members(served)
    [producer] = body_of(members.ask(RequestCode.GET_ALL_PRODUCER_INFO))["data"]["PG"]
    assert producer["clientId"] == "c1"
    assert producer["lastUpdateTimestamp"] > 0
    wanted = body_of(
        members.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, GroupAndTopicHeader("CG", "orders"))
    )
    assert wanted["subscriptionData"]["subString"] == "TagA"
    none = served.json(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, GroupAndTopicHeader("CG", "orders"))
    assert "subscriptionData" not in none


def test_offsets_of_a_topic_the_source_unsubscribed_are_cloned_only_with_offline_set(
    served: Served,
) -> None:
    commit(served, "CG", 2)
    members = Members(served, topic="elsewhere")
    for offline, expected in ((False, None), (True, "2")):
        header = CloneGroupOffsetHeader("CG", "DG", "orders", offline)
        assert members.ask(RequestCode.CLONE_GROUP_OFFSET, header).code == 0
        assert committed(served, "DG") == expected
