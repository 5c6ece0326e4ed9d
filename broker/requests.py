"""Every request that one broker answers: who answers it, and what waits for its answer.

Invariant: one router serves all ports. A send waits in `pending` and a pull in `held`, both bounded, until it is
answered; totals and latencies exist only while metrics are on."""

from __future__ import annotations

from collections.abc import Callable

from broker.admin.status import StatusRequests
from broker.admin.tables import add_table_requests
from broker.clients.groups import ConsumerGroups
from broker.clients.renewal import SubscriptionRenewal
from broker.clients.requests import ClientRequests
from broker.metrics.latencies import Latencies
from broker.metrics.totals import Totals
from broker.parts import Parts
from broker.pulls.admission import PullAdmission
from broker.pulls.held import HeldPulls
from broker.pulls.processor import PullProcessor
from broker.sends.admission import SendAdmission
from broker.sends.delaydelivery import DelayDelivery
from broker.sends.pending import PendingSends
from broker.sends.processor import SEND_CODES, SendProcessor
from broker.sends.sendback import SendBack
from broker.sends.writegate import WriteGate
from messagestore.delaylevels import delay_levels_ms
from remoting.codes import RequestCode
from remoting.peer import Peer
from remoting.router import Handler, Router


class Requests:
    """The handlers, in `router`; `delivery` is to be run by a task."""

    def __init__(
        self,
        parts: Parts,
        *,
        address: Callable[[], str],
        ha_address: Callable[[], str],
        on_role_changed: Handler,
    ) -> None:
        settings, tables, clock = parts.settings, parts.tables, parts.clock
        levels_ms = delay_levels_ms(settings.message_delay_level)
        self.totals = Totals() if settings.serves_metrics else None
        self.latencies = (
            Latencies(clock, tables.topics, settings.slave_timeout) if settings.serves_metrics else None
        )
        self.pending = PendingSends(
            settings.waiting_sends_max, self.latencies.sends_settled if self.latencies is not None else None
        )
        self._held = HeldPulls(settings.held_pulls_max)
        self._gate = WriteGate(parts.role, self.pending, clock, wait_ms=settings.slave_timeout)
        self._sends = self._send_processor(parts, len(levels_ms))
        self.delivery = DelayDelivery(
            store=parts.store, role=parts.role, offsets=tables.delays, clock=clock, levels_ms=levels_ms
        )
        self.consumers = ConsumerGroups()
        self.clients = ClientRequests(self.consumers, tables.groups, tables.topics, parts.role)
        self.pulls = self._pull_processor(parts)
        self._status = StatusRequests(
            settings=settings,
            store=parts.store,
            ha=parts.ha,
            role=parts.role,
            counters=self,
            clock=clock,
            ha_address=ha_address,
            address=address,
        )
        self.router = router = Router()
        router.add_batch(SEND_CODES, self._sends.handle)
        router.add(RequestCode.PULL_MESSAGE, self.pulls.handle)
        router.add(RequestCode.LITE_PULL_MESSAGE, self.pulls.handle)
        router.add(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, on_role_changed)
        add_table_requests(router, parts, self.consumers)
        self._send_back(parts, len(levels_ms)).add_to(router)
        self.clients.add_to(router)
        self._status.add_to(router)
        if self.latencies is not None:
            self.latencies.watch(router)

    def disconnected(self, peer: Peer) -> None:
        """A client's connection has ended."""
        self.clients.disconnected(peer)

    def sweep(self, now_ms: int) -> None:
        """Answer what has waited long enough at `now_ms` (monotonic), and take the rates."""
        self.pending.expire(now_ms)
        self.pulls.expire(now_ms)
        self._status.sample()

    @property
    def messages_put(self) -> int:
        return self._sends.stored

    @property
    def messages_got(self) -> int:
        return self.pulls.found

    @property
    def sends_waiting(self) -> int:
        return len(self.pending)

    @property
    def pulls_held(self) -> int:
        return len(self._held)

    def _send_processor(self, parts: Parts, delay_levels: int) -> SendProcessor:
        admission = SendAdmission(
            log=parts.store,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            clock=parts.clock,
            random=parts.random,
            cluster_name=parts.settings.broker_cluster_name,
            delay_levels=delay_levels,
        )
        return SendProcessor(
            log=parts.store,
            admission=admission,
            gate=self._gate,
            totals=self.totals,
            latencies=self.latencies,
        )

    def _send_back(self, parts: Parts, delay_levels: int) -> SendBack:
        return SendBack(
            store=parts.store,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            gate=self._gate,
            random=parts.random,
            broker_permission=parts.settings.broker_permission,
            delay_levels=delay_levels,
            totals=self.totals,
        )

    def _pull_processor(self, parts: Parts) -> PullProcessor:
        admission = PullAdmission(
            role=parts.role,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            consumers=self.consumers,
            limits=parts.settings,
        )
        return PullProcessor(
            store=parts.store,
            admission=admission,
            offsets=parts.tables.offsets,
            renewal=SubscriptionRenewal(self.consumers, parts.tasks),
            held=self._held,
            clock=parts.clock,
            polling=parts.settings,
            tasks=parts.tasks,
            totals=self.totals,
            latencies=self.latencies,
        )
