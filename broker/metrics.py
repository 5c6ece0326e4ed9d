"""A broker's figures for Prometheus: upstream's names, and `rocketmq_ha_*` for what upstream does not show.

Invariant: everything is read when it is scraped; between scrapes metrics cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mqruntime.probes import serve_probes

if TYPE_CHECKING:
    from broker.app import BrokerApp
    from mqruntime.httppages import HttpPages

BASE_LABELS = ("cluster", "node_type", "node_id")


async def serve_broker_probes(app: BrokerApp) -> HttpPages:
    """/metrics, /health, /master (200 on the broker that takes sends) and /slave. Raises PagesCannotListen."""
    return await serve_probes(
        app.settings,
        BrokerCollector(app),
        lambda: {
            "cluster": app.settings.broker_cluster_name,
            "broker": app.settings.broker_name,
            "address": app.address,
            "role": app.role.role.value,
            "epoch": app.ha.epoch,
            "acceptsSends": app.role.accepts_sends,
            "maxOffset": app.store.max_offset(),
            "confirmOffset": app.store.confirm_offset(),
        },
        {"/master": lambda: app.role.accepts_sends, "/slave": lambda: app.role.is_slave},
    )


class BrokerCollector(Collector):
    def __init__(self, app: BrokerApp) -> None:
        self._app = app
        settings = app.settings
        self._base = (settings.broker_cluster_name, "broker", settings.broker_name)

    def collect(self) -> Iterator[Metric]:
        yield from self._messages()
        yield from self._store()
        yield from self._replication()

    def _messages(self) -> Iterator[Metric]:
        app = self._app
        yield self._counter("rocketmq_messages_in", "messages that producers stored", app.messages_put)
        yield self._counter("rocketmq_messages_out", "messages that pulls found", app.messages_got)
        yield self._counter("rocketmq_throughput_in", "bytes of stored records", app.bytes_put)
        yield self._counter("rocketmq_throughput_out", "bytes of records that pulls found", app.bytes_got)
        yield self._gauge("rocketmq_broker_permission", "4 read, 2 write", app.settings.broker_permission)
        yield self._gauge("rocketmq_topic_number", "topics known", len(app.tables.topics.names()))
        groups = len(app.tables.groups.wrapper.subscription_group_table)
        yield self._gauge("rocketmq_consumer_group_number", "consumer groups known", groups)
        yield self._gauge("rocketmq_waiting_sends", "sends that wait for replicas (ours)", app.sends_waiting)
        yield self._gauge("rocketmq_held_pulls", "pulls that wait for messages (ours)", app.pulls_held)

    def _store(self) -> Iterator[Metric]:
        store = self._app.store
        end, confirmed = store.max_offset(), store.confirm_offset()
        behind = {
            "rocketmq_storage_size_bytes": ("log that is kept", end - store.min_offset()),
            "rocketmq_storage_flush_behind_bytes": ("log not yet synced", end - store.flushed_offset()),
            "rocketmq_storage_dispatch_behind_bytes": (
                "confirmed log not yet in consume queues",
                max(confirmed - store.dispatched_offset(), 0),
            ),
        }
        for name, (meaning, value) in behind.items():
            family = GaugeMetricFamily(name, meaning, labels=(*BASE_LABELS, "storage_type", "storage_medium"))
            family.add_metric((*self._base, "local", "disk"), value)
            yield family

    def _replication(self) -> Iterator[Metric]:
        ha, store = self._app.ha, self._app.store
        end = store.max_offset()
        yield self._gauge(
            "rocketmq_ha_master", "1 on the broker that takes sends", self._app.role.accepts_sends
        )
        yield self._gauge("rocketmq_ha_epoch", "newest epoch known here", ha.epoch)
        yield self._gauge("rocketmq_ha_max_offset", "end of the log", end)
        yield self._gauge(
            "rocketmq_ha_confirm_offset", "end of what every member has", store.confirm_offset()
        )
        yield self._gauge("rocketmq_ha_sync_state_set_size", "members; 0 on slaves", ha.in_sync_count())
        acked, lag, in_sync = (
            GaugeMetricFamily(name, meaning, labels=(*BASE_LABELS, "slave_id"))
            for name, meaning in (
                ("rocketmq_ha_slave_ack_offset", "end of what a slave acknowledged"),
                ("rocketmq_ha_lag_bytes", "log that a slave has not acknowledged"),
                ("rocketmq_ha_in_sync", "1 for a member of the SyncStateSet"),
            )
        )
        for slave_id, (ack_offset, member) in sorted(ha.slaves().items()):
            labels = (*self._base, str(slave_id))
            acked.add_metric(labels, ack_offset)
            lag.add_metric(labels, end - ack_offset)
            in_sync.add_metric(labels, member)
        yield from (acked, lag, in_sync)
        transferred = CounterMetricFamily(
            "rocketmq_ha_transfer_bytes", "bytes on replication links", labels=(*BASE_LABELS, "direction")
        )
        transferred.add_metric((*self._base, "sent"), ha.counters.sent_bytes)
        transferred.add_metric((*self._base, "received"), ha.counters.received_bytes)
        yield transferred
        yield self._counter("rocketmq_ha_role_changes", "roles taken", ha.counters.role_changes)
        truncations = ha.counters.truncations
        yield self._counter("rocketmq_ha_truncations", "cuts of this log to a master's", truncations)

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, meaning, labels=BASE_LABELS)
        family.add_metric(self._base, value)
        return family

    def _counter(self, name: str, meaning: str, value: float) -> Metric:
        family = CounterMetricFamily(name, meaning, labels=BASE_LABELS)
        family.add_metric(self._base, value)
        return family
