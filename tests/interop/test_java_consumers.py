"""Common ways to consume with the public Java client 5.3.3, against our cluster in real processes.

java/Consumers.java and java/Refusals.java document each line."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from localcluster.waiting import NotYet, wait_for
from mqclient import Client, StoredMessage
from remoting.codes import ResponseCode
from scripts.peers.javapeer import missing
from scripts.peers.waits import WAIT_MS
from tests.interop.javaclient import JavaClient
from tests.interop.slavereads import all_know, reads_old_messages_from_a_slave_and_new_ones_from_the_master

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

QUEUES = 4
NO_RETRIES_ASKED = -1
POP_MESSAGE, ACK_MESSAGE, CHANGE_INVISIBLE_TIME = 200_050, 200_051, 200_053


def create_topic(java: JavaClient, cluster: Cluster, topic: str) -> None:
    options = ("-c", CLUSTER_NAME, "-t", topic, "-r", QUEUES, "-w", QUEUES)
    assert "success" in java.admin("updateTopic", "-n", cluster.layout.namesrv, *options)


def master_address(cluster: Cluster) -> str:
    address = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS)).master_address
    assert address is not None
    return address


def consume(
    java: JavaClient,
    name: str,
    topic: str,
    group: str,
    *,
    model: str = "CLUSTERING",
    tags: str = "*",
    fails: int = 0,
    retries_max: int = NO_RETRIES_ASKED,
) -> None:
    java.ask("consume", name, topic, group, model, tags, fails, retries_max)


def send(java: JavaClient, topic: str, count: int, *, tag: str = "Tag") -> None:
    assert java.ask("sync", topic, count, 100, tag) == {"acked": count, "failed": 0}


def acked(java: JavaClient, topic: str) -> list[int]:
    """The keys of all messages that were acknowledged, in order."""
    return sorted(java.ask("acked", topic)["keys"])


def stored(java: JavaClient, cluster: Cluster, topic: str) -> int:
    """The number of messages in the topic: more than were acknowledged if a master was killed meanwhile."""
    status = java.admin("topicStatus", "-n", cluster.layout.namesrv, "-t", topic)
    rows = [line.split() for line in status.splitlines()]
    return sum(int(row[3]) - int(row[2]) for row in rows if row and row[0] == BROKER_SET)


def elect_another(java: JavaClient, cluster: Cluster) -> str:
    """Elects a slave; returns its address."""
    before = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    chosen = next(replica for replica in before.in_sync if replica.broker_id != before.master_id)
    where = ("-a", cluster.layout.address("controller-0"), "-b", chosen.broker_id)
    java.admin("electMaster", *where, "-bn", BROKER_SET, "-c", CLUSTER_NAME)
    return str(chosen.address)


def once(*consumed: dict[str, Any]) -> list[int]:
    """The keys that these consumers have consumed, in order and with repetitions."""
    return sorted(key for each in consumed for key in each["keys"])


def test_two_consumers_of_a_group_share_the_queues_and_the_messages(
    java: JavaClient, cluster: Cluster
) -> None:
    create_topic(java, cluster, "Shared")
    consume(java, "one", "Shared", "InteropShared")
    assert java.ask("assigned", "one", QUEUES) == {"queues": QUEUES}
    consume(java, "two", "Shared", "InteropShared")
    assert java.ask("assigned", "one", QUEUES // 2) == {"queues": QUEUES // 2}
    assert java.ask("assigned", "two", QUEUES // 2) == {"queues": QUEUES // 2}
    send(java, "Shared", 100)
    half = java.ask("seen", "one", 50)
    assert once(half, java.ask("seen", "two", 50)) == acked(java, "Shared")
    first = java.ask("close", "one")
    assert java.ask("assigned", "two", QUEUES) == {"queues": QUEUES}
    send(java, "Shared", 20)
    java.ask("seen", "two", 70)
    assert once(first, java.ask("close", "two")) == acked(java, "Shared")


def test_every_consumer_of_a_broadcast_gets_every_message(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "Broadcast")
    for name in ("left", "right"):
        consume(java, name, "Broadcast", "InteropBroadcast", model="BROADCASTING")
    send(java, "Broadcast", 40)
    for name in ("left", "right"):
        java.ask("seen", name, 40)
        assert once(java.ask("close", name)) == acked(java, "Broadcast")


def test_a_consumer_gets_the_tags_that_it_subscribed_to(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "Tagged")
    consume(java, "tags", "Tagged", "InteropTags", tags="TagA||TagB")
    for tag in ("TagA", "TagC", "TagB"):
        assert java.ask("batch", "Tagged", 10, 100, tag) == {"acked": 10, "failed": 0}
        assert java.ask("oneway", "Tagged", 10, 100, tag) == {"acked": 10, "failed": 0}
        assert java.ask("async", "Tagged", 10, 100, tag) == {"acked": 10, "failed": 0}
    java.ask("seen", "tags", 60)
    assert java.ask("close", "tags")["tags"] == {"TagA": 30, "TagB": 30}


def test_a_consumer_with_a_sql_filter_gets_matching_messages_and_retries(
    java: JavaClient, cluster: Cluster
) -> None:
    create_topic(java, cluster, "Chosen")
    send(java, "Chosen", 20)
    middle = acked(java, "Chosen")[10]
    consume(java, "sql", "Chosen", "InteropSql", tags=f"sql:(number>={middle})AND(TAGS<>'TagB')", fails=1)
    send(java, "Chosen", 10, tag="TagB")
    send(java, "Chosen", 10, tag="TagC")
    java.ask("seen", "sql", 20)
    consumed = java.ask("close", "sql")
    assert once(consumed) == acked(java, "Chosen")[10:20] + acked(java, "Chosen")[30:]
    assert Counter(consumed["tries"].values()) == {2: 20}


def test_a_message_that_a_listener_rejects_is_redelivered_until_consumed(
    java: JavaClient, cluster: Cluster
) -> None:
    create_topic(java, cluster, "Retried")
    consume(java, "retrying", "Retried", "InteropRetry", fails=1)
    send(java, "Retried", 10)
    java.ask("seen", "retrying", 10)
    consumed = java.ask("close", "retrying")
    assert once(consumed) == acked(java, "Retried")
    assert Counter(consumed["tries"].values()) == {2: 10}


def test_a_message_that_fails_all_retries_becomes_a_dead_letter(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "Hopeless")
    consume(java, "hopeless", "Hopeless", "InteropHopeless", fails=99, retries_max=1)
    send(java, "Hopeless", 5)
    assert java.ask("exists", "%DLQ%InteropHopeless") == {"exists": True}
    consume(java, "undertaker", "%DLQ%InteropHopeless", "InteropUndertaker")
    java.ask("seen", "undertaker", 5)
    assert once(java.ask("close", "undertaker")) == acked(java, "Hopeless")
    failed = java.ask("close", "hopeless")
    assert failed["keys"] == [] and Counter(failed["tries"].values()) == {2: 5}


def test_a_lite_pull_consumer_continues_at_its_committed_offset(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "LitePulled")
    send(java, "LitePulled", 30)
    before = java.ask("litepull", "LitePulled", "InteropLitePull", 30)
    assert once(before) == acked(java, "LitePulled")
    send(java, "LitePulled", 5)
    after = java.ask("litepull", "LitePulled", "InteropLitePull", 5)
    assert once(before, after) == acked(java, "LitePulled")


def test_messages_are_found_by_their_ids_and_their_key(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "LookedUp")
    assert java.ask("lookup", "LookedUp") == {"offset id": True, "unique id": True, "key": True}


def test_a_consumer_reads_old_messages_from_a_slave_and_new_ones_from_the_master(
    java: JavaClient, cluster: Cluster
) -> None:
    reads_old_messages_from_a_slave_and_new_ones_from_the_master(java, cluster, "FarBack")


def test_orderly_consumers_keep_order_through_a_hand_over_and_a_killed_master(
    java: JavaClient, cluster: Cluster
) -> None:
    create_topic(java, cluster, "Ordered")
    java.ask("order", "first", "Ordered", "InteropOrdered", 1)
    assert java.ask("assigned", "first", QUEUES) == {"queues": QUEUES}
    send(java, "Ordered", 40)
    java.ask("ordered", "Ordered", 40)
    java.ask("order", "second", "Ordered", "InteropOrdered", 0)
    assert java.ask("assigned", "second", QUEUES // 2) == {"queues": QUEUES // 2}
    java.ask("stream", "Ordered")
    java.ask("await", 50)
    chosen = elect_another(java, cluster)
    java.ask("await", 50)
    assert master_address(cluster) == chosen
    java.ask("await", 50)
    master = cluster.layout.name_of(chosen)
    assert master is not None
    cluster.kill([master])
    java.ask("await", 50)
    cluster.start([master])
    sent = java.ask("finish")
    master_address(cluster)
    java.ask("ordered", "Ordered", stored(java, cluster, "Ordered"))
    second = java.ask("close", "second")
    assert java.ask("assigned", "first", QUEUES) == {"queues": QUEUES}
    send(java, "Ordered", 20)
    taken = java.ask("ordered", "Ordered", stored(java, cluster, "Ordered"))
    first = java.ask("close", "first")
    assert taken["overlaps"] == 0
    for offsets in taken["offsets"].values():
        assert list(dict.fromkeys(offsets)) == sorted(
            set(offsets)
        )  # repeated ones were consumed in order before
    assert set(acked(java, "Ordered")) <= {*first["keys"], *second["keys"]}
    assert sent["given up"] == []


def test_unsupported_requests_are_refused_with_a_code(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "Refused")
    address = master_address(cluster)

    def code(*words: object) -> ResponseCode:
        return ResponseCode(java.ask(*words)["code"])

    assert code("sql92", "Refused", "number>>1") is ResponseCode.SUBSCRIPTION_PARSE_FAILED
    for request in (POP_MESSAGE, ACK_MESSAGE, CHANGE_INVISIBLE_TIME):
        assert code("request", request, address) is ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    send(java, "Refused", 5)
    assert java.ask("pull", "Refused")["read"] == 5


def test_a_group_continues_at_its_offsets_on_the_next_master(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "GoneOn")
    consume(java, "before", "GoneOn", "InteropGoneOn")
    send(java, "GoneOn", 40)
    java.ask("seen", "before", 40)
    first = java.ask("close", "before")
    asyncio.run(all_know(cluster, "InteropGoneOn", "GoneOn", 40))
    killed = cluster.layout.name_of(master_address(cluster))
    assert killed is not None
    cluster.kill([killed])
    asyncio.run(cluster.wait_in_sync(2, timeout_ms=WAIT_MS))
    java.ask("stream", "GoneOn")
    java.ask("await", 10)
    assert java.ask("finish")["given up"] == []
    consume(java, "after", "GoneOn", "InteropGoneOn")
    java.ask("seen", "after", len(acked(java, "GoneOn")) - 40)
    assert once(first, java.ask("close", "after")) == acked(java, "GoneOn")
    cluster.start([killed])
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


# The tests below elect masters. For half a minute a former master then asks its successor for offsets, so
# `all_know` does not show its own table.


def test_consumers_with_broker_side_assignment_share_the_queues(java: JavaClient, cluster: Cluster) -> None:
    create_topic(java, cluster, "Assigned")
    for name in ("assigned", "another"):
        java.ask("assign", name, "Assigned", "InteropAssigned")
    for name in ("assigned", "another"):
        assert java.ask("assigned", name, QUEUES // 2) == {"queues": QUEUES // 2}
    send(java, "Assigned", 40)
    half = java.ask("seen", "assigned", 20)
    assert once(half, java.ask("seen", "another", 20)) == acked(java, "Assigned")
    java.ask("close", "assigned")
    java.ask("close", "another")


async def traces_of(cluster: Cluster, topic: str, wanted: set[str], events: int) -> list[StoredMessage]:
    """Waits for `events` trace events; only the messages `wanted` are traced in `topic`."""

    async def all_events() -> list[StoredMessage]:
        found: list[StoredMessage] = []
        consumer = client.consumer("InteropTraceReader")
        for queue in await consumer.queues(topic):
            start, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            found += [message async for message in consumer.read(queue, start, end, patience_ms=WAIT_MS)]
        lines = [line for message in found for line in message.plain_body().decode().split("\x02") if line]
        if len(lines) < events:
            raise NotYet(f"{len(lines)} of {events} events in {topic}")
        assert {key for message in found for key in message.properties["KEYS"].split(" ")} >= wanted
        return found

    async with Client(cluster.layout.namesrv) as client:
        return await wait_for(f"traces in {topic}", all_events, WAIT_MS)


def test_java_clients_write_message_traces(java: JavaClient, cluster: Cluster) -> None:
    """In the system trace topic and in a custom one: one event for send, before and after consumption."""
    create_topic(java, cluster, "OwnTraces")
    for group, own in (("InteropTraced", ()), ("InteropOwnTraces", ("OwnTraces",))):
        create_topic(java, cluster, group)
        ids = java.ask("traced", group, group, 3, *own)["ids"]
        found = asyncio.run(traces_of(cluster, (*own, "RMQ_SYS_TRACE_TOPIC")[0], set(ids), 9))
        java.ask("untraced", group)
        lines = [line for each in found for line in each.plain_body().decode().split("\x02") if line]
        kinds = Counter(line.split("\x01")[0] for line in lines)
        assert kinds == {"Pub": 3, "SubBefore": 3, "SubAfter": 3}
        assert {line.split("\x01")[5] for line in lines if line.startswith("Pub")} == set(ids)


def test_a_group_reset_while_it_consumes_continues_there_under_the_next_master(
    java: JavaClient, cluster: Cluster
) -> None:
    create_topic(java, cluster, "Moved")
    consume(java, "moved", "Moved", "InteropMoved")
    send(java, "Moved", 20)
    java.ask("seen", "moved", 20)
    asyncio.run(all_know(cluster, "InteropMoved", "Moved", 20))
    where = ("-n", cluster.layout.namesrv, "-g", "InteropMoved", "-t", "Moved")
    assert "broker-a" in java.admin("resetOffsetByTime", *where, "-s", 0)
    elect_another(java, cluster)
    java.ask("seen", "moved", 40)
    again = java.ask("close", "moved")
    assert Counter(again["keys"]) == dict.fromkeys(acked(java, "Moved"), 2)
    asyncio.run(all_know(cluster, "InteropMoved", "Moved", 20))


def test_request_reply_works_through_a_master_unknown_to_the_requester(
    java: JavaClient, cluster: Cluster
) -> None:
    create_topic(java, cluster, "Asked")
    java.ask("answer", "Asked", "InteropAnswer")
    assert java.ask("askings", "Asked", 20) == {"answered": 20}
    assert java.ask("forsaken", "Asked") == {"code": ResponseCode.SYSTEM_ERROR}
    elect_another(java, cluster)
    assert java.ask("askings", "Asked", 20) == {"answered": 20}
    assert java.ask("silent") == {"refused": 0}
