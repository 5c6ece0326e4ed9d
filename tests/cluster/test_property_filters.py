"""SQL92 subscriptions: refusals, pulls, held pulls, consumerFilter.json, and failovers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest

from broker.clients import groups
from broker.clients.groups import ConsumerGroups
from broker.clients.subscription import property_filter
from broker.tables import consumerfilters
from broker.tables.consumerfilters import CONSUMER_FILTERS_FILE, KEPT_MS, SEEN_BEFORE_MS, ConsumerFilters
from messagestore.errors import RecordDamaged
from messagestore.messages import GetResult, GetStatus, PropertyFilter, QueueGrew
from mqclient.consumer import PullStatus
from remoting.bodies.heartbeats import (
    CheckClientConfigBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.groupset import GroupSet
from tests.support.doubles import ManualClock
from tests.support.pullbench import HOLD, Bench, Limits, ScriptedQueues, pull
from tests.support.recordingpeer import RecordingPeer

SQL = {"expressionType": "SQL92", "subscription": "n > 2"}
OF_HEARTBEAT = {"sysFlag": 0, "subVersion": 5}
PADDING = bytes(2_000)
"""Makes the messages of a set fill more than one segment."""
NOT_SUPPORTED = "The broker does not support consumer to filter message by SQL92"


def subscription(
    expression: str, *, version: int = 5, topic: str = "orders", kind: str = "SQL92"
) -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type=kind)


def heartbeat(*subscriptions: SubscriptionData) -> HeartbeatData:
    return HeartbeatData("c1", [], [ConsumerData("CG", subscription_data_set=[*subscriptions])])


class Properties(ScriptedQueues):
    """One queue of messages with property `n` and the same body; messages before `far` are only on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.far = 0
        self.damaged = False

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: Any = None
    ) -> GetResult:
        raise AssertionError("not by tags")

    def get_matching(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: PropertyFilter
    ) -> GetResult:
        if offset < self.far:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, 0, len(self.numbers), cold=True)
        return self._found(offset, wanted)

    async def read_matching(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, wanted: PropertyFilter
    ) -> GetResult:
        if self.damaged:
            raise RecordDamaged("00000000000000000000", 800, "the body has another CRC")
        return self._found(offset, wanted)

    def _found(self, offset: int, wanted: PropertyFilter) -> GetResult:
        end = len(self.numbers)
        if offset == end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, end, 0, end)
        seen = [b"%d" % number for number in self.numbers[offset:]]
        found = [memoryview(each) for each in seen if wanted(b"n\x01%s\x02" % each)]
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, end, 0, end, len(found), 0, [], found)


def bench(*, enabled: bool = True, subscribed: SubscriptionData | None = None) -> Bench:
    made = Bench(queues=Properties(), limits=Limits(enable_property_filter=enabled))
    if subscribed is not None:
        made.consumers.heartbeat(cast(Any, made.peer), heartbeat(subscribed), "JAVA", 479)
    return made


