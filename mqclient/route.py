"""The route of a topic: its queues, and the master of each of its broker sets. Upstream: TopicPublishInfo,
TopicRouteData.

Invariant: a queue of a set without a master stays in the route, because the set will have its next master soon. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.routes import TopicRouteData
from remoting.errors import BodyError

PERM_WRITE = 2
PERM_READ = 4
MASTER_ID = 0
AUTO_CREATE_TOPIC = "TBW102"
"""The template of automatically created topics. Brokers have it if autoCreateTopicEnable is set."""
AUTO_CREATE_QUEUES = 4
"""Number of queues of such a topic (`defaultTopicQueueNums` of Java's clients), but at most as many as the template has."""
QUEUES_MAX = 1 << 15
"""Limit of a topic's queues in all broker sets, so that a number on the wire cannot exhaust the client's memory."""


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker set."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The writable and readable queues, in order; the broker addresses by set name and role id; and the cluster of each set."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    addresses: dict[str, dict[int, str]]
    clusters: dict[str, str]
    _asked: dict[tuple[str | None, int | None], tuple[MessageQueue, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def master(self, broker_name: str) -> str | None:
        """The address of the set's master; None while the set has none."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def slaves(self, broker_name: str) -> list[str]:
        """Addresses of the set's slaves, by id."""
        members = self.addresses.get(broker_name, {})
        return [members[each] for each in sorted(members) if each != MASTER_ID]

    def queues_to_write(self, broker_name: str | None, queue_id: int | None) -> tuple[MessageQueue, ...]:
        """The writable queues with this set and queue id (None for any). If some of their sets have a master, only queues of
        these sets."""
        queues = self._asked.get((broker_name, queue_id))
        if queues is None:
            fitting = tuple(
                queue
                for queue in self.write_queues
                if queue_id in (None, queue.queue_id) and broker_name in (None, queue.broker_name)
            )
            served = tuple(queue for queue in fitting if self.master(queue.broker_name))
            queues = self._asked[broker_name, queue_id] = served or fitting
        return queues

    def of_new(self, topic: str) -> TopicRoute:
        """The route for the first messages of a `topic` that does not exist yet, made from this route of the template topic."""
        write, read = (
            tuple(
                MessageQueue(topic, queue.broker_name, queue.queue_id)
                for queue in queues
                if queue.queue_id < AUTO_CREATE_QUEUES
            )
            for queues in (self.write_queues, self.read_queues)
        )
        return TopicRoute(topic, write, read, self.addresses, self.clusters)

    @staticmethod
    def of(topic: str, body: TopicRouteData) -> TopicRoute:
        """The route in a name server's reply to GET_ROUTEINFO_BY_TOPIC (105). Raises BodyError for more than QUEUES_MAX
        queues."""
        writable: list[MessageQueue] = []
        readable: list[MessageQueue] = []
        for row in sorted(body.queue_datas, key=lambda row: row.broker_name):
            name, write_queues, read_queues = row.broker_name, row.write_queue_nums, row.read_queue_nums
            if max(len(writable) + write_queues, len(readable) + read_queues) > QUEUES_MAX:
                raise BodyError(f"{topic!r} would have more than {QUEUES_MAX} queues with those of {name!r}")
            if row.perm & PERM_WRITE:
                writable += [MessageQueue(topic, name, number) for number in range(write_queues)]
            if row.perm & PERM_READ:
                readable += [MessageQueue(topic, name, number) for number in range(read_queues)]
        addresses = {row.broker_name: dict(row.broker_addrs) for row in body.broker_datas}
        clusters = {row.broker_name: row.cluster for row in body.broker_datas}
        return TopicRoute(topic, tuple(writable), tuple(readable), addresses, clusters)
