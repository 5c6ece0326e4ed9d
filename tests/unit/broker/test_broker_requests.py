"""Clients' and administrators' requests to a running broker, each as a frame over the simulated network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from messagestore.properties import java_string_hash
from mqclient.client import Client
from mqclient.message import OutgoingMessage, decode_messages
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.bodies.offsets import ConsumerOffsetWrapper
from remoting.bodies.queues import MessageQueue, ResetOffsetBody, TopicStatsTable
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
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
from remoting.headers.group import ExchangeHAInfoHeader
from remoting.headers.messages import QueryConsumeQueueHeader, QueryMessageHeader, ViewMessageHeader
from remoting.headers.offsets import (
    GetMaxOffsetHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    ResetOffsetHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from remoting.router import Router
from simulation.node import EPOCH_MS
from simulation.world import World
from tests.unit.broker.brokerset import Cluster

BODIES = [b"one", b"two", b"three"]


class Served:
    """A set of two with three messages in queue 1 of topic orders."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(world, 2)
        self.cluster.start_up()
        self.master = self.cluster.app(self.cluster.master)
        slave = next(node for node in self.cluster.brokers if node is not self.cluster.master)
        self.slave = self.cluster.app(slave)
        self.cluster.run(self._fill())
        world.run_for_ms(100)

    async def _fill(self) -> None:
        async with self.cluster.client() as client:
            producer = client.producer("PG")
            self.results = [
                await producer.send("orders", body, queue_id=1, tags=body.decode()) for body in BODIES
            ]

    def ask(
        self, code: int, header: Any = None, body: bytes | None = None, *, slave: bool = False
    ) -> RemotingCommand:
        address = (self.slave if slave else self.master).address
        reply: RemotingCommand = self.cluster.run(self.cluster.ask(address, code, header, body))
        return reply

    def ext(self, code: int, header: Any) -> dict[str, str]:
        reply = self.ask(code, header)
        assert reply.code == 0, reply.remark
        return reply.ext

    def json(self, code: int, header: Any = None, *, slave: bool = False) -> Any:
        reply = self.ask(code, header, slave=slave)
        assert reply.code == 0, reply.remark
        return json.loads(bytes(reply.body or b""))


@pytest.fixture
def served() -> Iterator[Served]:
    with World(31) as world:
        yield Served(world)


def test_what_this_broker_does_not_know_is_answered_with_code_3(served: Served) -> None:
    for code in (
        RequestCode.END_TRANSACTION,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_ASSIGNMENT,
        9999,
    ):
        reply = served.ask(code)
        assert (reply.code, reply.remark) == (3, f" request type {int(code)} not supported")


def test_a_header_without_what_it_needs_is_answered_with_code_1(served: Served) -> None:
    reply = served.ask(RequestCode.GET_MAX_OFFSET)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (reply.remark or "")


# -- offsets


def test_a_queue_says_its_bounds_and_times(served: Served) -> None:
    assert served.ext(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 1)) == {"offset": "3"}
    assert served.ext(RequestCode.GET_MIN_OFFSET, QueueHeader("orders", 1)) == {"offset": "0"}
    assert served.ext(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 3)) == {"offset": "0"}
    earliest = int(served.ext(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("orders", 1))["timestamp"])
    assert earliest > EPOCH_MS
    none = served.ext(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("orders", 3))
    assert none == {"timestamp": "-1"}


@pytest.mark.parametrize(
    ("since", "boundary", "offset"), [(-1, None, "0"), (100_000, None, "3"), (0, "UPPER", "0")]
)
def test_an_offset_is_found_by_store_time(
    served: Served, since: int, boundary: str | None, offset: str
) -> None:
    earliest = int(served.ext(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("orders", 1))["timestamp"])
    header = SearchOffsetHeader("orders", 1, earliest + since, boundary)
    assert served.ext(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header) == {"offset": offset}


def test_a_group_finds_the_offset_that_it_committed(served: Served) -> None:
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    header = QueryConsumerOffsetHeader("CG", "orders", 1)
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, header) == {"offset": "2"}


def test_a_group_that_committed_nothing_starts_at_zero_unless_it_says_otherwise(served: Served) -> None:
    new = QueryConsumerOffsetHeader("CG", "orders", 1)
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, new) == {"offset": "0"}
    strict = QueryConsumerOffsetHeader("CG", "orders", 1, set_zero_if_not_found=False)
    assert served.ask(RequestCode.QUERY_CONSUMER_OFFSET, strict).code == ResponseCode.QUERY_NOT_FOUND


