"""The requests of administrators and clients that are answered from the tables, from the store, or by a consumer.

Invariant: no such request waits for the log's replication. A change of topics or groups waits until the replicas have it."""

from __future__ import annotations

from accesscontrol.guard import Access
from broker.admin.brokerstats import BrokerStatsRequests
from broker.admin.configuration import BrokerConfiguration
from broker.admin.groups import GroupRequests
from broker.admin.lookups import LookupRequests
from broker.admin.offsets import OffsetRequests
from broker.admin.progress import ProgressRequests
from broker.admin.queues import QueueRequests
from broker.admin.resets import OnMoved, ResetRequests
from broker.admin.topics import TopicRequests
from broker.clients.calls import ClientCalls
from broker.clients.groups import ConsumerGroups
from broker.clients.readgate import ReadGate
from broker.metrics.recent import RecentTotals
from broker.neighbours.agreement import MetadataReplication
from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from broker.tables.tables import Tables
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from remoting.bulk import BulkAnswers
from remoting.router import Router


def add_table_requests(
    router: Router,
    *,
    settings: BrokerSettings,
    role: Membership,
    reading: ReadGate,
    store: BrokerStore,
    tables: Tables,
    consumers: ConsumerGroups,
    agreement: MetadataReplication,
    on_moved: OnMoved,
    recent: RecentTotals,
    clock: Clock,
    access: Access,
) -> None:
    """Add the handlers of these requests to `router`."""
    name, topics, offsets = settings.broker_name, tables.topics, tables.offsets
    agreement.add_to(router)
    TopicRequests(name, tables, agreement, store, recent, clock).add_to(router)
    bulk = BulkAnswers()
    GroupRequests(tables, agreement, bulk).add_to(router)
    ProgressRequests(name, tables, store, consumers, recent, clock, bulk).add_to(router)
    BrokerStatsRequests(recent, clock).add_to(router)
    OffsetRequests(store, topics, offsets).add_to(router)
    LookupRequests(store, reading, access).add_to(router)
    ClientCalls(name, consumers, store, reading, access).add_to(router)
    BrokerConfiguration(settings, tables, role).add_to(router)
    QueueRequests(store, consumers, offsets, bulk).add_to(router)
    ResetRequests(
        settings=settings,
        role=role,
        store=store,
        tables=tables,
        consumers=consumers,
        agreement=agreement,
        on_moved=on_moved,
        access=access,
    ).add_to(router)
