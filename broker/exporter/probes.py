"""HTTP pages of a broker: metrics, health, and role."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.registry import Collector

from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from mqruntime.httppages import HttpPages
from mqruntime.network import Network
from mqruntime.probes import serve_probes


async def serve_broker_probes(
    membership: Membership,
    *,
    settings: BrokerSettings,
    store: BrokerStore,
    ha: Replication,
    collectors: Sequence[Collector],
    network: Network,
    clock: Clock,
) -> HttpPages:
    """Serve /metrics, /health, /master (200 on the broker that accepts sends) and /slave. Raises PagesCannotListen."""
    return await serve_probes(
        settings,
        collectors,
        lambda: {
            "cluster": membership.cluster_name,
            "broker": membership.broker_name,
            "address": membership.address,
            "role": membership.role.value,
            "epoch": ha.epoch,
            "acceptsSends": membership.accepts_sends,
            "storeTakesMessages": store.takes_messages(),
            "maxOffset": store.max_offset(),
            "confirmOffset": store.confirm_offset(),
        },
        {
            "/master": lambda: membership.accepts_sends and store.takes_messages(),
            "/slave": lambda: membership.is_slave,
        },
        network,
        clock,
    )