def test_a_commit_for_an_unknown_topic_is_refused(served: Served) -> None:
    header = UpdateConsumerOffsetHeader("CG", "unknown", 1, 2)
    assert served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_message_is_shown_by_its_physical_offset(served: Served) -> None:
    physical = int(served.results[1].offset_message_id[16:], 16)
    reply = served.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(physical))
    (message,) = decode_messages(bytes(reply.body or b""))
    assert message.body == b"two"
    assert served.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(physical + 1)).code == 1
    assert served.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(1 << 40)).code == 1


def test_messages_are_found_by_key_and_by_the_id_that_their_producer_gave(served: Served) -> None:
    async def send() -> str:
        async with served.cluster.client() as client:
            producer = client.producer("PG")
            for number in range(3):
                result = await producer.send(
                    "orders", b"keyed %d" % number, queue_id=number, properties={"KEYS": "k1 k2"}
                )
            return result.message_ids[0]

    unique = served.cluster.run(send())
    served.world.run_for_ms(100)

    def query(key: str, count: int = 64, unique_key: bool | None = None) -> list[bytes]:
        header = QueryMessageHeader("orders", key, count, 0, 1 << 62, unique_key)
        assert served.ask(RequestCode.QUERY_MESSAGE, header, slave=True).code == ResponseCode.SYSTEM_BUSY
        reply = served.ask(RequestCode.QUERY_MESSAGE, header)
        assert int(reply.ext["indexLastUpdateTimestamp"]) > EPOCH_MS
        assert int(reply.ext["indexLastUpdatePhyoffset"]) > 0
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        return [message.body for message in decode_messages(bytes(reply.body or b""))]

    assert query("k1") == query("k2") == [b"keyed 2", b"keyed 1", b"keyed 0"]
    assert query("k1", 2) == [b"keyed 2", b"keyed 1"]
    assert query(unique, 1, True) == [b"keyed 2"]
    assert query("k3") == []


async def pull(client: Client, address: str, offset: int, queue_id: int = 1) -> RemotingCommand:
    ext = {
        "consumerGroup": "CG", "topic": "orders", "queueId": str(queue_id), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "5", "commitOffset": str(offset), "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return await client.remoting.call(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, ext))


def test_a_group_that_is_moved_hears_of_it_with_its_next_pull_and_commits_nothing_before(
    served: Served,
) -> None:
    served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("CG").encode())
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 3))
    reply = served.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetHeader("orders", "CG", 0))
    table = ResetOffsetBody.decode(reply.body).offset_table
    assert table == {MessageQueue("orders", "broker-a", queue_id): 0 for queue_id in range(4)}
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 3))
    query = QueryConsumerOffsetHeader("CG", "orders", 1)
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, query) == {"offset": "0"}

    async def go_on() -> None:
        address = served.master.address
        async with served.cluster.client() as client:
            told = await pull(client, address, 3)
            assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
            assert (told.ext["nextBeginOffset"], told.ext["minOffset"], told.ext["maxOffset"]) == (
                "0",
                "0",
                "3",
            )
            assert (await pull(client, address, 0)).code == 0

    served.cluster.run(go_on())
    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 2))
    assert served.ext(RequestCode.QUERY_CONSUMER_OFFSET, query) == {"offset": "2"}
    served.world.run_for_ms(2_000)
    assert served.slave.tables.offsets.find("CG", "orders", 1) == 2


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (ResetOffsetHeader("none", "CG", 0), ResponseCode.TOPIC_NOT_EXIST),
        (ResetOffsetHeader("orders", "none", 0), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (ResetOffsetHeader("orders", "CG", 0, queue_id=1, offset=4), ResponseCode.SYSTEM_ERROR),
        (ResetOffsetHeader("orders", "CG", 0, queue_id=4), ResponseCode.SYSTEM_ERROR),
        (ResetOffsetHeader("orders", "CG", 0, queue_id=1, offset=2), ResponseCode.SUCCESS),
        (ResetOffsetHeader("orders", "CG", -1, queue_id=1, offset=-1), ResponseCode.SUCCESS),
    ],
)
def test_a_move_to_nowhere_is_refused(served: Served, header: ResetOffsetHeader, code: int) -> None:
    served.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("CG").encode())
    assert served.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header).code == code
    assert served.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, slave=True).code == 1


