"""The target of a resend: the writable queues of one topic in one cluster.

Invariant: a source queue goes to the same target queue in every run with one ledger, so the queue's order is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqclient.client import Client
from mqclient.errors import RouteUnknown
from mqclient.message import OutgoingMessage
from mqclient.producer import Producer, SendResult
from sparkreplay.errors import OptionError

SEND_TIMEOUT_MS = 5000


@dataclass(frozen=True)
class TargetQueue:
    """One queue of the target. `str` is its name in a ledger."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True)
class QueueSender:
    """Sends to one queue. Raises the errors of Producer."""

    producer: Producer
    queue: TargetQueue

    async def send(self, messages: list[OutgoingMessage]) -> SendResult:
        queue = self.queue
        if len(messages) == 1:
            return await self.producer.send_message(
                queue.topic,
                messages[0],
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                timeout_ms=SEND_TIMEOUT_MS,
            )
        return await self.producer.send_batch(
            queue.topic,
            messages,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            born_timestamp_ms=messages[0].born_timestamp_ms,
            timeout_ms=SEND_TIMEOUT_MS,
        )


async def target_queues(client: Client, cluster: str, topic: str) -> list[TargetQueue]:
    """The queues in order of broker set and id. Raises OptionError if the cluster does not have the topic."""
    try:
        route = await client.routes.get(topic)
    except RouteUnknown as error:
        raise OptionError(
            "--to",
            f"{error}; if -n names the right name servers, create it first (mqadmin updateTopic -c {cluster} -t {topic})",
        ) from error
    queues = [
        TargetQueue(topic, queue.broker_name, queue.queue_id)
        for queue in route.write_queues
        if route.clusters.get(queue.broker_name) == cluster
    ]
    if not queues:
        written = {queue.broker_name for queue in route.write_queues}
        clusters = {route.clusters[name] for name in written if name in route.clusters}
        elsewhere = (
            f", only in {', '.join(sorted(clusters))}"
            if clusters
            else "; mqadmin updateTopic -p 6 permits it"
        )
        raise OptionError("--to", f"topic {topic} has no queue to write in cluster {cluster}{elsewhere}")
    return queues


def same_queues(wanted: Sequence[str], found: list[TargetQueue]) -> list[TargetQueue]:
    """The queues `found`, in the ledger's order. Raises OptionError if one of the ledger's queues is gone."""
    by_name = {str(queue): queue for queue in found}
    for name in wanted:
        if name not in by_name:
            raise OptionError(
                "--to", f"queue {name}, to which the ledger's earlier runs sent, is not there any more"
            )
    return [by_name[name] for name in wanted]
