"""Timed sends, one after the other, for sendMsgStatus, checkMsgSendRT and clusterRT.

Invariant: a send counts as done only if the message was stored and will not be lost by an election."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from mqadmin.admin import AdminClient
from mqclient.errors import ClientError
from mqclient.producer import Producer, SendResult


class Timed(NamedTuple):
    """One send: its result and its time in ms, or `why` it failed."""

    result: SendResult | None
    ms: int
    why: str

    @property
    def success(self) -> bool:
        return self.result is not None and self.result.acknowledged


async def timed_sends(
    client: AdminClient, sender: Producer, topic: str, body: bytes, count: int
) -> AsyncIterator[Timed]:
    """Send `count` messages to the topic's queues in turn."""
    for _ in range(count):
        began_ms = client.clock.monotonic_ms()
        try:
            result, why = await sender.send(topic, body), ""
        except ClientError as error:
            result, why = None, str(error)
        yield Timed(result, client.clock.monotonic_ms() - began_ms, why)


def mean_of_warm(sends: list[Timed]) -> float:
    """The mean time of all sends but the first, which opens the connection, in ms; 0 if there is only one send."""
    warm = sends[1:]
    return sum(send.ms for send in warm) / len(warm) if warm else 0.0
