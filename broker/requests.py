"""The features of a broker. Each method creates one feature, adds its requests to the router, and registers it for events.

Invariant: one router serves all ports. Until its answer, a send waits in `pending` and a pull in `held`; both are limited.
Listeners of one event are called in the order of the methods here. Latencies exist only while metrics are on."""

from __future__ import annotations

from functools import partial

from accesscontrol.guard import AccessGuard
from broker.access.control import access_of, make_first_administrator
from broker.access.needs import send_need
from broker.admin.status import StatusRequests
from broker.admin.tables import add_table_requests
from broker.clients.groups import ConsumerGroups
from broker.clients.lockrequests import LockRequests
from broker.clients.provisionalsubscriptions import ProvisionalSubscriptions
from broker.clients.readgate import ReadGate
from broker.clients.renewal import SubscriptionRenewal
from broker.clients.requesters import Requesters
from broker.clients.requests import ClientRequests
from broker.clients.unsupportedrequests import UnsupportedRequests
from broker.metrics.latencies import Latencies
from broker.metrics.recent import RecentTotals
from broker.metrics.totals import Totals
from broker.metrics.transactiontotals import TransactionTotals
from broker.neighbours.agreement import LEASE_MS, MetadataReplication
from broker.parts import Parts
from broker.pulls.admission import PullAdmission
from broker.pulls.direction import PullRouting
from broker.pulls.held import HeldPulls
from broker.pulls.processor import PullProcessor
from broker.replication.pending import PendingSends
from broker.replication.writegate import WriteGate
from broker.role.events import RoleTaken
from broker.role.membership import Membership
from broker.sends.admission import SendAdmission
from broker.sends.delaydelivery import DelayDelivery
from broker.sends.processor import SEND_CODES, SendProcessor
from broker.sends.replies import Replies
from broker.sends.sendback import SendBack
from broker.switchover.forwarding import Forwarding
from broker.switchover.forwardingstate import FORWARD_MS
from broker.switchover.handover import HandOverRequests
from broker.switchover.passedpulls import attach_subscriptions
from broker.transactions.checkback import CheckBack
from broker.transactions.ending import EndTransaction
from broker.transactions.transactions import Transactions
from ha.service.replication import Replication
from messagestore.delaylevels import delay_levels_ms
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router
from remoting.signing import Signer

CLIENTS_THEMSELVES = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.QUERY_ASSIGNMENT,
)
"""Requests that a broker answers by itself even when it only forwards, because consumers send heartbeats to all brokers of a
set."""

UNSURE = "this broker has not heard from the other replicas for a moment, and may not know the present users; ask again"


class WriteAdmission:
    """Whether this broker may store a message that no client sends now, such as a delayed message that is due."""

    def __init__(self, membership: Membership, forwarding: Forwarding) -> None:
        self._membership = membership
        self._forwarding = forwarding

    @property
    def accepts_sends(self) -> bool:
        return self._membership.accepts_sends and self._forwarding.state.writes_here

    @property
    def is_slave(self) -> bool:
        return self._membership.is_slave


def _newest_epoch_start(ha: Replication) -> int:
    newest = ha.history.last()
    return 0 if newest is None else newest.start_offset


