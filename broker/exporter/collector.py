"""Metrics of a broker for Prometheus.

Invariant: all figures are read when Prometheus scrapes them, except the totals by topic, which each batch increases once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import Protocol

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from broker.clients.groups import ConsumerGroups
from broker.exporter import figures
from broker.metrics.latencies import Latencies, name_of
from broker.metrics.totals import Totals
from broker.role.membership import Membership
from broker.sends.retries import dead_letter_topic
from broker.settings.broker import BrokerSettings
from broker.tables.subscriptiongroups import is_system_group
from broker.tables.tables import Tables
from broker.transactions.transactions import Transactions
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore
from messagestore.systemtopics import RETRY_PREFIX
from mqruntime.clock import Clock
from mqruntime.figures import Families
from remoting.codes import RequestCode, ResponseCode

CONSUME_MODES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
PROTOCOL = "remoting"
ON_DISK = ("local", "disk")


class MeteredFeatures(Protocol):
    """The features of a broker that have metrics."""

    totals: Totals
    latencies: Latencies | None
    transactions: Transactions
    consumers: ConsumerGroups

    @property
    def sends_waiting(self) -> int: ...

    @property
    def pulls_held(self) -> int: ...

    @property
    def open_transactions(self) -> int: ...


class BrokerCollector(Collector):
    """The collector. `clock` is used for the age of the oldest message."""

    def __init__(
        self,
        membership: Membership,
        *,
        settings: BrokerSettings,
        store: BrokerStore,
        ha: Replication,
        tables: Tables,
        requests: MeteredFeatures,
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._settings = settings
        self._store = store
        self._ha = ha
        self._tables = tables
        self._requests = requests
        self._clock = clock
        self._totals = requests.totals
        self._latencies = requests.latencies or Latencies(clock, tables.topics, settings.slave_timeout)
        values = (settings.broker_cluster_name, "broker", settings.broker_name)
        self._families = Families(dict(zip(figures.BASE_LABELS, values, strict=True)))
        self._oldest: tuple[int, int] | None = None

    def collect(self) -> Iterator[Metric]:
        yield from self._status()
        yield from self._traffic()
        yield from self._connections()
        yield self._lag()
        yield from self._transactions()
        yield self._families.one(figures.WAITING_SENDS, self._requests.sends_waiting)
        yield self._families.one(figures.HELD_PULLS, self._requests.pulls_held)
        yield from self._stored()
        yield from self._replication()

    def _status(self) -> Iterator[Metric]:
        one = self._families.one
        yield one(figures.PERMISSION, self._settings.broker_permission)
        yield one(figures.TOPICS, len(self._tables.topics.names()))
        yield one(figures.GROUPS, len(self._tables.groups.wrapper.subscription_group_table))

    def _traffic(self) -> Iterator[Metric]:
        totals, each = self._totals, self._families.each
        stored = [((topic, self._system(topic)), amount) for topic, amount in sorted(totals.stored.items())]
        found = [
            ((topic, group, self._system(topic, group)), amount)
            for (topic, group), amount in sorted(totals.found.items())
        ]
        yield each(figures.MESSAGES_IN, ((labels, amount.messages) for labels, amount in stored))
        yield each(figures.MESSAGES_OUT, ((labels, amount.messages) for labels, amount in found))
        yield each(figures.BYTES_IN, ((labels, amount.bytes) for labels, amount in stored))
        yield each(figures.BYTES_OUT, ((labels, amount.bytes) for labels, amount in found))
        sizes = sorted(totals.sizes.items())
        yield self._families.histograms(
            figures.MESSAGE_SIZE, (((topic, self._system(topic)), histogram) for topic, histogram in sizes)
        )
        yield from self._waits()
        dead = sorted(totals.dead_letters.items())
        yield each(
            figures.DEAD_LETTERS,
            (((group, dead_letter_topic(group), self._system("", group)), count) for group, count in dead),
        )

    def _transactions(self) -> Iterator[Metric]:
        totals, each = self._requests.transactions.totals, self._families.each
        for figure, ended in (
            (figures.COMMITTED, totals.committed),
            (figures.ROLLED_BACK, totals.rolled_back),
        ):
            yield each(figure, (((topic,), count) for topic, count in sorted(ended.items())))
        yield self._families.one(figures.OPEN_TRANSACTIONS, self._requests.open_transactions)

    def _waits(self) -> Iterator[Metric]:
        histograms, latencies = self._families.histograms, self._latencies
        yield histograms(
            figures.RPC_LATENCY,
            (
                (
                    (
                        PROTOCOL,
                        name_of(call.request_code, RequestCode),
                        name_of(call.response_code, ResponseCode),
                        _truth(call.long_polling),
                        call.result,
                    ),
                    histogram,
                )
                for call, histogram in sorted(latencies.calls.items(), key=itemgetter(0))
            ),
        )
        for figure, code in (
            (figures.TOPIC_CREATION, RequestCode.UPDATE_AND_CREATE_TOPIC),
            (figures.GROUP_CREATION, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
        ):
            yield histograms(
                figure,
                (
                    ((creation.status, _truth(creation.is_system)), histogram)
                    for creation, histogram in sorted(latencies.creations.items(), key=itemgetter(0))
                    if creation.request_code == code
                ),
            )

    def _connections(self) -> Iterator[Metric]:
        clients = self._requests.consumers
        producers = Counter(
            (client.language.lower(), str(client.version), PROTOCOL) for client in clients.all_producers()
        )
        yield self._families.each(figures.PRODUCERS, sorted(producers.items()))
        consumers = Counter(
            (
                name,
                CONSUME_MODES.get(group.consume_type, "unknown"),
                client.language.lower(),
                str(client.version),
            )
            + (PROTOCOL, self._system("", name))
            for name, group in clients.groups().items()
            for client in group.clients.values()
        )
        yield self._families.each(figures.CONSUMERS, sorted(consumers.items()))

    def _lag(self) -> Metric:
        tables = self._tables
        lags = []
        for topic, group in sorted(tables.offsets.committed()):
            if tables.topics.find(topic) is not None:
                is_retry = _truth(topic.startswith(RETRY_PREFIX))
                lags.append(
                    ((group, topic, is_retry, self._system(topic, group)), self._behind(topic, group))
                )
        return self._families.each(figures.LAG, lags)

    def _behind(self, topic: str, group: str) -> int:
        """The number of uncommitted messages in all queues."""
        tables, store = self._tables, self._store
        config = tables.topics.find(topic)
        return sum(
            max(
                store.max_queue_offset(topic, queue_id) - (tables.offsets.find(group, topic, queue_id) or 0),
                0,
            )
            for queue_id in range(config.read_queue_nums if config else 0)
        )

    def _stored(self) -> Iterator[Metric]:
        store = self._store
        end = store.max_offset()
        for figure, value in (
            (figures.STORE_SIZE, end - store.min_offset()),
            (figures.FLUSH_BEHIND, end - store.flushed_offset()),
            (figures.DISPATCH_BEHIND, max(store.confirm_offset() - store.dispatched_offset(), 0)),
            (figures.DISK_USED, store.disk_space().used),
            (figures.QUEUE_SKIPS, store.queue_offset_skips()),
            (figures.SCRUBBED, store.integrity.checked_bytes),
            (figures.UNCHECKED, store.integrity.unchecked.size_bytes),
            (figures.DAMAGED, len(store.integrity.damages)),
            (figures.REPAIRED, store.integrity.repairs),
            (figures.DELETED_SEGMENTS, store.trimming.deleted_segments),
            (figures.RESERVE_TIME, self._oldest_age_ms()),
        ):
            yield self._families.each(figure, [(ON_DISK, value)])

    def _oldest_age_ms(self) -> int:
        """The age of the first record. The record is read only when it has changed since the last scrape."""
        store = self._store
        start = store.min_offset()
        if self._oldest is None or self._oldest[0] != start:
            stored_ms = store.first_store_time()
            if stored_ms is None:
                return 0
            self._oldest = start, stored_ms
        return max(self._clock.now_ms() - self._oldest[1], 0)

    def _replication(self) -> Iterator[Metric]:
        ha, store, one, each = self._ha, self._store, self._families.one, self._families.each
        end = store.max_offset()
        yield one(figures.MASTER, self._membership.accepts_sends)
        yield one(figures.EPOCH, ha.epoch)
        yield one(figures.MAX_OFFSET, end)
        yield one(figures.CONFIRM_OFFSET, store.confirm_offset())
        yield one(figures.SET_SIZE, ha.in_sync_count())
        slaves = [((str(slave_id),), *values) for slave_id, values in sorted(ha.slaves().items())]
        yield each(figures.ACK_OFFSET, ((labels, ack_offset) for labels, ack_offset, _ in slaves))
        yield each(figures.LAG_BYTES, ((labels, end - ack_offset) for labels, ack_offset, _ in slaves))
        yield each(figures.IN_SYNC, ((labels, member) for labels, _, member in slaves))
        counters = ha.counters
        moved = [(("sent",), counters.sent_bytes), (("received",), counters.received_bytes)]
        yield each(figures.TRANSFERRED, moved)
        yield one(figures.ROLE_CHANGES, counters.role_changes)
        yield one(figures.TRUNCATIONS, counters.truncations)
        yield one(figures.STAYS_OUT, ha.stays_out is not None)
        yield one(figures.REFUSED_LINKS, counters.refused_links)

    def _system(self, topic: str, group: str = "") -> str:
        """The value of the label is_system."""
        return _truth(self._tables.topics.is_system(topic) or is_system_group(group))


def _truth(value: bool) -> str:
    return "true" if value else "false"
