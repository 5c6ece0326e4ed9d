"""Handlers of all requests of one broker, and the waits for their answers.

Invariant: one router serves all ports. A send waits in `pending` and a pull in `held`, both bounded, until it is
answered; latencies exist only while metrics are on."""

from __future__ import annotations

from functools import partial
from random import Random

from broker.admin.status import StatusRequests
from broker.admin.tables import add_table_requests
from broker.clients.early import ProvisionalSubscriptions
from broker.clients.groups import ConsumerGroups
from broker.clients.lockrequests import LockRequests
from broker.clients.readgate import ReadGate
from broker.clients.renewal import SubscriptionRenewal
from broker.clients.requesters import Requesters
from broker.clients.requests import ClientRequests
from broker.clients.unserved import UnsupportedRequests
from broker.metrics.latencies import Latencies
from broker.metrics.recent import RecentTotals
from broker.metrics.totals import Totals
from broker.metrics.transactiontotals import TransactionTotals
from broker.neighbours.agreement import MetadataReplication
from broker.pulls.admission import PullAdmission
from broker.pulls.direction import PullRouting
from broker.pulls.held import HeldPulls
from broker.pulls.processor import PullProcessor
from broker.replication.pending import PendingSends
from broker.replication.writegate import ReplicationView, SendReplicationView, WriteGate
from broker.role.actions import Grant
from broker.role.contractmark import KeptContractMark
from broker.role.membership import Membership
from broker.sends.admission import SendAdmission
from broker.sends.delaydelivery import DelayDelivery
from broker.sends.processor import SEND_CODES, SendProcessor
from broker.sends.replies import Replies
from broker.sends.sendback import SendBack
from broker.settings.broker import BrokerSettings
from broker.switchover.forwarding import Forwarding
from broker.switchover.handover import HandOverRequests
from broker.switchover.passage import FORWARD_MS
from broker.switchover.passedpulls import attach_subscriptions
from broker.tables.tables import Tables
from broker.transactions.checkback import CheckBack
from broker.transactions.ending import EndTransaction
from broker.transactions.transactions import Transactions
from ha.replication import Replication
from messagestore.brokerstore import BrokerStore
from messagestore.delaylevels import delay_levels_ms
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router

CLIENTS_THEMSELVES = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.QUERY_ASSIGNMENT,
)
"""Answered by a broker that only forwards, too: consumers send heartbeats to every broker of their set."""


class WriteView:
    """Whether this broker may store something now, for parts that store without a request."""

    def __init__(self, membership: Membership, forwarding: Forwarding) -> None:
        self._membership = membership
        self._forwarding = forwarding

    @property
    def accepts_sends(self) -> bool:
        return self._membership.accepts_sends and self._forwarding.passage.writes_here

    @property
    def is_slave(self) -> bool:
        return self._membership.is_slave


def _newest_epoch_start(ha: Replication) -> int:
    newest = ha.history.last()
    return 0 if newest is None else newest.start_offset