def test_a_queue_is_listed_as_upstream_lists_it_and_a_topic_names_its_groups(served: Served) -> None:
    header = QueryConsumeQueueHeader("orders", 1, 1, 5, "CG")
    listed = served.json(RequestCode.QUERY_CONSUME_QUEUE, header)
    assert (listed["minQueueIndex"], listed["maxQueueIndex"]) == (0, 3)
    assert listed["filterData"] == "CG@orders is not online!"
    positions = [int(result.offset_message_id[16:], 16) for result in served.results[1:]]
    assert [entry["physicOffset"] for entry in listed["queueData"]] == positions
    assert set(listed["queueData"][0]) == {"eval", "physicOffset", "physicSize", "tagsCode"}
    assert listed["queueData"][0]["tagsCode"] == java_string_hash("two")
    nowhere = QueryConsumeQueueHeader("orders", 3, 0, 5, "CG")
    assert served.ask(RequestCode.QUERY_CONSUME_QUEUE, nowhere).code == ResponseCode.SYSTEM_ERROR

    served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("CG", "orders", 1, 3))
    groups = served.json(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader("orders"))
    assert groups == {"groupList": ["CG"]}


def test_settings_that_are_read_anew_change_while_the_broker_runs(served: Served) -> None:
    def change(text: str) -> tuple[int, str]:
        reply = served.ask(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
        return reply.code, reply.remark or ""

    settings = served.master.settings
    assert change("minInSyncReplicas=1\nlongPollingEnable=false\n")[0] == 0
    assert (settings.min_in_sync_replicas, settings.long_polling_enable) == (1, False)
    shown = bytes(served.ask(RequestCode.GET_BROKER_CONFIG).body or b"").decode()
    assert "minInSyncReplicas=1\n" in shown
    assert change("flushDiskType=ASYNC_FLUSH\n")[0] == 0, "as it is"
    code, remark = change("minInSyncReplicas=2\nlistenPort=1\n")
    assert (code, "listenPort" in remark) == (ResponseCode.NO_PERMISSION, True)
    assert change("minInSyncReplicas=none\n")[0] == ResponseCode.SYSTEM_ERROR
    assert change("noSuchKey=1\n")[0] == change("")[0] == 0, "passed over, as upstream does"
    assert settings.min_in_sync_replicas == 1


# -- topics


def test_a_topic_is_created_shown_counted_and_deleted(served: Served) -> None:
    header = CreateTopicHeader("fresh", "TBW102", 2, 3, 6, attributes="+k=v")
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0
    shown = TopicConfig.from_json(served.json(RequestCode.GET_TOPIC_CONFIG, TopicHeader("fresh")))
    assert (shown.read_queue_nums, shown.write_queue_nums, shown.attributes) == (2, 3, {"k": "v"})
    table = TopicConfigWrapper.from_json(served.json(RequestCode.GET_ALL_TOPIC_CONFIG))
    assert {"fresh", "orders", "TBW102"} <= set(table.topic_config_table)
    assert served.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("fresh")).code == 0
    assert served.ask(RequestCode.GET_TOPIC_CONFIG, TopicHeader("fresh")).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("name", ["", "bad/name", "x" * 128, "TBW102"])
def test_a_topic_with_an_impossible_name_is_refused(served: Served, name: str) -> None:
    header = CreateTopicHeader(name, "TBW102", 2, 3, 6)
    assert served.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == ResponseCode.INVALID_PARAMETER


def test_a_topics_statistics_count_its_messages(served: Served) -> None:
    reply = served.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("orders"))
    table = TopicStatsTable.decode(reply.body).offset_table
    queue = table[MessageQueue("orders", "broker-a", 1)]
    assert (len(table), queue.min_offset, queue.max_offset) == (4, 0, 3)
    assert queue.last_update_timestamp > EPOCH_MS
    assert (
        served.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("none")).code == ResponseCode.TOPIC_NOT_EXIST
    )


# -- groups and clients


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


def test_consumers_see_each_other_and_hear_of_newcomers(served: Served) -> None:
    async def scenario() -> tuple[list[str], list[int]]:
        address, told = served.master.address, []
        router = Router()
        router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda peer, command: told.append(command.code))
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
        return found["consumerIdList"], told

    members, told = served.cluster.run(scenario())
    assert members == ["c1", "c2"]
    assert len(told) == 3, "for c1, for c2, and when c2 left"
    served.world.run_for_ms(100)
    gone = served.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader("CG"))
    assert (gone.code, gone.remark) == (1, "no consumer for this group, CG")
    assert served.master.tables.topics.find("%RETRY%CG") is not None


