"""Topics, consumer groups and their members: created, shown, deleted, and copied by slaves."""

from __future__ import annotations

import asyncio
import json

import pytest

from broker.tables.consumeroffsets import TRANSACTIONS_GROUP
from messagestore.systemtopics import HALF_TOPIC
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupWrapper
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.bodies.offsets import ConsumerOffsetWrapper
from remoting.bodies.queues import MessageQueue, TopicStatsTable
from remoting.bodies.topics import TopicConfig, TopicConfigList, TopicConfigWrapper
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import (
    ConsumerGroupHeader,
    CreateTopicHeader,
    DeleteSubscriptionGroupHeader,
    GetConsumeStatsHeader,
    GroupHeader,
    ProducerGroupHeader,
    TopicHeader,
    UnregisterClientHeader,
)
from remoting.headers.group import TablesVersionHeader
from remoting.headers.offsets import (
    UpdateConsumerOffsetHeader,
)
from remoting.router import Router
from simulation.kernel.node import EPOCH_MS
from tests.cluster.served import Served


def test_a_topic_is_created_shown_counted_and_deleted(served: Served) -> None:
    header = CreateTopicHeader("fresh", "TBW102", 2, 3, 6, attributes="+k=v")
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0
    shown = TopicConfig.from_json(served.json(RequestCode.GET_TOPIC_CONFIG, TopicHeader("fresh")))
    assert (shown.read_queue_nums, shown.write_queue_nums, shown.attributes) == (2, 3, {"k": "v"})
    table = TopicConfigWrapper.from_json(served.json(RequestCode.GET_ALL_TOPIC_CONFIG))
    assert {"fresh", "orders", "TBW102"} <= set(table.topic_config_table)
    assert served.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("fresh")).code == 0
    assert served.ask(RequestCode.GET_TOPIC_CONFIG, TopicHeader("fresh")).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("key", "built", "asked", "what"),
    [
        ("cleanup.policy", "DELETE", "COMPACTION", "compacted topics"),
        ("queue.type", "SimpleCQ", "BatchCQ", "queues of batches"),
        ("reserve.time", "-1", "60", "retention by topic"),
    ],
)
def test_a_topic_with_an_unsupported_attribute_is_refused(
    served: Served, key: str, built: str, asked: str, what: str
) -> None:
    why = f"attribute {key}={asked} of topic fresh: not built here: {what}"
    header = CreateTopicHeader("fresh", "TBW102", 2, 3, 6, attributes=f"+{key}={asked}")
    listed = TopicConfigList([TopicConfig("other"), TopicConfig("fresh", attributes={key: asked})]).encode()
    for reply in (
        served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header),
        served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, listed),
    ):
        assert (reply.code, reply.remark) == (ResponseCode.INVALID_PARAMETER, why)
    assert served.ask(RequestCode.GET_TOPIC_CONFIG, TopicHeader("other")).code == ResponseCode.TOPIC_NOT_EXIST
    plain = CreateTopicHeader("fresh", "TBW102", 2, 3, 6, attributes=f"+{key}={built}")
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, plain).code == 0


def test_a_topic_with_an_unsupported_attribute_from_a_java_store_can_be_changed(served: Served) -> None:
    left = TopicConfig("left", 4, 4, attributes={"cleanup.policy": "COMPACTION"})
    served.master.tables.topics.put(left)
    closed = CreateTopicHeader("left", "TBW102", 4, 4, 4)
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, closed).code == 0
    shown = TopicConfig.from_json(served.json(RequestCode.GET_TOPIC_CONFIG, TopicHeader("left")))
    assert (shown.perm, shown.attributes) == (4, {"cleanup.policy": "COMPACTION"})


@pytest.mark.parametrize("name", ["", "bad/name", "x" * 128, "TBW102"])
def test_a_topic_with_an_impossible_name_is_refused(served: Served, name: str) -> None:
    header = CreateTopicHeader(name, "TBW102", 2, 3, 6)
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == ResponseCode.INVALID_PARAMETER


def test_a_topic_whose_configuration_is_too_long_is_refused(served: Served) -> None:
    long = CreateTopicHeader("long", "TBW102", 2, 3, 6, attributes="+k=" + "v" * 9_000)
    reply = served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, long)
    assert (reply.code, "8192 bytes at most" in (reply.remark or "")) == (29, True)
    step = ",".join(f"+attribute.{number}=v" for number in range(300))
    many = CreateTopicHeader("many", "TBW102", 2, 3, 6, attributes=step)
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, many).code == 0
    more = CreateTopicHeader("many", "TBW102", 2, 3, 6, attributes=step.replace("attribute", "other"))
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, more).code == 29
    listed = TopicConfigList([TopicConfig("short"), TopicConfig("long", attributes={"k": "v" * 9_000})])
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, listed.encode()).code == 29
    assert served.ask(RequestCode.GET_TOPIC_CONFIG, TopicHeader("short")).code == ResponseCode.TOPIC_NOT_EXIST
    assert served.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("many")).code == 0


@pytest.mark.parametrize(
    "group",
    [
        SubscriptionGroupConfig(""),
        SubscriptionGroupConfig("x" * 256),
        SubscriptionGroupConfig("CG", attributes={"k": "v" * 9_000}),
        SubscriptionGroupConfig("CG", attributes={f"{number:04}": "" for number in range(1_000)}),
        SubscriptionGroupConfig("CG", group_retry_policy={"type": "v" * 9_000}),
        SubscriptionGroupConfig("CG", subscription_data_set=["v" * 9_000]),
    ],
)
def test_a_group_whose_name_or_configuration_is_impossible_is_refused(
    served: Served, group: SubscriptionGroupConfig
) -> None:
    before = served.json(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    refused = served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.encode())
    assert refused.code == ResponseCode.INVALID_PARAMETER
    listed = SubscriptionGroupList([SubscriptionGroupConfig("fine"), group]).encode()
    refused = served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, listed)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert served.json(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) == before