@pytest.mark.parametrize(
    ("enabled", "fields", "subscribed", "code"),
    [
        (False, SQL, None, ResponseCode.SYSTEM_ERROR),
        (False, SQL | {"subscription": "n >"}, None, ResponseCode.SYSTEM_ERROR),
        (False, OF_HEARTBEAT, subscription("n > 2"), ResponseCode.SYSTEM_ERROR),
        (False, OF_HEARTBEAT, subscription("n >"), ResponseCode.FILTER_DATA_NOT_EXIST),
        (True, SQL | {"subscription": "n >"}, None, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (True, SQL | {"subscription": ""}, None, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (True, SQL | {"expressionType": "SQL"}, None, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (True, OF_HEARTBEAT, None, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (True, OF_HEARTBEAT, subscription("n >"), ResponseCode.FILTER_DATA_NOT_EXIST),
        (True, OF_HEARTBEAT, subscription("n > 2", kind="SQL"), ResponseCode.FILTER_DATA_NOT_EXIST),
        (True, OF_HEARTBEAT, subscription("n > 2", version=4), ResponseCode.SUBSCRIPTION_NOT_LATEST),
    ],
)  # fmt: skip
def test_invalid_or_disabled_filters_are_refused_as_upstream_does(
    enabled: bool, fields: dict[str, Any], subscribed: SubscriptionData | None, code: int
) -> None:
    reply = bench(enabled=enabled, subscribed=subscribed).pull(**fields)
    assert reply is not None and reply.code == code
    if code == ResponseCode.SYSTEM_ERROR:
        assert reply.remark == NOT_SUPPORTED


@pytest.mark.parametrize("fields", [SQL, OF_HEARTBEAT])
def test_matching_messages_are_returned_and_the_others_skipped(fields: dict[str, Any]) -> None:
    made = bench(subscribed=subscription("n > 2"))
    made.queues.numbers = [1, 3, 2, 5]
    reply = made.pull(**fields)
    assert reply is not None and (reply.code, reply.body, reply.ext["nextBeginOffset"]) == (0, b"35", "4")
    made.queues.numbers = [1, 2]
    nothing = made.pull(**fields)
    assert nothing is not None
    assert (nothing.code, nothing.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")


def test_a_held_pull_is_woken_by_matching_messages_only() -> None:
    made = bench()
    assert made.pull(**SQL, **HOLD) is None
    made.queues.numbers = [1, 2]
    made.processor.arrived([QueueGrew("orders", 0, 2)])
    assert made.peer.replies == []
    made.queues.numbers += [7]
    made.processor.arrived([QueueGrew("orders", 0, 3)])
    assert [bytes(reply.body or b"") for reply in made.peer.replies] == [b"7"]


def test_an_expired_filtered_pull_returns_the_offset_behind_the_skipped_messages() -> None:
    made = bench()
    assert made.pull(**SQL, **HOLD) is None
    made.queues.numbers = [1, 2]
    made.processor.arrived([QueueGrew("orders", 0, 2)])
    made.processor.expire(made.clock.monotonic_ms() + 15_000)
    (reply,) = made.peer.replies
    assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")


class CountedProperties(Properties):
    """Records the offsets of reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def get_matching(self, topic: str, queue_id: int, offset: int, *more: Any) -> GetResult:
        self.reads.append(offset)
        return super().get_matching(topic, queue_id, offset, *more)


def test_the_queue_is_read_once_for_unmatched_held_pulls_with_the_same_expression() -> None:
    queues = CountedProperties()
    made = Bench(queues=queues, limits=Limits(enable_property_filter=True))
    for expression in ("n > 2", "n > 2", "n > 1", "n > 2"):
        assert made.pull(**SQL | {"subscription": expression}, **HOLD) is None
    queues.numbers = [1]
    assert made.pull(**SQL, **HOLD, queueOffset=1) is None, "it waits behind the next message"
    queues.reads.clear()
    made.processor.arrived([QueueGrew("orders", 0, 1)])
    assert queues.reads == [0, 0], "one read for each expression"
    queues.reads.clear()
    queues.numbers = [1, 2]
    made.processor.arrived([QueueGrew("orders", 0, 2)])
    assert queues.reads == [1, 1]
    assert [bytes(reply.body or b"") for reply in made.peer.replies] == [b"2"]
    queues.numbers = [1, 2, 3]
    made.processor.arrived([QueueGrew("orders", 0, 3)])
    assert [bytes(reply.body or b"") for reply in made.peer.replies] == [b"2", *[b"3"] * 4]


def answered_late(made: Bench, **fields: Any) -> RemotingCommand:
    answer = made.processor.handle(cast(Any, made.peer), pull(**SQL, **fields))
    assert answer is not None and not isinstance(answer, RemotingCommand)
    asyncio.run(answer)
    (reply,) = made.peer.replies
    return reply


def test_cold_messages_are_read_from_disk_before_a_filtered_pull_is_answered() -> None:
    made = bench()
    made.queues.numbers, made.queues.far = [1, 3], 2
    reply = answered_late(made, **HOLD)
    assert (reply.code, bytes(reply.body or b"")) == (0, b"3")


def test_a_damaged_message_is_an_error_and_not_skipped_by_a_filter() -> None:
    made = bench()
    made.queues.numbers, made.queues.far, made.queues.damaged = [1], 1, True
    assert answered_late(made).code == ResponseCode.SYSTEM_ERROR


def test_a_broker_that_stops_serving_during_a_cold_read_answers_busy() -> None:
    made = bench()
    made.queues.numbers, made.queues.far = [3], 1
    answer = made.processor.handle(cast(Any, made.peer), pull(**SQL))
    made.role.serves_reads = False
    assert answer is not None and not isinstance(answer, RemotingCommand)
    asyncio.run(answer)
    assert [reply.code for reply in made.peer.replies] == [ResponseCode.SYSTEM_BUSY]


# -- consumerFilter.json


def filters(clock: ManualClock | None = None) -> ConsumerFilters:
    return ConsumerFilters(clock or ManualClock(), lambda: None)


def kept(table: ConsumerFilters) -> Any:
    return orjson.loads(table.encode())["filterDataByTopic"]


def test_a_filter_is_stored_in_upstreams_format() -> None:
    clock = ManualClock()
    table = filters(clock)
    table.register(
        "GroupA", [subscription("a > 5", topic="TopicA", version=1234), subscription("*", kind="TAG")]
    )
    assert kept(table) == {
        "TopicA": {
            "groupFilterData": {
                "GroupA": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": [29, 107, 11]},
                    "bornTime": clock.now_ms(), "clientVersion": 1234, "consumerGroup": "GroupA", "dead": False, "deadTime": 0,
                    "expression": "a > 5", "expressionType": "SQL92", "topic": "TopicA",
                }
            },
            "topic": "TopicA",
        }
    }  # fmt: skip


def test_a_filter_is_dead_without_its_group_or_subscription_and_revives_with_it() -> None:
    clock = ManualClock()
    table = filters(clock)
    first, second = subscription("a > 1"), subscription("b > 1", topic="bills")
    table.register("CG", [first, second])
    table.register("CG", [first])
    assert [table.find("CG", topic).dead_time for topic in ("orders", "bills")] == [0, clock.now_ms()]
    table.unregister("CG")
    assert table.find("CG", "orders").dead_time == clock.now_ms()
    table.register("CG", [subscription("a > 1", version=4)])
    found = table.find("CG", "orders")
    assert (found.dead_time, found.client_version) == (0, 4), "the clock of its client was set back"
    table.register("CG", [first])
    born = table.find("CG", "orders").born_time
    clock.ms += 1_000
    table.register("CG", [subscription("a > 1", version=6)])
    assert table.find("CG", "orders").born_time == born, "the same expression"
    table.register("CG", [subscription("a > 2", version=7)])
    assert table.find("CG", "orders").born_time == born + 1_000
    table.unregister("CG")
    clock.ms += KEPT_MS - 1
    assert list(kept(table)) == ["orders"], "the other filter expired a second before"
    clock.ms += 1
    assert kept(table) == {}


def test_filters_loaded_at_the_start_count_as_dead() -> None:
    clock = ManualClock()
    table = filters(clock)
    table.register("CG", [subscription("a > 1")])
    clock.ms += 500_000
    again = filters(clock)
    again.decode(table.encode())
    assert again.find("CG", "orders").dead_time == clock.now_ms() - SEEN_BEFORE_MS
    with pytest.raises(BodyError):
        again.decode(b"{")


def test_the_filter_table_is_bounded_and_each_change_is_notified_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[int] = []
    table = ConsumerFilters(ManualClock(), lambda: changes.append(1))
    monkeypatch.setattr(consumerfilters, "CHARACTERS_MAX", consumerfilters.FILTER_CHARACTERS + 30)
    table.register("CG", [subscription("a > 1")])
    table.register("CG", [subscription("a > 1")])
    assert len(changes) == 1
    table.register("CG2", [subscription("a > 1 AND b > 2 AND c > 3")])
    assert table.find("CG2", "orders") is None and len(changes) == 1
    table.register("CG", [subscription("a > 22", version=6)])
    assert table.find("CG", "orders").expression == "a > 22"


def test_many_short_filters_are_bounded_and_a_heartbeat_reads_its_own_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = ConsumerFilters(ManualClock(), lambda: None)
    monkeypatch.setattr(consumerfilters, "CHARACTERS_MAX", 10 * consumerfilters.FILTER_CHARACTERS)
    for number in range(50):
        table.register(f"G{number}", [subscription("a")])
    again = filters(ManualClock())
    again.decode(table.encode())
    assert len(orjson.loads(again.encode())["filterDataByTopic"]["orders"]["groupFilterData"]) == 9
    monkeypatch.setattr(
        table, "_all", lambda: pytest.fail("a heartbeat must not scan the filters of other groups")
    )
    table.register("G1", [subscription("b", topic="others")])
    assert table.find("G1", "orders").dead_time and not table.find("G2", "orders").dead_time


def test_expressions_are_compiled_for_pulls_and_not_for_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heartbeat has room for 500 expressions of 250 conditions, whose compilation took 5 s."""
    made: list[str] = []

    def compiled(expression: str, expression_type: str) -> PropertyFilter:
        made.append(expression)
        return property_filter(expression, expression_type)

    monkeypatch.setattr(groups, "property_filter", compiled)
    consumers, peer = ConsumerGroups(), RecordingPeer()
    wanted = [subscription(f"n > {number}", topic=f"T{number}") for number in range(100)]
    consumers.heartbeat(cast(Any, peer), heartbeat(*wanted, subscription("n >", topic="bad")), "JAVA", 479)
    assert made == []
    found, bad = consumers.subscription("CG", "T7"), consumers.subscription("CG", "bad")
    assert found is not None and bad is not None
    assert found.matching() is not None and bad.matching() is None
    assert made == ["n > 7", "n >"]


def test_filters_of_a_group_without_clients_are_dead() -> None:
    clock = ManualClock()
    table = filters(clock)
    consumers, peer = ConsumerGroups(table), RecordingPeer()
    consumers.heartbeat(cast(Any, peer), heartbeat(subscription("a > 1")), "JAVA", 479)
    assert table.find("CG", "orders").dead_time == 0
    clock.ms += 77
    consumers.disconnected(cast(Any, peer))
    assert table.find("CG", "orders").dead_time == 77 + table.find("CG", "orders").born_time


# -- a set


def under_controllers(world: World) -> Cluster:
    return Cluster(world, 3, enablePropertyFilter=True)


def in_raft_mode(world: World) -> Cluster:
    return GroupSet(world, enablePropertyFilter=True)


def whole_again(cluster: Cluster, members: int) -> None:
    if isinstance(cluster, GroupSet):
        cluster.wait_for_master()
    else:
        cluster.wait_in_sync(members)


@pytest.mark.parametrize("made", [under_controllers, in_raft_mode])
def test_a_set_filters_by_properties_across_a_failover_and_keeps_the_filters(
    made: Callable[[World], Cluster],
) -> None:
    with World(5) as world:
        cluster = made(world)
        cluster.start_up()

        async def check(kind: str, expression: str) -> tuple[int, str]:
            body = CheckClientConfigBody("c1", "CG", subscription(expression, kind=kind)).encode()
            reply = await cluster.ask(
                cluster.app(cluster.master).address, RequestCode.CHECK_CLIENT_CONFIG, None, body
            )
            return reply.code, reply.remark or ""

        assert cluster.run(check("SQL92", "n > 2")) == (0, "")
        assert cluster.run(check("TAG", "A || B")) == (0, "")
        code, remark = cluster.run(check("SQL92", "n > > 2"))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "line 1, column 5" in remark

        async def send(numbers: list[int]) -> None:
            async with cluster.client() as client:
                producer = client.producer("PG")
                for n in numbers:
                    await producer.send("orders", b"%d " % n + PADDING, queue_id=1, properties={"n": str(n)})

        async def read(expression: str, offset: int = 0) -> list[bytes]:
            found: list[bytes] = []
            async with cluster.client() as client:
                consumer = client.consumer("CG")
                (queue,) = [each for each in await consumer.queues("orders") if each.queue_id == 1]
                while True:
                    result = await consumer.pull(queue, offset, sql=expression)
                    if result.status is PullStatus.NO_NEW_MESSAGE:
                        return found
                    found += [message.body.removesuffix(PADDING).strip() for message in result.messages]
                    offset = result.next_offset

        async def introduce() -> None:
            async with cluster.client() as client:
                for node in cluster.brokers:
                    command = RemotingCommand.request(
                        RequestCode.HEART_BEAT, body=heartbeat(subscription("n > 2")).encode()
                    )
                    reply = await client.remoting.call(cluster.app(node).address, command)
                    assert reply.code == 0
                await asyncio.sleep(6)

        cluster.run(send([1, 2, 3, *[0] * 40, 4]))
        assert cluster.run(read("n > 2")) == [b"3", b"4"]
        cluster.run(introduce())
        cluster.master.kill()
        whole_again(cluster, 2)
        cluster.run(send([5, 2]))
        assert cluster.run(read("n > 2")) == [b"3", b"4", b"5"]
        kept_by = cluster.app(cluster.master).tables.filters.find("CG", "orders")
        assert kept_by is not None and kept_by.expression == "n > 2"
        node = next(each for each in cluster.brokers if each.app is None)
        cluster.start(node)
        whole_again(cluster, 3)
        again = cluster.app(node).tables.filters.find("CG", "orders")
        assert again is not None and again.dead_time >= again.born_time > 0, "the filter comes from its file"


def test_a_set_with_filters_disabled_refuses_them_with_upstreams_remark() -> None:
    with World(6) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        body = CheckClientConfigBody("c1", "CG", subscription("n > 2")).encode()
        asked = cluster.ask(cluster.app(cluster.master).address, RequestCode.CHECK_CLIENT_CONFIG, None, body)
        reply = cluster.run(asked)
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, NOT_SUPPORTED)


def test_filters_enabled_later_are_merged_with_the_stored_ones() -> None:
    with World(6) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1, enablePropertyFilter=True)
        cluster.start_up()
        (node,) = cluster.brokers
        cluster.app(node).tables.filters.register("before", [subscription("n > 1")])
        cluster.run(cluster.app(node).tables.save())
        before = node.disk.content(CONSUMER_FILTERS_FILE)
        node.kill()
        cluster.start(node, enablePropertyFilter=False)
        cluster.wait_in_sync(1, 30_000)
        tables = cluster.app(node).tables
        tables.filters.register("after", [subscription("n > 2")])
        cluster.run(tables.save())
        assert node.disk.content(CONSUMER_FILTERS_FILE) == before, (
            "the file was not read, so it is not written"
        )

        def turn_on(more: bytes = b"") -> RemotingCommand:
            text = b"enablePropertyFilter=true\n" + more
            address = cluster.app(node).address
            reply: RemotingCommand = cluster.run(
                cluster.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, text)
            )
            return reply

        node.disk.put(CONSUMER_FILTERS_FILE, b"no JSON")
        refused = turn_on(b"minInSyncReplicas=2\nautoCreateTopicEnable=false\n")
        assert refused.code == ResponseCode.SYSTEM_ERROR and CONSUMER_FILTERS_FILE in (refused.remark or "")
        settings = cluster.app(node).settings
        assert not settings.enable_property_filter
        assert (settings.min_in_sync_replicas, settings.auto_create_topic_enable) == (1, True)
        assert before is not None
        node.disk.put(CONSUMER_FILTERS_FILE, before)
        assert turn_on().code == 0
        assert [tables.filters.find(group, "orders") is None for group in ("before", "after")] == [False] * 2
        cluster.run(tables.save())
        content = node.disk.content(CONSUMER_FILTERS_FILE) or b""
        assert b'"before"' in content and b'"after"' in content
