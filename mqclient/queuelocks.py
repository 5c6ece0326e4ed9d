"""Locks on queues for reading in order. They are set, renewed and released at the queues' masters.

Invariant: a queue counts as held for `TRUST_MS` from the moment before the last granted request was sent. The queue's master
keeps it from other clients for longer than that, however late the reply came. Upstream: RebalanceImpl.lockAll,
ProcessQueue.isLockExpired."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from mqclient.errors import LockFailed, RouteUnknown, in_short
from mqclient.route import MessageQueue
from mqclient.routetable import TopicRoutes
from mqclient.together import together
from mqruntime.clock import Clock
from remoting.bodies.body import LIST_BYTES_MAX, Body
from remoting.bodies.queues import LockBatchResponseBody, LockQueuesBody
from remoting.bodies.queues import MessageQueue as WireQueue
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError

TRUST_MS = 30_000
"""This is half of the time after which masters grant the queue to another client."""
RENEW_MS = 10_000
"""The interval at which a reader should renew. Upstream's readers renew every 20 s."""
CALL_TIMEOUT_MS = 3_000


class QueueLocks:
    """Locks of the client `client_id` for `group`. No other living client may have this id."""

    def __init__(
        self, group: str, client_id: str, *, routes: TopicRoutes, client: RemotingClient, clock: Clock
    ) -> None:
        self.group = group
        self.client_id = client_id
        self._routes = routes
        self._client = client
        self._clock = clock
        self._trusted_until_ms: dict[MessageQueue, int] = {}
        self._tenures: Counter[MessageQueue] = Counter()
        self._asked = 0
        self._given_up: dict[MessageQueue, int] = {}
        """The number of the last request before each queue was released. A lock that was requested before is not trusted,
        whatever the reply says."""

    def holds(self, queue: MessageQueue) -> bool:
        """Whether no other client reads `queue` for the group at this moment."""
        return self._clock.monotonic_ms() < self._trusted_until_ms.get(queue, 0)

    def tenure(self, queue: MessageQueue) -> int:
        """A number that grows when `queue` is locked after it was not trusted to be held. Another client may have read it
        meanwhile."""
        return self._tenures[queue]

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock `queues`, or renew their locks. Returns the queues that are held now. A queue that is not returned must not be
        read any further.

        Raises: LockFailed if a master did not reply. Earlier locks remain for their time, and the other masters' replies count
        (`holds`)."""
        sets = _by_set(queues).items()
        return set().union(*await together([self._lock(name, wanted) for name, wanted in sets]))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release `queues`, so that other clients may read them.

        Raises: LockFailed. The locks then last until they expire or the request arrives late, so this client must not lock the
        queues again."""
        sets = _by_set(queues)
        for given_up in sets.values():
            for queue in given_up:
                self._trusted_until_ms.pop(queue, None)
                self._given_up[queue] = self._asked
        asking = [self._ask(RequestCode.UNLOCK_BATCH_MQ, name, given_up) for name, given_up in sets.items()]
        await together(asking)

    async def _lock(self, name: str, wanted: list[MessageQueue]) -> set[MessageQueue]:
        """Lock the queues `wanted`, which are all of the set `name`. Returns the queues that are held now."""
        held: set[MessageQueue] = set()
        asked_ms = self._clock.monotonic_ms()
        self._asked += 1
        number = self._asked
        reply = await self._ask(RequestCode.LOCK_BATCH_MQ, name, wanted)
        try:
            said = LockBatchResponseBody.from_request(reply.body, bytes_max=LIST_BYTES_MAX).locked
        except BodyError as error:
            raise LockFailed(self.group, name, f"unreadable answer: {error}") from error
        locked = {(queue.topic, queue.queue_id) for queue in said}
        for queue in wanted:
            is_kept = self._given_up.get(queue, 0) < number
            if is_kept and (queue.topic, queue.queue_id) in locked:
                if self._trusted_until_ms.get(queue, 0) <= asked_ms:
                    self._tenures[queue] += 1
                self._trusted_until_ms[queue] = asked_ms + TRUST_MS
                held.add(queue)
            else:
                self._trusted_until_ms.pop(queue, None)
        return held

    async def _ask(self, code: RequestCode, name: str, queues: list[MessageQueue]) -> RemotingCommand:
        wire = [WireQueue(queue.topic, name, queue.queue_id) for queue in queues]
        body: Body = LockQueuesBody(self.group, self.client_id, wire)
        topic = queues[0].topic
        try:
            address = (await self._routes.get(topic)).master(name)
            if address is None:
                self._routes.renew(topic)
                raise LockFailed(self.group, name, "the broker set has no master at the moment")
            request = RemotingCommand.request(code, body=body.encode())
            reply = await self._client.call(address, request, CALL_TIMEOUT_MS)
        except (RouteUnknown, RemotingError) as error:
            self._routes.renew(topic)
            raise LockFailed(self.group, name, str(error)) from error
        if reply.code != ResponseCode.SUCCESS:
            self._routes.renew(topic)  # perhaps no master any more
            said = f"the broker answered {reply.code} {in_short(reply.remark)}"
            raise LockFailed(self.group, name, said, reply.code)
        return reply


def _by_set(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    sets: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        sets[queue.broker_name].append(queue)
    return sets
