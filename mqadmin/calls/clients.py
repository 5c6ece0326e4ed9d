"""Queries connected consumers. Each request goes to a broker to which the consumer is connected. The broker forwards it
to the consumer.

Invariant: a client is queried only through a broker at which the client is registered as online."""

from __future__ import annotations

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls import groups
from mqadmin.errors import AdminError
from remoting.bodies.queues import ConsumeDirectlyResult, ConsumerQueues, MessageQueue
from remoting.codes import RequestCode
from remoting.headers.admin import GetConsumerRunningInfoHeader
from remoting.headers.messages import ConsumeMessageDirectlyHeader

WAIT_MS = 12_000  # the broker gives the client ten seconds
CONSUME_TYPE = "PROP_CONSUME_TYPE"


async def queues_of(
    client: AdminClient, broker: str, group: str, client_id: str, *, jstack: bool = False
) -> ConsumerQueues:
    """The queues that one client reads now, and on request its threads: GET_CONSUMER_RUNNING_INFO (307)."""
    header = GetConsumerRunningInfoHeader(group, client_id, jstack)
    reply = await client.ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header, wait_ms=WAIT_MS)
    return body_of(ConsumerQueues, broker, reply)


async def readers(
    client: AdminClient, masters: list[str], group: str
) -> tuple[dict[MessageQueue, str], list[str]]:
    """{queue: ip of the client that reads it, taken from the client id}, and a text for each client that did not answer."""
    found: dict[MessageQueue, str] = {}
    asked: set[str] = set()
    silent: list[str] = []
    for master in masters:
        connected = await groups.consumers(client, [master], group)
        for member in connected.connection_set if connected is not None else ():
            if member.client_id in asked:
                continue
            asked.add(member.client_id)
            try:
                queues = await queues_of(client, master, group, member.client_id)
            except AdminError as error:
                silent.append(f"{member.client_id} does not report its queues: {error}")
                continue
            found |= dict.fromkeys(queues.mq_table, member.client_id.partition("@")[0])
    return found, silent


async def consume_directly(
    client: AdminClient, broker: str, header: ConsumeMessageDirectlyHeader
) -> ConsumeDirectlyResult:
    """Let a push consumer consume one stored message now: CONSUME_MESSAGE_DIRECTLY (309). Raises `AdminError`, also for
    another kind of consumer."""
    group, client_id = header.consumer_group, header.client_id or ""
    queues = await queues_of(client, broker, group, client_id)
    if queues.properties.get(CONSUME_TYPE) != "CONSUME_PASSIVELY":
        raise AdminError(
            f"{client_id} of group {group} is no push consumer; only those take a message given to them"
        )
    reply = await client.ask(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, wait_ms=WAIT_MS)
    return body_of(ConsumeDirectlyResult, broker, reply)
