"""A Java push consumer that reads old messages from a slave, and then new ones from the master.

While accessMessageInMemoryMaxRatio is 0, which is set at run time, all messages count as old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from localcluster.cluster import Cluster
from localcluster.layout import CLUSTER_NAME
from localcluster.waiting import NotYet, wait_for
from mqruntime.clock import SystemClock
from remoting.bodies.routes import KVTable
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import QueryConsumerOffsetHeader
from scripts.peers.waits import WAIT_MS
from tests.interop.javaclient import JavaClient

T = TypeVar("T")

QUEUES = 4
OLD = 640
"""A pull returns 32, and the master serves the first ones of each queue."""
NEW = 40


def reads_old_messages_from_a_slave_and_new_ones_from_the_master(
    java: JavaClient, cluster: Cluster, topic: str
) -> None:
    """No message is lost or repeated, also by a later consumer. Restores the settings."""
    namesrv, group = cluster.layout.namesrv, f"Group{topic}"
    options = ("-c", CLUSTER_NAME, "-t", topic, "-r", QUEUES, "-w", QUEUES)
    assert "success" in java.admin("updateTopic", "-n", namesrv, *options)
    assert java.ask("batch", topic, OLD, 100) == {"acked": OLD, "failed": 0}
    asyncio.run(no_former_master(cluster))
    set_on_brokers(java, cluster, slaveReadEnable="true", accessMessageInMemoryMaxRatio="0")
    before = found(cluster)
    java.ask("consume", "far", topic, group, "CLUSTERING", "*", 0, -1)
    java.ask("seen", "far", OLD)
    middle = found(cluster)
    master = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS)).master_address
    at_master = middle[master or ""] - before[master or ""]
    at_slaves = sum(middle.values()) - sum(before.values()) - at_master
    assert (at_master + at_slaves, at_slaves >= OLD // 2) == (OLD, True), f"{before} and then {middle}"
    set_on_brokers(java, cluster, accessMessageInMemoryMaxRatio="40")
    assert java.ask("sync", topic, NEW, 100) == {"acked": NEW, "failed": 0}
    java.ask("seen", "far", OLD + NEW)
    first = java.ask("close", "far")
    after = found(cluster)
    assert {name: after[name] - middle[name] for name in after} == {
        name: NEW if name == master else 0 for name in after
    }
    asyncio.run(all_know(cluster, group, topic, OLD + NEW))
    java.ask("consume", "behind", topic, group, "CLUSTERING", "*", 0, -1)
    assert java.ask("sync", topic, NEW, 100) == {"acked": NEW, "failed": 0}
    java.ask("seen", "behind", NEW)
    taken = [*first["keys"], *java.ask("close", "behind")["keys"]]
    assert sorted(taken) == sorted(java.ask("acked", topic)["keys"])
    set_on_brokers(java, cluster, slaveReadEnable="false")


def set_on_brokers(java: JavaClient, cluster: Cluster, **settings: str) -> None:
    for name in cluster.layout.broker_names:
        for key, value in settings.items():
            address = cluster.layout.address(name)
            options = ("-n", cluster.layout.namesrv, "-b", address, "-k", key, "-v", value)
            assert "success" in java.admin("updateBrokerConfig", *options)


def found(cluster: Cluster) -> dict[str, int]:
    """The number of messages that each broker has served, by its address."""

    async def asked(client: RemotingClient) -> dict[str, int]:
        addresses = [cluster.layout.address(name) for name in cluster.layout.broker_names]
        return {
            address: int((await runtime(client, address))["msgGetTotalTodayNow"]) for address in addresses
        }

    return asyncio.run(with_client(asked))


async def no_former_master(cluster: Cluster) -> None:
    """Waits until no slave forwards pulls, because a hand-over may have ended seconds ago."""

    async def served_here(client: RemotingClient) -> None:
        for name in cluster.layout.broker_names:
            if successor := (await runtime(client, cluster.layout.address(name)))["forwardsTo"]:
                raise NotYet(f"{name} forwards to {successor}")

    async def waits(client: RemotingClient) -> None:
        await wait_for("no former master that forwards", lambda: served_here(client), WAIT_MS)

    await with_client(waits)


async def all_know(cluster: Cluster, group: str, topic: str, total: int) -> None:
    """Waits until every broker knows that `group` has consumed `total` messages of `topic`."""

    async def known(client: RemotingClient) -> None:
        async def all_brokers() -> None:
            for name in cluster.layout.broker_names:
                offsets = 0
                for queue_id in range(QUEUES):
                    header = QueryConsumerOffsetHeader(group, topic, queue_id)
                    question = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
                    reply = await client.call(cluster.layout.address(name), question, WAIT_MS)
                    offsets += int(reply.ext.get("offset", 0))
                if offsets != total:
                    raise NotYet(f"{name} knows {offsets}")

        await wait_for(f"offsets of {group} on all brokers", all_brokers, WAIT_MS)

    await with_client(known)


async def runtime(client: RemotingClient, address: str) -> dict[str, str]:
    """The runtime info of the broker at `address`."""
    question = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    return KVTable.decode((await client.call(address, question, WAIT_MS)).body).table


async def with_client(use: Callable[[RemotingClient], Awaitable[T]]) -> T:
    client = RemotingClient(clock=SystemClock())
    try:
        return await use(client)
    finally:
        await client.close()