@pytest.mark.parametrize(
    ("code", "body", "answer"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[]}', 0),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":{}}', 1),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b"[]", 1),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":[]}', 0),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":"CG"}', 1),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b"[]", 1),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b"[]", 1),
        (RequestCode.LOCK_BATCH_MQ, b'{"consumerGroup":"CG","clientId":"me","mqSet":[]}', 0),
        (RequestCode.HEART_BEAT, b'{"clientID":"me","consumerDataSet":[],"producerDataSet":[]}', 0),
        (RequestCode.HEART_BEAT, b'{"clientID":"me","consumerDataSet":{},"producerDataSet":[]}', 1),
    ],
)
def test_an_empty_or_malformed_list_changes_nothing(
    served: Served, code: RequestCode, body: bytes, answer: int
) -> None:
    before = served.master.tables.topics.data_version
    assert served.ask(code, None, body).code == answer
    assert served.master.tables.topics.data_version == before


def test_a_topics_statistics_count_its_messages(served: Served) -> None:
    reply = served.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("orders"))
    table = TopicStatsTable.decode(reply.body).offset_table
    queue = table[MessageQueue("orders", "broker-a", 1)]
    assert (len(table), queue.min_offset, queue.max_offset) == (4, 0, 3)
    assert queue.last_update_timestamp > EPOCH_MS
    assert (
        served.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("none")).code == ResponseCode.TOPIC_NOT_EXIST
    )


def test_a_group_is_created_shown_and_deleted(served: Served) -> None:
    group = SubscriptionGroupConfig("CG", retry_max_times=3)
    assert served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group.encode()).code == 0
    shown = served.json(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("CG"))
    assert shown["retryMaxTimes"] == 3
    header = DeleteSubscriptionGroupHeader("CG", clean_offset=True)
    assert served.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header).code == 0
    gone = served.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("CG"))
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_groups_progress_is_counted_by_queue(served: Served) -> None:
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    table = served.json(RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader("CG"))["offsetTable"]
    ((_, progress),) = [(key, value) for key, value in table.items() if '"queueId":1' in key]
    assert (progress["brokerOffset"], progress["consumerOffset"]) == (3, 2)


def test_consumers_see_each_other_and_are_notified_of_membership_changes(served: Served) -> None:
    async def scenario() -> tuple[list[str], list[int]]:
        address, notifications = served.master.address, []
        router = Router()
        router.add(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda peer, command: notifications.append(command.code)
        )
        async with served.cluster.client(router) as one, served.cluster.client() as two:
            for client, name in ((one, "c1"), (two, "c2")):
                consumer = ConsumerData("CG", subscription_data_set=[SubscriptionData("orders")])
                data = HeartbeatData(name, [ProducerData("PG")], [consumer])
                heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())
                assert (await client.remoting.call(address, heartbeat)).code == 0
            members = RemotingCommand.request(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader("CG")
            )
            found = json.loads(bytes((await one.remoting.call(address, members)).body or b""))
            connections = await one.remoting.call(
                address,
                RemotingCommand.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader("CG")),
            )
            assert len(json.loads(bytes(connections.body or b""))["connectionSet"]) == 2
            producers = RemotingCommand.request(
                RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader("PG")
            )
            assert (await one.remoting.call(address, producers)).code == 0
            leave = RemotingCommand.request(
                RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("c2", "PG", "CG")
            )
            await two.remoting.call(address, leave)
            await asyncio.sleep(0.1)
        return found["consumerIdList"], notifications

    members, notifications = served.cluster.run(scenario())
    assert members == ["c1", "c2"]
    assert len(notifications) == 3, "when c1 joined, when c2 joined, and when c2 left"
    served.world.run_for_ms(100)
    gone = served.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader("CG"))
    assert (gone.code, gone.remark) == (1, "no consumer for this group, CG")
    assert served.master.tables.topics.find("%RETRY%CG") is not None


def test_a_slave_has_its_masters_topics_groups_and_offsets(served: Served) -> None:
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("CG").encode())
    served.world.run_for_ms(4_000)
    offsets = ConsumerOffsetWrapper.decode(served.ask(RequestCode.GET_ALL_CONSUMER_OFFSET, slave=True).body)
    assert offsets.offset_table == {"orders@CG": {1: 2}}
    groups = SubscriptionGroupWrapper.decode(
        served.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, slave=True).body
    )
    assert list(groups.subscription_group_table) == ["CG"]
    assert served.slave.tables.topics.data_version == served.master.tables.topics.data_version
    assert served.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).code == 0


def test_only_a_master_returns_offsets_with_its_tables_version(served: Served) -> None:
    for code in (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET):
        reply = served.ask(code)
        assert reply.code == 0
        assert TablesVersionHeader.from_ext(reply.ext).tables_version == str(served.master.tables.version)
        of_slave = served.ask(code, slave=True)
        assert of_slave.code == 0
        assert TablesVersionHeader.from_ext(of_slave.ext).tables_version == "0.0"


def test_the_group_with_the_progress_of_transactions_is_not_deleted(served: Served) -> None:
    """Without its offsets a new master could take ended halves for open ones."""
    offsets = served.master.tables.offsets
    offsets.keep(HALF_TOPIC, 0, 7)
    for name in (TRANSACTIONS_GROUP, "CG"):
        header = DeleteSubscriptionGroupHeader(name, clean_offset=True)
        code = served.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header).code
        assert code == (ResponseCode.NO_PERMISSION if name == TRANSACTIONS_GROUP else 0)
    assert offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) == 7
