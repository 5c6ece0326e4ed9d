"""Requests of mqclient and the replies to them, through brokers of a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from broker.switchover.forwardingstate import Stage
from mqclient import (
    Client,
    NotARequest,
    ReplyFailed,
    RequestUnanswered,
    SendRefused,
    StoredMessage,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import ProducerGroupHeader
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.handovers import another, stage_of, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with World(71) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        yield cluster


async def answered(client: Client, handle: Callable[[StoredMessage], bytes]) -> None:
    """Replies to each new message of "orders" until it is cancelled."""
    consumer, replier = client.consumer("repliers"), client.requester("repliers")
    at = {queue: await consumer.max_offset(queue) for queue in await consumer.queues("orders")}
    while True:
        for queue, offset in at.items():
            result = await consumer.pull(queue, offset)
            at[queue] = result.next_offset
            for message in result.messages:
                await replier.reply(message, handle(message), properties={"MOOD": "good"})
        await asyncio.sleep(0.02)


def test_each_request_gets_the_reply_to_it(cluster: Cluster) -> None:
    async def scenario() -> list[StoredMessage]:
        async with cluster.client() as asking, cluster.client() as replying:
            answering = asyncio.ensure_future(answered(replying, lambda asked: b"re: " + asked.plain_body()))
            await asyncio.sleep(0.5)
            requester = asking.requester("askers")
            replies = await asyncio.gather(
                *(requester.request("orders", b"%d" % number, tags="Ask") for number in range(10))
            )
            group = ProducerGroupHeader("askers")
            question = RemotingCommand.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, group)
            known = await asking.remoting.call(cluster.app(cluster.master).address, question)
            assert known.code == 0, "upstream's brokers know requesters by their heartbeats"
            answering.cancel()
            return list(replies)

    replies = cluster.run(scenario())
    assert [reply.plain_body() for reply in replies] == [b"re: %d" % number for number in range(10)]
    assert {reply.properties["MOOD"] for reply in replies} == {"good"}
    assert {reply.topic for reply in replies} == {"DefaultCluster_REPLY_TOPIC"}


def test_requesters_of_one_group_in_one_client_each_get_their_own_reply(cluster: Cluster) -> None:
    async def scenario() -> list[bytes]:
        async with cluster.client() as asking, cluster.client() as replying:
            answering = asyncio.ensure_future(answered(replying, lambda asked: b"re: " + asked.plain_body()))
            await asyncio.sleep(0.5)
            requesters = [asking.requester("askers") for _ in range(3)]
            calls = [each.request("orders", b"%d" % number) for number, each in enumerate(requesters)]
            replies = await asyncio.gather(*calls)
            answering.cancel()
            return [reply.plain_body() for reply in replies]

    assert cluster.run(scenario()) == [b"re: 0", b"re: 1", b"re: 2"]


def test_an_unanswered_request_raises_request_unanswered(cluster: Cluster) -> None:
    async def scenario() -> int:
        async with cluster.client() as client:
            await client.routes.get("orders")
            began_ms = client.clock.monotonic_ms()
            with pytest.raises(RequestUnanswered, match="no reply within 700 ms"):
                await client.requester("askers").request("orders", b"anybody?", timeout_ms=700)
            return client.clock.monotonic_ms() - began_ms

    assert 700 <= cluster.run(scenario()) < 800


def test_a_request_that_is_not_stored_raises_send_refused(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with cluster.client() as client:
            with pytest.raises(SendRefused, match="not/a/topic"):
                await client.requester("askers").request("not/a/topic", b"anybody?")

    cluster.run(scenario())


def message(**properties: str) -> StoredMessage:
    return StoredMessage("orders", 0, 0, 0, b"?", properties, 0, 0, 0, "", 0, "", 0, 0, 0)


def test_a_reply_to_a_client_that_left_or_timed_out_fails(cluster: Cluster) -> None:
    asked = {"CLUSTER": "DefaultCluster", "CORRELATION_ID": "c1", "UNIQ_KEY": "ID"}

    async def scenario() -> None:
        async with cluster.client() as asking, cluster.client() as client:
            replier = client.requester("repliers")
            with pytest.raises(
                NotARequest, match="message ID was not sent as a request: it has no REPLY_TO_CLIENT"
            ):
                await replier.reply(message(**asked), b"!")
            with pytest.raises(ReplyFailed, match="channel of <python@gone> not found") as failed:
                await replier.reply(message(**asked, REPLY_TO_CLIENT="python@gone"), b"!")
            assert failed.value.code == ResponseCode.SYSTEM_ERROR
            elsewhere = {**asked, "CLUSTER": "Elsewhere", "REPLY_TO_CLIENT": "x"}
            with pytest.raises(ReplyFailed, match="no route for topic Elsewhere_REPLY_TOPIC"):
                await replier.reply(message(**elsewhere), b"!")
            requester = asking.requester("askers")
            with pytest.raises(RequestUnanswered):
                await requester.request("orders", b"late", timeout_ms=200)
            late = {**asked, "REPLY_TO_CLIENT": requester._client_id}
            with pytest.raises(ReplyFailed, match="push reply message to"):
                await replier.reply(message(**late), b"!")

    cluster.run(scenario())


def test_requests_are_answered_throughout_a_hand_over() -> None:
    with World(72) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old, chosen = cluster.master, another(cluster)

        async def scenario() -> list[bytes]:
            async with cluster.client() as asking, cluster.client() as replying:
                answering = asyncio.ensure_future(
                    answered(replying, lambda asked: b"re: " + asked.plain_body())
                )
                await asyncio.sleep(0.5)
                requester = asking.requester("askers")
                replies = [await requester.request("orders", b"before")]
                await cluster.designate(chosen)
                await until(lambda: stage_of(cluster, old) is Stage.FORWARDING)
                replies += [await requester.request("orders", b"after") for _ in range(3)]
                answering.cancel()
                return [reply.plain_body() for reply in replies]

        assert cluster.run(scenario()) == [b"re: before", *[b"re: after"] * 3]
