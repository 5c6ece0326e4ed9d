"""Every request that one broker answers: who answers it, and what waits for its answer.

Invariant: one router serves all ports. A send waits in `pending` and a pull in `held`, both bounded, until it is
answered; totals and latencies exist only while metrics are on."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.clientrequests import ClientRequests
from broker.consumergroups import ConsumerGroups
from broker.delaydelivery import DelayDelivery
from broker.latencies import Latencies
from broker.longpolling import HeldPulls
from broker.pendingsends import PendingSends
from broker.pull import PullProcessor
from broker.roleswitch import RoleSwitch
from broker.send import SEND_CODES, SendProcessor
from broker.sendback import SendBack
from broker.settings import BrokerSettings
from broker.statusrequests import StatusRequests
from broker.subscriptionrenewal import SubscriptionRenewal
from broker.tablerequests import add_table_requests
from broker.tables import Tables
from broker.totals import Totals
from ha.service import HAService
from messagestore.dispatch import delay_levels_ms
from messagestore.store import MessageStore
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode
from remoting.peer import Peer
from remoting.router import Handler, Router


class Waiting:
    """What waits for its answer, and how long others waited."""

    def __init__(self, settings: BrokerSettings, tables: Tables, clock: Clock) -> None:
        self.totals: Totals | None = None
        self.latencies: Latencies | None = None
        if settings.serves_metrics:
            self.totals = Totals()
            self.latencies = Latencies(clock, tables.topics, settings.slave_timeout)
        on_answer = self.latencies.sends_settled if self.latencies is not None else None
        self.pending = PendingSends(settings.waiting_sends_max, on_answer)
        self.held = HeldPulls(settings.held_pulls_max)


class Requests:
    """The handlers, wired to the store, the tables and the role; `delivery` is to be run by a task."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        tables: Tables,
        ha: HAService,
        role: RoleSwitch,
        waiting: Waiting,
        clock: Clock,
        random: Random,
        tasks: Tasks,
        address: Callable[[], str],
        ha_address: Callable[[], str],
        on_role_changed: Handler,
    ) -> None:
        self.consumers = ConsumerGroups()
        self.totals, self.latencies = waiting.totals, waiting.latencies
        self._pending, self._held = waiting.pending, waiting.held
        levels_ms = delay_levels_ms(settings.message_delay_level)
        self._sends = SendProcessor(
            log=store,
            topics=tables.topics,
            groups=tables.groups,
            replication=role,
            pending=waiting.pending,
            clock=clock,
            random=random,
            cluster_name=settings.broker_cluster_name,
            delay_levels=len(levels_ms),
            slave_timeout_ms=settings.slave_timeout,
            totals=waiting.totals,
            latencies=waiting.latencies,
        )
        send_back = SendBack(
            store=store,
            topics=tables.topics,
            groups=tables.groups,
            replication=role,
            pending=waiting.pending,
            clock=clock,
            random=random,
            broker_permission=settings.broker_permission,
            delay_levels=len(levels_ms),
            slave_timeout_ms=settings.slave_timeout,
            totals=waiting.totals,
        )
        self.delivery = role.delivery = DelayDelivery(
            store=store, role=role, offsets=tables.delays, clock=clock, levels_ms=levels_ms
        )
        self._pulls = role.pulls = PullProcessor(
            store=store,
            role=role,
            topics=tables.topics,
            groups=tables.groups,
            consumers=self.consumers,
            offsets=tables.offsets,
            renewal=SubscriptionRenewal(self.consumers, tasks),
            held=waiting.held,
            clock=clock,
            limits=settings,
            tasks=tasks,
            totals=waiting.totals,
            latencies=waiting.latencies,
        )
        self._clients = role.consumers = ClientRequests(self.consumers, tables.groups, tables.topics, role)
        self._status = StatusRequests(
            settings=settings,
            store=store,
            ha=ha,
            role=role,
            counters=self,
            clock=clock,
            ha_address=ha_address,
            address=address,
        )
        store.on_arrival(role.queues_grew)
        store.on_arrival(self._pulls.arrived)
        store.on_arrival(self.delivery.arrived)
        self.router = router = Router()
        router.add_batch(SEND_CODES, self._sends.handle)
        router.add(RequestCode.PULL_MESSAGE, self._pulls.handle)
        router.add(RequestCode.LITE_PULL_MESSAGE, self._pulls.handle)
        router.add(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, on_role_changed)
        add_table_requests(
            router, settings=settings, role=role, store=store, tables=tables, consumers=self.consumers
        )
        send_back.add_to(router)
        self._clients.add_to(router)
        self._status.add_to(router)
        if self.latencies is not None:
            self.latencies.watch(router)

    def disconnected(self, peer: Peer) -> None:
        """A client's connection has ended."""
        self._clients.disconnected(peer)

    def sweep(self, now_ms: int) -> None:
        """Answer what has waited long enough at `now_ms` (monotonic), and take the rates."""
        self._pending.expire(now_ms)
        self._pulls.expire(now_ms)
        self._status.sample()

    @property
    def messages_put(self) -> int:
        return self._sends.stored

    @property
    def messages_got(self) -> int:
        return self._pulls.found

    @property
    def sends_waiting(self) -> int:
        return len(self._pending)

    @property
    def pulls_held(self) -> int:
        return len(self._held)