# -- what slaves copy


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
    for code in (RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE):
        assert served.ask(code).code == 0


# -- the broker itself


def test_the_runtime_information_has_what_cluster_list_parses(served: Served) -> None:
    table = served.json(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["msgPutTotalTodayNow"] == "3"
    assert table["brokerVersionDesc"] == "V5_3_3"
    assert table["commitLogMaxOffset"] == str(served.master.store.max_offset())
    assert (table["confirmOffset"], table["ranContractA"]) == (table["commitLogMaxOffset"], "false")
    assert table["replicaId"] == "1", "the id in the identity file of the store, whatever its role"
    assert served.json(RequestCode.GET_BROKER_RUNTIME_INFO, slave=True)["table"]["replicaId"] == "2"
    for key in ("putTps", "getTransferredTps"):
        assert len([float(word) for word in table[key].split(" ")]) == 3
    for key in (
        "timerCongestNum",
        "sendThreadPoolQueueSize",
        "pageCacheLockTimeMills",
        "msgPutTotalYesterdayMorning",
    ):
        assert float(table[key]) == 0
    assert "brokerName=broker-a\n" in bytes(served.ask(RequestCode.GET_BROKER_CONFIG).body or b"").decode()


def test_the_master_says_where_it_serves_its_log_and_a_slave_does_not(served: Served) -> None:
    found = ExchangeHAInfoHeader.from_ext(served.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).ext)
    assert (found.master_ha_address, found.master_address) == (
        served.master.ha_address,
        served.master.address,
    )
    assert served.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, slave=True).code == ResponseCode.SYSTEM_ERROR
    push = ExchangeHAInfoHeader("10.9.9.9:1", 0, "10.9.9.9:2")
    assert served.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, push, slave=True).code == ResponseCode.SYSTEM_ERROR


def test_replication_and_epochs_are_shown_as_upstream_shows_them(served: Served) -> None:
    status = served.json(RequestCode.GET_BROKER_HA_STATUS)
    assert (status["master"], status["inSyncSlaveNums"], len(status["haConnectionInfo"])) == (True, 1, 1)
    assert served.json(RequestCode.GET_BROKER_HA_STATUS, slave=True)["master"] is False
    epochs = served.json(RequestCode.GET_BROKER_EPOCH_CACHE)
    end = served.master.store.max_offset()
    assert epochs == {
        "brokerId": 0, "brokerName": "broker-a", "clusterName": "DefaultCluster", "maxOffset": end,
        "epochList": [{"endOffset": 2**63 - 1, "epoch": 1, "startOffset": 0}],
    }  # fmt: skip
    assert served.json(RequestCode.GET_BROKER_EPOCH_CACHE, slave=True)["brokerId"] == 2


def test_a_slave_serves_readers_only_where_it_is_allowed_to() -> None:
    for allowed, code in ((True, 0), (False, ResponseCode.SYSTEM_BUSY)):
        with World(32) as world:
            cluster = Cluster(world, 2, slaveReadEnable=allowed)
            cluster.start_up()
            cluster.run(cluster.send_all([b"one"]))
            world.run_for_ms(1_000)
            slave = next(node for node in cluster.brokers if node is not cluster.master)
            ext = {
                "consumerGroup": "CG", "topic": "orders", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            }  # fmt: skip
            address = cluster.app(slave).address
            codes = {
                cluster.run(
                    cluster.ask(address, RequestCode.PULL_MESSAGE, ext | {"queueId": str(queue)})
                ).code
                for queue in range(4)
            }
            assert code in codes
            assert 0 in codes if allowed else codes == {ResponseCode.SYSTEM_BUSY}


def test_a_batch_gets_consecutive_offsets_and_its_members_their_own_ids(served: Served) -> None:
    async def scenario() -> list[tuple[int, bytes, str]]:
        async with served.cluster.client() as client:
            producer, consumer = client.producer("PG"), client.consumer("CG")
            batch = [OutgoingMessage(b"a", {"TAGS": "x"}), OutgoingMessage(b"b", {"TAGS": "y"})]
            result = await producer.send_batch("orders", batch, queue_id=2)
            assert len(result.offset_message_id.split(",")) == 2
            queue = (await consumer.queues("orders"))[2]
            found = await consumer.pull(queue, 0)
            assert [message.message_id for message in found.messages] == list(result.message_ids)
            return [(m.queue_offset, m.body, m.properties["TAGS"]) for m in found.messages]

    assert served.cluster.run(scenario()) == [(0, b"a", "x"), (1, b"b", "y")]