class Requests:
    """The features. The caller runs `delivery` in a task. Transactions start their own tasks at the first transaction."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.router = Router()
        settings, tables = parts.settings, parts.tables
        self.totals = Totals(with_sizes=settings.serves_metrics)
        self._recent = RecentTotals(self.totals, settings.broker_cluster_name)
        self.latencies = (
            Latencies(parts.clock, tables.topics, settings.slave_timeout) if settings.serves_metrics else None
        )
        self.consumers = ConsumerGroups(tables.filters)
        self._provisional = ProvisionalSubscriptions(self.consumers)
        self._requesters = Requesters(self.consumers, lambda peer, request: self.access.signer(peer, request))
        self.access = access_of(
            settings,
            tables,
            parts.clock,
            self._requesters.is_former,
            self._why_unsure,
            self._waits,
        )
        self._reading = ReadGate(parts.membership, settings)
        self.unsupported = UnsupportedRequests()
        self.router.on_unserved = self.unsupported.asked
        self._add_write_gate()
        self._add_forwarding()
        self._add_pulls()
        self._add_transactions()
        self._add_sends()
        self._add_administration()
        self._add_clients()
        self._add_hand_over()
        parts.events.role_taken.add(self._rebalance_consumers)
        self._add_access()
        self.forwarding.guard(self.router)

    # The features, in the order in which they are notified of an event

    def _add_write_gate(self) -> None:
        parts = self._parts
        settings, events = parts.settings, parts.events
        self.pending = pending = PendingSends(
            settings.waiting_sends_max,
            self.latencies.sends_settled if self.latencies is not None else None,
        )
        self._gate = gate = WriteGate(
            parts.membership, parts.acknowledgement, pending, parts.clock, wait_ms=settings.send_wait_ms
        )

        def swept(now_ms: int) -> None:
            pending.expire(now_ms, parts.acknowledgement.replicated_end())
            gate.settle()  # in a pair: sends that waited for the expired sends

        events.confirmed.add(gate.settle)
        events.role_taken.add(lambda taken: gate.settle())
        events.mastership_left.add(lambda stopping: pending.give_up())
        events.swept.add(swept)

    def _add_forwarding(self) -> None:
        """Add the handling of requests that come to a former master, or during a planned hand-over."""
        parts = self._parts
        settings, events, membership = parts.settings, parts.events, parts.membership
        self.forwarding = forwarding = Forwarding(
            parts.clock,
            Tasks(parts.tasks.fail),
            parts.network,
            carried_max=settings.waiting_sends_max,
            forward_ms=max(FORWARD_MS, 1000 * settings.shutdown_forward_seconds),
            readers_wait=isinstance(self.access, AccessGuard),
            signer=Signer.of(settings.inner_keys),
        )
        forwarding.own_id = lambda: membership.broker_id
        self._writing = WriteAdmission(membership, forwarding)

        def role_taken(taken: RoleTaken) -> None:
            if taken.leads:
                forwarding.leads(is_formed=self._is_formed())
            else:
                forwarding.follows(taken.grant.master_address, taken.grant.master_epoch)

        def mastership_left(stopping: bool) -> None:
            if stopping and not forwarding.passes_on:
                forwarding.refuse_waiting()

        events.role_taken.add(role_taken)
        events.role_announced.add(forwarding.announced)
        events.master_moved.add(forwarding.follows)
        events.mastership_left.add(mastership_left)
        events.transfer_began.add(forwarding.hand_over)
        events.transfer_failed.add(forwarding.called_off)
        events.swept.add(forwarding.expire)

    def _add_pulls(self) -> None:
        parts = self._parts
        settings, events, store, ha, tables = (
            parts.settings,
            parts.events,
            parts.store,
            parts.ha,
            parts.tables,
        )
        self._held = HeldPulls(settings.held_pulls_max)
        self.pulls = pulls = PullProcessor(
            store=store,
            admission=PullAdmission(
                reading=self._reading,
                topics=tables.topics,
                groups=tables.groups,
                consumers=self.consumers,
                provisional=self._provisional,
                limits=settings,
            ),
            direction=PullRouting(
                parts.membership,
                settings,
                tables.groups,
                memory_bytes=parts.memory_bytes,
                log_end=store.max_offset,
                master_is_there=lambda: ha.follows,
                lists_former_epochs=lambda: store.dispatched_offset() >= _newest_epoch_start(ha),
            ),
            offsets=tables.offsets,
            renewal=SubscriptionRenewal(
                self.consumers, self._provisional, parts.tasks, self._requesters.is_former, parts.clock
            ),
            held=self._held,
            clock=parts.clock,
            polling=settings,
            tasks=parts.tasks,
            unsupported=self.unsupported,
            totals=self.totals,
            latencies=self.latencies,
            elsewhere=lambda peer, command: self.router.handlers[command.code](peer, command),
            recheck=self.access.recheck,
        )
        self.router.add(RequestCode.PULL_MESSAGE, pulls.handle)
        self.router.add(RequestCode.LITE_PULL_MESSAGE, pulls.handle)

        def role_taken(taken: RoleTaken) -> None:
            if not taken.leads and self.forwarding.passes_on:
                pulls.ask_again()
            elif not taken.leads and not settings.slave_read_enable:
                pulls.release_all()

        def mastership_left(stopping: bool) -> None:
            """Called when mastership ends. Readers are still answered until there is another role, unless the broker stops."""
            if stopping:
                pulls.release_all()

        events.role_taken.add(role_taken)
        events.mastership_left.add(mastership_left)
        events.swept.add(pulls.expire)

    def _add_transactions(self) -> None:
        """Add transactions and delayed messages. Both store copies of messages in the log."""
        parts = self._parts
        settings, events, store, tables = parts.settings, parts.events, parts.store, parts.tables
        followed = None if settings.pair is None else parts.acknowledgement.followed_end
        self.delivery = delivery = DelayDelivery(
            store=store,
            role=self._writing,
            replication=parts.delivered,
            offsets=tables.delays,
            clock=parts.clock,
            levels_ms=delay_levels_ms(settings.message_delay_level),
            totals=self.totals,
            followed=followed,
        )
        self.transactions = transactions = Transactions(
            store=store,
            role=self._writing,
            replication=parts.delivered,
            followed=followed,
            offsets=tables.offsets,
            clock=parts.clock,
            settings=settings,
            totals=TransactionTotals(),
            begin=self._begin_transactions,
        )
        self.check_back = check_back = CheckBack(
            transactions,
            store=store,
            role=self._writing,
            replication=parts.delivered,
            topics=tables.topics,
            producers=self.consumers.producers,
            may_end=lambda client, topic: self.access.allows(
                client.caller, RequestCode.END_TRANSACTION, send_need(topic)
            ),
            clock=parts.clock,
            settings=settings,
        )
        EndTransaction(transactions, store, self._gate, self.access).add_to(self.router)
        self.forwarding.on_release(delivery.soon)
        for feature in (delivery, transactions, check_back):
            events.confirmed.add(feature.acknowledged)
        events.role_taken.add(lambda taken: delivery.role_taken(leads=taken.leads))
        events.role_taken.add(lambda taken: transactions.role_taken(leads=taken.leads))
        events.role_taken.add(lambda taken: check_back.role_taken())

    def _begin_transactions(self) -> None:
        self._parts.tasks.start(self.transactions.run(), name="transactions")
        self._parts.tasks.start(self.check_back.run(), name="check back")

    def _add_sends(self) -> None:
        parts = self._parts
        settings, store, tables = parts.settings, parts.store, parts.tables
        levels = len(delay_levels_ms(settings.message_delay_level))
        admission = SendAdmission(
            log=store,
            topics=tables.topics,
            groups=tables.groups,
            clock=parts.clock,
            random=parts.random,
            cluster_name=settings.broker_cluster_name,
            delay_levels=levels,
            settings=settings,
            open_halves=lambda: self.transactions.open_count,
        )
        self._sends = sends = SendProcessor(
            log=store,
            admission=admission,
            gate=self._gate,
            half_stored=self.transactions.half_stored,
            totals=self.totals,
            latencies=self.latencies,
            requesters=self._requesters,
        )
        send_back = SendBack(
            store=store,
            topics=tables.topics,
            groups=tables.groups,
            gate=self._gate,
            random=parts.random,
            permission=lambda: settings.broker_permission,
            delay_levels=levels,
            tasks=parts.tasks,
            access=self.access,
            totals=self.totals,
            latencies=self.latencies,
        )
        router, forwarding = self.router, self.forwarding
        router.add_batch(SEND_CODES, forwarding.sends(sends.handle))
        router.add_batch({RequestCode.CONSUMER_SEND_MSG_BACK}, forwarding.sends(send_back.handle))
        router.sends_handler = forwarding.plain_sends(sends.handle_plain, sends.handle)
        self._add_replies(admission)

    def _add_replies(self, admission: SendAdmission) -> None:
        """Add the replies of consumers to requests of producers."""
        parts, settings = self._parts, self._parts.settings
        replies = Replies(
            log=parts.store,
            admission=admission,
            gate=self._gate,
            requesters=self._requesters,
            clock=parts.clock,
            stores=lambda: settings.store_reply_message_enable,
            totals=self.totals,
            recheck=self.access.recheck,
        )
        replies.add_to(self.router)

        def passing(peer: Peer, commands: list[RemotingCommand]) -> None:
            attach_subscriptions(commands, partial(self._provisional.subscribed, peer))

        self.forwarding.on_reply = replies.passed_back
        self.forwarding.before_passing = replies.passed_on
        self.forwarding.on_passing = passing

    def _add_administration(self) -> None:
        parts = self._parts
        membership, settings, tables = parts.membership, parts.settings, parts.tables
        self.agreement = MetadataReplication(tables, membership, parts.ha, settings, parts.clock)
        parts.events.role_taken.add(self.agreement.role_taken)
        add_table_requests(
            self.router,
            settings=settings,
            role=membership,
            reading=self._reading,
            store=parts.store,
            tables=tables,
            consumers=self.consumers,
            agreement=self.agreement,
            on_moved=self.pulls.moved,
            recent=self._recent,
            clock=parts.clock,
            access=self.access,
        )
        status = StatusRequests(
            settings=settings,
            store=parts.store,
            ha=parts.ha,
            role=membership,
            contract_mark=parts.contract_mark,
            counters=self,
            clock=parts.clock,
        )
        status.add_to(self.router)

        def swept(now_ms: int) -> None:
            status.sample()
            self._recent.sample(
                now_ms,
                lambda name: tables.topics.find(name) is not None,
                lambda name: tables.groups.find(name) is not None,
            )

        parts.events.swept.add(swept)

    def _add_clients(self) -> None:
        parts = self._parts
        membership, settings, tables = parts.membership, parts.settings, parts.tables
        self.clients = ClientRequests(
            self.consumers,
            tables.groups,
            tables.topics,
            membership,
            settings,
            parts.clock,
            parts.tasks,
            self.access,
        )
        self.clients.add_to(self.router)
        LockRequests(settings.broker_name, tables, membership, self.agreement, parts.ha, parts.clock).add_to(
            self.router
        )
        parts.events.disconnected.add(self.clients.disconnected)

    def _add_hand_over(self) -> None:
        parts, forwarding = self._parts, self.forwarding
        hand_over = HandOverRequests(
            parts.membership,
            parts.acknowledgement,
            parts.store,
            parts.ha,
            forwarding,
            self._requesters,
            parts.clock,
            is_guarded=isinstance(self.access, AccessGuard),
        )
        hand_over.add_to(self.router)

        def look_if_formed() -> None:
            if forwarding.state.forms and self._is_formed():
                forwarding.formed()

        def confirmed() -> None:
            look_if_formed()
            hand_over.moved()

        parts.events.confirmed.add(confirmed)
        parts.events.swept.add(lambda now_ms: look_if_formed())
        self.agreement.on_followed = look_if_formed
        parts.events.role_taken.add(lambda taken: hand_over.moved())

    def _rebalance_consumers(self, taken: RoleTaken) -> None:
        """Called when a role is taken. The consumers of a new master rebalance."""
        if taken.became_master:
            self.clients.notify_all_groups()

    def _add_access(self) -> None:
        parts = self._parts
        if isinstance(self.access, AccessGuard):
            self.forwarding.on_passing_to_ours = self.access.name_client
            self.forwarding.recheck = self.access.recheck
            # who waits for messages, or is a member of a group, may have lost the right
            parts.tables.on_access_changed(self.pulls.check_again)
            parts.tables.on_access_changed(self.clients.rights_changed)
            parts.events.role_taken.add(partial(make_first_administrator, parts.settings, parts.tables))

    def _is_formed(self) -> bool:
        """Whether this master has the followers that it needs to acknowledge messages and, with access control, to be sure that
        it leads."""
        enough = self._parts.acknowledgement.enough_in_sync()
        return enough and (self.agreement.is_sure or not isinstance(self.access, AccessGuard))

    def _why_unsure(self) -> str | None:
        """Why this broker may not know the present users and policies; None if it knows them. See agreement.LEASE_MS."""
        is_sure = self.agreement.is_sure or self._parts.follows(LEASE_MS)
        return None if is_sure else UNSURE

    def _waits(self, code: int) -> bool:
        """Whether a request waits that this broker cannot check now, because it is unsure."""
        if self._parts.membership.accepts_sends:
            self.forwarding.unsure()
        return self.forwarding.checks_later(code)

    # Life cycle

    def all_added(self) -> None:
        """Called when every handler is in the router. From now on requests are checked, and while metrics are on, latencies are
        observed."""
        if isinstance(self.access, AccessGuard):
            self.access.guard(self.router, send_need)
        if self.latencies is not None:
            self.latencies.watch(self.router)

    def only_forward(self) -> None:
        """Only forward from now on, because this broker stops: it answers no request from its store and tables any more."""
        self.forwarding.guards_all(self.router, but=(*SEND_CODES, *CLIENTS_THEMSELVES))

    # Figures

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
        successor = self.forwarding.state.successor
        return "" if successor is None else successor.address

    @property
    def mean_record_bytes(self) -> float:
        put = self.totals.put
        return put.bytes / put.messages if put.messages else 0.0