class Requests:
    """The handlers, in `router`; `delivery` is run by a task. `tasks` run the rest of handlers, and transactions
    once there are any; `delivered` is the acknowledged end for delayed messages."""

    def __init__(
        self,
        membership: Membership,
        *,
        settings: BrokerSettings,
        store: BrokerStore,
        ha: Replication,
        tables: Tables,
        acknowledgement: SendReplicationView,
        delivered: ReplicationView,
        contract_mark: KeptContractMark,
        clock: Clock,
        random: Random,
        tasks: Tasks,
        memory_bytes: int,
    ) -> None:
        self._settings = settings
        self._acknowledgement = acknowledgement
        self._tasks = tasks
        self.forwarding = forwarding = Forwarding(
            clock,
            Tasks(tasks.fail),
            carried_max=settings.waiting_sends_max,
            forward_ms=max(FORWARD_MS, 1000 * settings.shutdown_forward_seconds),
        )
        forwarding.own_id = lambda: membership.broker_id
        levels_ms = delay_levels_ms(settings.message_delay_level)
        reading = ReadGate(membership, settings)
        self.totals = Totals(with_sizes=settings.serves_metrics)
        self._tables = tables
        self._recent = RecentTotals(self.totals, settings.broker_cluster_name)
        self.latencies = (
            Latencies(clock, tables.topics, settings.slave_timeout) if settings.serves_metrics else None
        )
        self.pending = PendingSends(
            settings.waiting_sends_max,
            self.latencies.sends_settled if self.latencies is not None else None,
        )
        self._gate = gate = WriteGate(
            membership, acknowledgement, self.pending, clock, wait_ms=settings.send_wait_ms
        )
        writing = WriteView(membership, forwarding)
        self.consumers = ConsumerGroups(tables.filters)
        early = ProvisionalSubscriptions(self.consumers)
        requesters = Requesters(self.consumers)
        self.transactions = Transactions(
            store=store,
            role=writing,
            replication=delivered,
            followed=None if settings.pair is None else acknowledgement.followed_end,
            offsets=tables.offsets,
            clock=clock,
            settings=settings,
            totals=TransactionTotals(),
            begin=self._begin_transactions,
        )
        self.check_back = CheckBack(
            self.transactions,
            store=store,
            role=writing,
            replication=delivered,
            topics=tables.topics,
            producers=self.consumers.producers,
            clock=clock,
            settings=settings,
        )
        admission = SendAdmission(
            log=store,
            topics=tables.topics,
            groups=tables.groups,
            clock=clock,
            random=random,
            cluster_name=settings.broker_cluster_name,
            delay_levels=len(levels_ms),
            settings=settings,
            open_halves=lambda: self.transactions.open_count,
        )
        self._sends = SendProcessor(
            log=store,
            admission=admission,
            gate=gate,
            half_stored=self.transactions.half_stored,
            totals=self.totals,
            latencies=self.latencies,
            requesters=requesters,
        )
        replies = Replies(
            log=store,
            admission=admission,
            gate=gate,
            requesters=requesters,
            clock=clock,
            stores=lambda: settings.store_reply_message_enable,
            totals=self.totals,
        )
        forwarding.on_reply = replies.passed_back

        def passing(peer: Peer, commands: list[RemotingCommand]) -> None:
            replies.passed_on(peer, commands)
            attach_subscriptions(commands, partial(early.subscribed, peer))

        forwarding.on_passing = passing
        send_back = SendBack(
            store=store,
            topics=tables.topics,
            groups=tables.groups,
            gate=gate,
            random=random,
            permission=lambda: settings.broker_permission,
            delay_levels=len(levels_ms),
            tasks=tasks,
            totals=self.totals,
            latencies=self.latencies,
        )
        self.delivery = DelayDelivery(
            store=store,
            role=writing,
            replication=delivered,
            offsets=tables.delays,
            clock=clock,
            levels_ms=levels_ms,
            totals=self.totals,
            followed=None if settings.pair is None else acknowledgement.followed_end,
        )
        forwarding.on_release(self.delivery.soon)
        self.clients = ClientRequests(
            self.consumers, tables.groups, tables.topics, membership, settings, clock, tasks
        )
        self.unserved = unserved = UnsupportedRequests()
        self._held = HeldPulls(settings.held_pulls_max)
        self.pulls = PullProcessor(
            store=store,
            admission=PullAdmission(
                reading=reading,
                topics=tables.topics,
                groups=tables.groups,
                consumers=self.consumers,
                early=early,
                limits=settings,
            ),
            direction=PullRouting(
                membership,
                settings,
                tables.groups,
                memory_bytes=memory_bytes,
                log_end=store.max_offset,
                master_is_there=lambda: ha.follows,
                lists_former_epochs=lambda: store.dispatched_offset() >= _newest_epoch_start(ha),
            ),
            offsets=tables.offsets,
            renewal=SubscriptionRenewal(self.consumers, early, tasks, requesters.is_former),
            held=self._held,
            clock=clock,
            polling=settings,
            tasks=tasks,
            unserved=unserved,
            totals=self.totals,
            latencies=self.latencies,
            elsewhere=lambda peer, command: self.router.handlers[command.code](peer, command),
        )
        self._status = StatusRequests(
            settings=settings,
            store=store,
            ha=ha,
            role=membership,
            contract_mark=contract_mark,
            counters=self,
            clock=clock,
        )
        self.agreement = MetadataReplication(tables, membership, ha, settings, clock)
        self._hand_over = HandOverRequests(
            membership, acknowledgement, store, ha, forwarding, requesters, clock
        )
        self.router = router = Router()
        router.on_unserved = unserved.asked
        router.add_batch(SEND_CODES, forwarding.sends(self._sends.handle))
        router.add_batch({RequestCode.CONSUMER_SEND_MSG_BACK}, forwarding.sends(send_back.handle))
        router.sends_handler = forwarding.plain_sends(self._sends.handle_plain, self._sends.handle)
        router.add(RequestCode.PULL_MESSAGE, self.pulls.handle)
        router.add(RequestCode.LITE_PULL_MESSAGE, self.pulls.handle)
        add_table_requests(
            router,
            settings=settings,
            role=membership,
            reading=reading,
            store=store,
            tables=tables,
            consumers=self.consumers,
            agreement=self.agreement,
            on_moved=self.pulls.moved,
            recent=self._recent,
            clock=clock,
        )
        replies.add_to(router)
        EndTransaction(self.transactions, store, gate).add_to(router)
        self.clients.add_to(router)
        LockRequests(settings.broker_name, tables, membership, self.agreement, ha, clock).add_to(router)
        self._status.add_to(router)
        self._hand_over.add_to(router)
        forwarding.guard(router)

    def _begin_transactions(self) -> None:
        self._tasks.start(self.transactions.run(), name="transactions")
        self._tasks.start(self.check_back.run(), name="check back")

    def all_added(self) -> None:
        """Observe latencies, where metrics are on: every handler is in the router."""
        if self.latencies is not None:
            self.latencies.watch(self.router)

    def confirmed(self) -> None:
        """The confirm offset or the acknowledged end has moved."""
        self._gate.settle()
        self.delivery.acknowledged()
        self.transactions.acknowledged()
        self.check_back.acknowledged()
        if self.forwarding.passage.forms and self._acknowledgement.enough_in_sync():
            self.forwarding.formed()
        self._hand_over.moved()

    def role_taken(self, *, became_master: bool, grant: Grant | None) -> None:
        """Start a role, or continue it under another epoch: some waiting sends may be answered. `grant` names the
        master of a slave."""
        self._gate.settle()
        if grant is None:
            self.forwarding.leads(is_formed=self._acknowledgement.enough_in_sync())
        else:
            self.forwarding.follows(grant.master_address, grant.master_epoch)
            if self.forwarding.passes_on:
                self.pulls.ask_again()
            elif not self._settings.slave_read_enable:
                self.pulls.release_all()
        self.delivery.role_taken(leads=grant is None)
        self.transactions.role_taken(leads=grant is None)
        self.check_back.role_taken()
        self._hand_over.moved()
        if became_master:
            self.clients.notify_all_groups()

    def only_forward(self) -> None:
        """Only forward for clients: this broker stops, and answers nothing from its store and tables any more."""
        self.forwarding.guards_all(self.router, but=(*SEND_CODES, *CLIENTS_THEMSELVES))

    def leave_mastership(self, *, stopping: bool) -> None:
        """Answer waiting sends as unknown: their outcome will not be known here. Readers are served until the next role,
        unless the broker stops."""
        self.pending.give_up()
        if stopping:
            if not self.forwarding.passes_on:
                self.forwarding.refuse_waiting()
            self.pulls.release_all()

    def disconnected(self, peer: Peer) -> None:
        """A client's connection has ended."""
        self.clients.disconnected(peer)

    def sweep(self, now_ms: int) -> None:
        """Answer requests that have waited long enough at `now_ms` (monotonic), and take the rates."""
        self.pending.expire(now_ms, self._acknowledgement.replicated_end())
        self._gate.settle()  # in a pair, sends that waited for earlier ones
        self.forwarding.expire(now_ms)
        self.pulls.expire(now_ms)
        self._status.sample()
        topics, groups = self._tables.topics, self._tables.groups
        self._recent.sample(
            now_ms,
            lambda name: topics.find(name) is not None,
            lambda name: groups.find(name) is not None,
        )

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
    def open_transactions(self) -> int:
        table = self.transactions.open
        return 0 if table is None else len(table)

    @property
    def pulls_held(self) -> int:
        return len(self._held)

    @property
    def requests_forwarded(self) -> int:
        return self.forwarding.forwarded

    @property
    def requests_late(self) -> int:
        return self.forwarding.late

    @property
    def forwards_to(self) -> str:
        successor = self.forwarding.passage.successor
        return "" if successor is None else successor.address

    @property
    def mean_record_bytes(self) -> float:
        put = self.totals.put
        return put.bytes / put.messages if put.messages else 0.0
