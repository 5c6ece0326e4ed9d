"""One broker process: connects its parts, starts each part after the parts that it needs, and stops them in reverse order.

Invariant: the ports are open before any controller knows this broker. Nothing is accepted before a role was taken. A stopping
master first transfers its role, or if that fails answers all waiting requests. It then leaves the controllers, and after them
the name servers, so that its successor is elected while clients still find this broker."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING

from accesscontrol.guard import AccessGuard
from broker.access.requests import AccessRequests
from broker.admin.nocontrollers import refuse_controllers_requests, refuse_role_changes
from broker.admin.retention import RetentionRequests
from broker.clients.assignments import Assignments
from broker.modes import (
    CopiedLog,
    GroupLog,
    acknowledgements,
    appointed,
    check,
    group_figures,
    group_roles,
    group_tables,
    guard_members,
    replicated_log,
)
from broker.neighbours.neighbours import Neighbours
from broker.neighbours.pairedmaster import ElectedMaster, PairedMaster
from broker.neighbours.recordrepair import RecordRepair
from broker.parts import Parts
from broker.ports import Ports
from broker.requests import Requests
from broker.resync.resync import Resync
from broker.resync.roomforboth import ResyncSpaceCheck
from broker.resync.storeaside import StoreAside, entries
from broker.retention.cleaner import Cleaner
from broker.retention.javatimers import refuse_timers
from broker.retention.leases import Leases
from broker.role.contract import contract_sentence, runs_contract_a
from broker.role.contractmark import KeptContractMark
from broker.role.controllercalls import ControllerCalls
from broker.role.controllerclient import ControllerClient
from broker.role.controllerhosts import ControllerHosts
from broker.role.events import BrokerEvents
from broker.role.identity import IDENTITY_FILE, Identity, TemporaryIdentity
from broker.role.identityfiles import IdentityFiles, LogFound
from broker.role.leaderhealth import HealthProblem, LeaderHealth
from broker.role.manager import ReplicasManager
from broker.role.membership import Membership
from broker.role.memorymark import KeptMemoryMark
from broker.role.replicatable import ReplicaTable
from broker.role.startnumber import KeptStartNumber
from broker.role.switch import RoleSwitch
from broker.settings.broker import BrokerSettings
from broker.switchover.gracefulshutdown import GracefulShutdown
from broker.switchover.passeddeletions import PassedDeletions
from broker.tables.tables import Tables
from epochfile.file import DEFAULT_NAME as EPOCH_FILE
from ha.service.haservice import HAService
from ha.service.replication import Replication
from messagestore.store.brokerstore import BrokerStore
from messagestore.store.settings import FlushDiskType
from mqruntime.httppages import HttpPages
from mqruntime.log import fields
from mqruntime.runtime import RestartWanted, Runtime
from mqruntime.tasks import Tasks
from nativepath import presence
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from broker.role.grouproles import GroupRoles

logger = logging.getLogger("broker")

SWEEP_MS = 200
LAST_WORD_S = 1.0  # for writing a mark to a disk that has just failed and may hang


class BrokerApp:
    """A broker of a set under controllers, of a pair, or of a Raft group."""

    def __init__(self, settings: BrokerSettings, runtime: Runtime) -> None:
        self.settings = settings
        self._runtime = runtime
        self._clock = runtime.clock
        self._probes: HttpPages | None = None
        self._failed: asyncio.Future[BaseException] | None = None
        self._tasks = Tasks(self._fatal)
        self._health = LeaderHealth(settings.yield_after)
        self._level_epoch: int | None = None
        """The epoch in which the log caught up with a master's log; None once the memory mark has recorded this."""
        self._events = BrokerEvents()
        self._build_log()
        self._build_files()
        self._build_requests()
        self._build_role()
        self._build_maintenance()
        self._add_requests()
        self._connect_replication()
        self._connect_events()

    def _build_log(self) -> None:
        settings, runtime = self.settings, self._runtime
        self.membership = Membership(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            poll_ms=settings.sync_broker_metadata_period,
            nonce=f"{runtime.random.getrandbits(64):016x}",
            is_async_learner=settings.async_learner,
        )
        self._log = log = replicated_log(
            settings, runtime, restart=lambda: self._ends_with(RestartWanted()), on_fatal=self._fatal
        )
        self.store: BrokerStore = log.store
        self.ha: Replication = log.replication
        self.tables = Tables(
            settings, runtime.files, self._clock, log.store,
            stamped=isinstance(log, GroupLog), in_pair=settings.pair is not None,
        )  # fmt: skip

    def _build_files(self) -> None:
        """Create the small files that describe the broker itself."""
        settings, runtime = self.settings, self._runtime
        identity_file = settings.store_path_broker_identity or IDENTITY_FILE
        epoch_file = settings.store_path_epoch_file or EPOCH_FILE
        self._aside = StoreAside(
            runtime.files, runtime.side_files or runtime.files, entries(identity_file, epoch_file)
        )
        self._contract_mark = KeptContractMark(runtime.files)
        self.memory_mark = KeptMemoryMark(
            runtime.files, runtime.boot_id, acks_flushed=settings.all_flush_in_sync_state_set
        )
        self._start_number = KeptStartNumber(runtime.files)
        self._identity_files = IdentityFiles(
            runtime.files, identity_file, settings.broker_cluster_name, settings.broker_name
        )

    def _build_requests(self) -> None:
        settings, runtime, clock = self.settings, self._runtime, self._clock
        self._neighbours = Neighbours(
            self.membership,
            settings=settings,
            ha=self.ha,
            tables=self.tables,
            clock=clock,
            network=runtime.network,
            tasks=self._tasks,
            events=self._events,
            fence=group_tables(self._log, self.tables, clock),
        )
        self.acknowledgement, delivered = acknowledgements(self.membership, settings, self.store, self.ha)
        self.requests = Requests(
            Parts(
                settings=settings,
                membership=self.membership,
                store=self.store,
                ha=self.ha,
                tables=self.tables,
                events=self._events,
                acknowledgement=self.acknowledgement,
                delivered=delivered,
                contract_mark=self._contract_mark,
                clock=clock,
                network=runtime.network,
                random=runtime.random,
                follows=self._neighbours.facts.is_sure,
                tasks=self._tasks,
                memory_bytes=runtime.memory_bytes,
            )
        )
        self._ports = Ports(settings, self.requests.router, clock, runtime.network, self._events.disconnected)

    def _build_role(self) -> None:
        settings, clock, membership, ha = self.settings, self._clock, self.membership, self.ha
        self._switch = RoleSwitch(
            membership, store=self.store, ha=ha, tables=self.tables, events=self._events,
            may_have_lost_data=lambda: self.memory_mark.may_have_lost_data,
        )  # fmt: skip
        self._controllers = ControllerClient(self._neighbours.client, settings.controllers)
        self._calls = ControllerCalls(
            membership, settings, self.store, ha, self.memory_mark, self._health, clock,
            self._start_number, incarnation=clock.now_ms(),
        )  # fmt: skip
        self._manager = ReplicasManager(
            membership,
            self._switch,
            ha,
            identity_files=self._identity_files,
            health=self._health,
            timers=settings,
            calls=self._calls,
            controllers=self._controllers,
            clock=clock,
            tables_replicated_to=self.requests.agreement.replicated_to,
            on_registered=self._start_number.registered,
            on_set_back=self._set_back,
            on_fatal=self._fatal,
        )
        self._graceful_shutdown = GracefulShutdown(
            membership,
            ha,
            self._resign,
            calls=self._calls,
            controllers=self._controllers,
            forwarding=self.requests.forwarding,
            pending=self.requests.pending,
            forward_ms=1000 * settings.shutdown_forward_seconds,
            clock=clock,
        )

    def _build_maintenance(self) -> None:
        """Create retention, and the handling of a store that is set aside."""
        settings, runtime, requests = self.settings, self._runtime, self.requests
        self._cleaner = Cleaner(
            store=self.store,
            ha=self.ha,
            leases=Leases(runtime.side_files or runtime.files),
            settings=settings,
            clock=self._clock,
            local_hour=runtime.local_hour,
            undelivered=requests.delivery.first_undelivered,
            open_half=requests.transactions.first_open,
            on_trimmed=self._log_trimmed,
        )
        self._resync = Resync(
            self.membership,
            aside=self._aside,
            room=ResyncSpaceCheck(self.membership, self._neighbours.client, self.store, settings),
            store=self.store,
            ha=self.ha,
            manager=self._manager,
            calls=self._calls,
            controllers=self._controllers,
            is_learner=settings.async_learner,
            clock=self._clock,
            tasks=self._tasks,
            restart=lambda: self._ends_with(RestartWanted()),
        )

    def _add_requests(self) -> None:
        """Add the requests that need more parts than a feature has."""
        settings, requests, client = self.settings, self.requests, self._neighbours.client
        router = requests.router
        RetentionRequests(self._cleaner).add_to(router)
        Assignments(
            requests.consumers,
            requests.unsupported,
            client=client,
            name_servers=settings.name_servers,
            clock=self._clock,
        ).add_to(router)
        deletions = PassedDeletions(self.membership, client, requests.forwarding.naps)
        deletions.guard(router)
        AccessRequests(
            self.tables,
            requests.agreement,
            settings,
            requests.access,
            self.membership,
            deletions.of_master,
            self._clock,
            lambda: self._neighbours.facts.master_is_old,
        ).add_to(router)
        if isinstance(self._log, CopiedLog):
            self._resync.add_to(router)
        else:
            refuse_controllers_requests(router)
        if settings.under_controllers:
            router.add(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._manager.notified)
            ControllerHosts(self._controllers, self._clock, checks_hosts=settings.ha_slave_host_check).guard(
                router
            )
        elif settings.pair is not None:
            refuse_role_changes(router)
        requests.all_added()

    def _connect_replication(self) -> None:
        settings, membership, requests, log = self.settings, self.membership, self.requests, self._log
        client, facts = self._neighbours.client, self._neighbours.facts
        self._group_roles: GroupRoles | None = None
        self._repair: RecordRepair | None = None
        self._links: HAService | None = None
        if isinstance(log, GroupLog):
            self._group_roles = group_roles(
                log, membership, self._manager, self._switch, self._events, self._health, self._clock
            )
            log.member.before_change(requests.agreement.why_not_replicated)
            if settings.authentication_enabled:
                guard_members(log, settings, self.tables, self._clock)
            return
        self._links = links = log.replication
        links.speaks_through(self._manager, ReplicaTable(settings.broker_name, self._controllers))
        links.compares_with(PairedMaster(membership, client) if settings.name_servers else None)
        links.asks_in_doubt(ElectedMaster(membership, client, lambda: facts.master_is_old))
        links.knows_java_by(requests.agreement.is_java)
        links.answers_first(lambda: requests.pending.first_end)
        links.on_link_ended(self._manager.read_sync_state_set)
        if settings.under_controllers:  # epochs show whether the master has the same record
            self._repair = RecordRepair(
                membership, store=log.store, ha=links, client=client, clock=self._clock
            )

    def _connect_events(self) -> None:
        events, store, requests, neighbours = self._events, self.store, self.requests, self._neighbours
        self.ha.on_confirm(events.confirmed)
        self.ha.on_caught_up(self._is_caught_up)
        neighbours.registration.silent_while(lambda: requests.forwarding.listed_as_master)
        requests.forwarding.on_release(neighbours.successor_serves)
        self.tables.on_topics_changed(neighbours.registration.topics_changed)
        if self.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            store.on_flush(events.confirmed)
        store.on_arrival(self._switch.queues_grew)
        for feature in (requests.pulls, requests.delivery, requests.transactions):
            store.on_arrival(feature.arrived)

    @property
    def address(self) -> str:
        """The address that clients and controllers call; known once the ports are open."""
        return self._ports.address

    # -- start and stop

    async def start(self) -> None:
        """Start to serve, without a role yet. Raises the typed errors of the store, the ports, the identity and the tables."""
        self._failed = asyncio.get_running_loop().create_future()
        check(self.settings, self._runtime.segments)
        await self._aside.open()
        if not self.settings.abandon_timers:
            await refuse_timers(self._runtime)
        try:
            report = await self.store.start(saves=False)
        finally:
            await self._note_failed_sync()
        logger.info("compiled module: %s", presence.why_not or "in use")
        logger.info("store recovered", extra=fields(**asdict(report)))
        await self.tables.load()
        await self.ha.start()
        await self._learn_who_we_are()
        if self.memory_mark.sync_failed_before:  # everything below the checkpoint's end was on disk before
            await self.store.sync_again(report.confirm_offset)
        await self._contract_mark.keep(
            contract_a=runs_contract_a(self.settings),
            epoch=self.ha.epoch,
            log_min=self.store.min_offset(),
            log_max=self.store.max_offset(),
        )
        await self._ports.open()
        await self.store.saves_from_now()
        self.store.store_host = self._ports.packed_address
        self.membership.reached_at(self._ports.address)
        self._start_tasks()
        self._manager.start()
        if self._group_roles is not None:
            self._group_roles.start(self._tasks)
        if self.settings.serves_metrics:
            self._probes = await self._serve_probes()
        logger.info(
            "broker started: %s", contract_sentence(self.settings), extra=fields(address=self.address)
        )

    async def stop(self) -> None:
        """Stop gracefully within five seconds, also after a `start` that failed or was cancelled. A former master with a
        successor forwards requests after this time; its data is on disk by then."""
        self._neighbours.finder.retire()
        forwards = await self._graceful_shutdown.step_down()
        if not forwards:
            await self._graceful_shutdown.settle()
        self._switch.stop_serving()
        if forwards:
            self.requests.only_forward()
        if self._probes is not None:
            await self._probes.stop()
        await self._manager.stop()
        await self._neighbours.leave()
        await self.requests.pulls.drained()
        await self._tasks.stop()
        if not forwards:
            await self.requests.forwarding.stop()
            await self._ports.close()
        await self.ha.stop()
        try:
            await self.tables.save()
        except OSError as error:
            logger.error("tables not written at the end", extra=fields(why=error))
        try:
            await self.store.stop()
        finally:
            await self._note_failed_sync()
        await self.memory_mark.close(synced=self.store.is_on_disk)
        if forwards:
            await self._graceful_shutdown.forward()
            await self.requests.forwarding.stop()
            await self._ports.close()
        await self._neighbours.client.close()

    def _resign(self) -> None:
        """Ask the controllers, or the Raft group, to elect another broker."""
        if self._group_roles is not None:
            self._tasks.start(self._group_roles.hand_over(), name="hand over")
            return
        self._health.stops()
        self._manager.beat_now()

    async def wait_failed(self) -> BaseException:
        """Wait for the first fatal error, or for RestartWanted, and return it."""
        assert self._failed is not None, "the broker was started"
        failure = await self._failed
        await self._note_failed_sync()
        return failure

    async def _note_failed_sync(self) -> None:
        if not self.store.sync_failed:
            return
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self.memory_mark.sync_failed()
        except (OSError, TimeoutError) as error:
            logger.error(
                "a sync of the log failed, and it cannot be noted on the disk: before this broker starts again, and "
                "another replica runs, empty its store",
                extra=fields(why=str(error) or "timeout"),
            )

    def _fatal(self, error: BaseException) -> None:
        self.membership.stop()
        self._ends_with(error)

    def _ends_with(self, error: BaseException) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(error)

    def _log_trimmed(self) -> None:
        if self.membership.accepts_sends:
            self.tables.log_trimmed()

    def _is_caught_up(self) -> None:
        self._level_epoch = self.ha.epoch
        self._note_caught_up()

    def _note_caught_up(self) -> None:
        """Record that the log has caught up. A disk that was set back needs its master's tables too."""
        if not self.memory_mark.may_have_lost_data or self._level_epoch != self.ha.epoch:
            return
        if (
            self.memory_mark.was_set_back
            and self.membership.is_slave
            and not self._neighbours.facts.is_copied
        ):
            return
        self._level_epoch = None
        self._tasks.start(self.memory_mark.caught_up(), name="memory mark")

    # -- parts of a start

    async def _learn_who_we_are(self) -> None:
        if appointed(self.settings, self.membership):
            return
        self.membership.restore(await self._who_we_are(), self.ha.epoch)
        await self.memory_mark.open()
        await self._start_number.open()

    async def _set_back(self, known: int) -> None:
        number = self._start_number.number
        await self.memory_mark.set_back()
        await self._start_number.draw(above=known)
        logger.error(
            "disk set back",
            extra=fields(
                start_number=number,
                known=known,
                log_end=self.store.max_offset(),
                hint="controllers know a later start number of this broker: its disk is an earlier image of itself, or a "
                "copy; it is not elected by itself before it has caught up with a master. If its newest disk is at hand, "
                "stop it and start it with that one",
            ),
        )

    async def _who_we_are(self) -> Identity | TemporaryIdentity | None:
        """The identity of this broker, granted or applied for; None if it needs a new id. If the log is gone, its epochs are
        removed, unless the broker still holds its id."""
        assert self._links is not None, "under controllers a log is copied"
        found = LogFound(self.store.has_segments(), self.ha.history)
        identity = await self._identity_files.load(found)
        if not found.segments and not isinstance(identity, Identity):
            await self._links.forget_epochs()
        await self._links.owned_by(identity.broker_id if isinstance(identity, Identity) else None)
        return identity

    def _start_tasks(self) -> None:
        tasks = self._tasks
        self._neighbours.start()
        tasks.start(self.tables.run(), name="tables")
        tasks.start(self.requests.delivery.run(), name="delay delivery")
        tasks.start(self._sweep(), name="sweep")
        tasks.start(self._cleaner.run(), name="retention")
        tasks.start(self._resync.run(), name="store aside")
        if self.settings.under_controllers:
            tasks.start(self._start_number.run(lambda: self.membership.registered), name="start number")
        if self._repair is not None:
            tasks.start(self._repair.run(), name="record repair")

    async def _sweep(self) -> None:
        """The timer for waiting sends, held pulls, rates, and problems that keep this broker from leading."""
        while True:
            await asyncio.sleep(SWEEP_MS / 1000)
            now_ms = self._clock.monotonic_ms()
            self._events.swept(now_ms)
            self._note_caught_up()
            self._health.note(HealthProblem.DISK, not self.store.takes_messages(), now_ms)
            self._health.note(HealthProblem.ROT, bool(self.store.integrity.damages), now_ms)
            self._health.note(HealthProblem.READ, self.store.dispatch_waits, now_ms)
            self._health.note(HealthProblem.SYNC, self.store.sync_lasts_ms() > SWEEP_MS, now_ms)

    async def _serve_probes(self) -> HttpPages:
        from accesscontrol.metrics import AccessCollector  # these load the Prometheus library
        from broker.exporter.collector import BrokerCollector
        from broker.exporter.probes import serve_broker_probes

        collector = BrokerCollector(
            self.membership,
            settings=self.settings,
            store=self.store,
            ha=self.ha,
            tables=self.tables,
            requests=self.requests,
            clock=self._clock,
        )
        access = self.requests.access
        audited = [AccessCollector(access.audit)] if isinstance(access, AccessGuard) else []
        collectors = [collector, *audited, *group_figures(self._log, self.settings)]
        return await serve_broker_probes(
            self.membership,
            settings=self.settings,
            store=self.store,
            ha=self.ha,
            collectors=collectors,
            network=self._runtime.network,
            clock=self._clock,
        )
