"""Assignment of queues by the broker (QUERY_ASSIGNMENT, 400), for consumers with `setClientRebalance(false)`. The consumers
pull from the assigned queues.

Invariant: a consumer gets its share of all queues of its topic, on every broker set that the name servers know. Answers of name
servers are reused for a moment. Without such an answer the request fails."""

from __future__ import annotations

from collections.abc import Sequence

from broker.clients.groups import ConsumerGroups
from broker.clients.refusals import TOPIC_LENGTH_MAX, ClientRefused
from broker.clients.unsupportedrequests import UnsupportedRequests
from mqruntime.clock import Clock
from remoting.allocation import STRATEGIES, allocated
from remoting.bodies.queues import (
    MessageQueue,
    QueryAssignmentBody,
    QueryAssignmentResponseBody,
    QueueAssignment,
)
from remoting.bodies.routes import TopicRouteData
from remoting.bodies.topics import PERM_READ
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.headers.nameserver import GetRouteInfoHeader
from remoting.peer import Peer
from remoting.router import Router

BROADCASTING, PULL = "BROADCASTING", "PULL"
KEPT_MS, KEPT_MAX, KEPT_QUEUES_MAX = 5_000, 1_000, 1 << 18
TIMEOUT_MS = 1_000
QUEUES_MAX = 1 << 15


class Assignments:
    """The handler of QUERY_ASSIGNMENT. `name_servers` are asked over `client`."""

    def __init__(
        self,
        consumers: ConsumerGroups,
        unsupported: UnsupportedRequests,
        *,
        client: RemotingClient,
        name_servers: Sequence[str],
        clock: Clock,
    ) -> None:
        self._consumers = consumers
        self._unsupported = unsupported
        self._client = client
        self._name_servers = name_servers
        self._clock = clock
        self._queues: dict[str, tuple[int, list[MessageQueue]]] = {}
        self._kept = 0
        """Total number of queues of these topics."""

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.QUERY_ASSIGNMENT, self._query)

    async def _query(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        asked = QueryAssignmentBody.from_request(command.body)
        allocate = STRATEGIES.get(asked.strategy_name)
        if allocate is None and asked.message_model != BROADCASTING:
            why = f"queues are assigned by {' and '.join(STRATEGIES)}, not by {asked.strategy_name}"
            refusal = ClientRefused(ResponseCode.INVALID_PARAMETER, why)
            self._unsupported.refused(peer, command, refusal)
            return refusal.reply_to(command)
        try:
            queues = await self._queues_of(asked.topic)
        except ClientRefused as refused:
            return refused.reply_to(command)
        if queues is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"no name server has a route of {asked.topic}")
        if allocate is not None and asked.message_model != BROADCASTING:
            group = self._consumers.find(asked.consumer_group)
            queues = allocated(allocate, asked.client_id, list(group.clients) if group else [], queues)
        found = [QueueAssignment(queue, PULL) for queue in queues]
        return command.reply(body=QueryAssignmentResponseBody(found).encode())

    async def _queues_of(self, topic: str) -> list[MessageQueue] | None:
        """All readable queues of a topic; an empty list if the topic has no route; None without an answer of a name server.
        Raises ClientRefused if there are more queues than are assigned."""
        now_ms = self._clock.monotonic_ms()
        kept = self._queues.get(topic)
        if kept is not None and now_ms < kept[0] + KEPT_MS:
            return kept[1]
        route = await self._route(topic)
        if route is None:
            return None
        read = [each for each in route.queue_datas if each.perm & PERM_READ]
        if sum(min(each.read_queue_nums, QUEUES_MAX) for each in read) > KEPT_QUEUES_MAX:
            name = topic[:TOPIC_LENGTH_MAX]
            why = f"by name servers {name} has more queues than the {KEPT_QUEUES_MAX} that are assigned"
            raise ClientRefused(ResponseCode.SYSTEM_ERROR, why)
        queues = [
            MessageQueue(topic, each.broker_name, queue_id)
            for each in read
            for queue_id in range(min(each.read_queue_nums, QUEUES_MAX))
        ]
        self._forget(topic)
        self._queues[topic] = now_ms, queues
        self._kept += len(queues)
        while len(self._queues) > KEPT_MAX or self._kept > KEPT_QUEUES_MAX:
            self._forget(next(iter(self._queues)))
        return queues

    def _forget(self, topic: str) -> None:
        _, queues = self._queues.pop(topic, (0, []))
        self._kept -= len(queues)

    async def _route(self, topic: str) -> TopicRouteData | None:
        for address in self._name_servers:
            header = GetRouteInfoHeader(topic, accept_standard_json_only=True)
            question = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            try:
                answer = await self._client.call(address, question, TIMEOUT_MS)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return TopicRouteData()
                if answer.code == ResponseCode.SUCCESS:
                    return TopicRouteData.decode(answer.body)
            except (RemotingError, BodyError):
                continue  # the next name server may know; the client asks again in 20 s
        return None
