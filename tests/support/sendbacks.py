"""Reads, heartbeats and send-backs of a consumer."""

from __future__ import annotations

import asyncio

from mqclient.client import Client
from mqclient.message import StoredMessage
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.messages import ConsumerSendMsgBackHeader


async def read(client: Client, topic: str) -> list[StoredMessage]:
    """All messages of a topic, from the beginning."""
    consumer = client.consumer("readers")
    found: list[StoredMessage] = []
    for queue in await consumer.queues(topic):
        result = await consumer.pull(queue, 0)
        while result.messages:
            found += result.messages
            result = await consumer.pull(queue, result.next_offset)
    return found


async def wait_for(client: Client, topic: str, count: int = 1) -> list[StoredMessage]:
    while True:
        found = await read(client, topic)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.1)


def heartbeat(group: str) -> RemotingCommand:
    consumer = ConsumerData(group, subscription_data_set=[SubscriptionData("orders")])
    return RemotingCommand.request(
        RequestCode.HEART_BEAT, None, HeartbeatData("c1", consumer_data_set=[consumer]).encode()
    )


def send_back(group: str, message: StoredMessage, level: int = 0) -> RemotingCommand:
    return RemotingCommand.request(
        RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackHeader(message.physical_offset, group, level)
    )
