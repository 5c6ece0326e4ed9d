"""Sending messages on the connections of an admin client.

Invariant: if a sent message may be lost, the command ends with an error."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqclient.errors import ClientError
from mqclient.producer import Producer, SendResult
from mqclient.routetable import TopicRoutes


@asynccontextmanager
async def producer(client: AdminClient, namesrv: str, group: str) -> AsyncIterator[Producer]:
    """A producer whose errors become `AdminError`."""
    routes = TopicRoutes(namesrv, client.remoting, client.clock)
    try:
        yield Producer(
            group, routes=routes, client=client.remoting, clock=client.clock, random=random.Random()
        )
    except (ClientError, ValueError) as error:
        raise AdminError(str(error)) from error
    finally:
        await routes.close()


def must_be_safe(result: SendResult) -> None:
    """Raise `AdminError` for a message that was stored but may be lost."""
    if not result.acknowledged:
        raise AdminError(f"the message is stored, but not safe: {result.status.name}")


def as_json(result: SendResult) -> dict[str, Any]:
    """One sent message for scripts."""
    return {
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
        "status": result.status.name,
        "msgId": result.message_ids[0],
        "offsetMsgId": result.offset_message_id,
    }
