"""Watches over the masters: hears heartbeats, notices lost masters, has them replaced, announces the
elected.

Invariant: a master is replaced only by the controller that leads, and only when `Liveness.is_dead`; judging
starts anew with each leadership, so the silence before it is held against nobody. Ended connections are not
forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from controller.decision import Decision
from controller.elections import replace_lost_master
from controller.electpolicy import LiveReport
from controller.events import ElectMaster, Event
from controller.heartbeats import BrokerKey, Heartbeat, Heartbeats, Liveness
from controller.holdings import Held, Holdings, Report
from controller.notify import Notifier
from controller.runner import Busy, CommandRunner
from controller.settings import ControllerSettings
from controller.state import ReplicasState, SyncState
from dledger.actions import Role
from dledger.errors import NotLeader, OutcomeUnknown, TooManyProposals
from mqruntime.clock import Clock
from mqruntime.log import fields
from remoting.headers.controller import BrokerHeartbeatHeader, NotifyBrokerRoleChangedHeader

logger = logging.getLogger(__name__)

LOOK_EVERY_MS = 100
FORGET_EVERY_MS = 60_000


class MasterGuard:
    """`state` is read, never changed; elections go through `runner` like any command. `on_master_told` hears the
    broker name and epoch of each elected master that was sent the news."""

    def __init__(
        self,
        state: ReplicasState,
        runner: CommandRunner,
        notifier: Notifier,
        settings: ControllerSettings,
        clock: Clock,
        on_master_told: Callable[[str, int], None],
        holdings: Holdings,
    ) -> None:
        self._state = state
        self._runner = runner
        self._notifier = notifier
        self._settings = settings
        self._clock = clock
        self._on_master_told = on_master_told
        self._holdings = holdings
        self._heartbeats = Heartbeats()
        self._judging_since_ms = 0
        self._active = False
        self._look = asyncio.Event()
        self._someone_came = asyncio.Event()

    def liveness(self) -> Liveness:
        """Who lives now."""
        now_ms = self._clock.monotonic_ms()
        return self._heartbeats.at(now_ms, self._judging_since_ms, self._holdings.lacking)

    def heard(self, header: BrokerHeartbeatHeader, connection: int) -> None:
        """Request 904 came over `connection`; heartbeats of brokers that are not registered count for
        nothing."""
        assert header.broker_id is not None
        key = self._key(header.broker_name, header.broker_id)
        if key is None or key[0] != header.cluster_name:
            return
        known = self._state.known(header.broker_name)
        member = known is not None and header.broker_id in known[1].members
        held = Report(header.epoch, header.max_offset, header.confirm_offset)
        lacks = self._holdings.heard(key, connection, held, member=member)
        if lacks is not None:
            self._warn_of_lack(key, held, lacks)
        report = LiveReport(header.epoch, header.max_offset, header.election_priority)
        heartbeat = Heartbeat(header.broker_addr, header.heartbeat_timeout_mills, report)
        if self._heartbeats.heard(key, connection, heartbeat, self._clock.monotonic_ms()):
            logger.info("broker alive", extra=fields(cluster=key[0], broker=key[1], id=key[2]))
            self._someone_came.set()
            self._someone_came = asyncio.Event()
            self._look.set()

    def _warn_of_lack(self, key: BrokerKey, held: Report, lacks: Held) -> None:
        logger.warning(
            "a member of the SyncStateSet came back with less than was confirmed; while another member may come it is not "
            "elected: start the others, or elect it with mqadmin electMaster and lose what it lacks",
            extra=fields(
                broker=key[1],
                id=key[2],
                log_end=held.max_offset,
                confirmed=lacks.confirm_offset,
                epoch=lacks.epoch,
            ),
        )

    def registering(self, broker_name: str, broker_id: int, connection: int) -> None:
        """Request 1003 came over `connection`: the broker has been restarted. It is alive once it is heard
        again, and with what its log holds now."""
        key = self._key(broker_name, broker_id)
        if key is not None:
            self._heartbeats.restarted(key, connection, self._clock.monotonic_ms())

    def connection_closed(self, connection: int) -> None:
        """A broker whose connection this was is gone."""
        ended = self._heartbeats.connection_closed(connection, self._clock.monotonic_ms())
        for cluster, broker, broker_id in ended:
            logger.info("broker connection ended", extra=fields(cluster=cluster, broker=broker, id=broker_id))
            self._look.set()

    def role_changed(self, role: Role, term: int) -> None:
        """This controller begins (LEADER, state complete) or ceases to lead."""
        self._active = role is Role.LEADER
        if self._active:
            self._judging_since_ms = self._clock.monotonic_ms()
            logger.info("controller leads", extra=fields(term=term, sets=len(self._state.sync_states)))
            for broker_name in self._state.sync_states:
                self._announce(broker_name)
            self._look.set()

    def applied(self, event: Event) -> None:
        """`event` has just changed the state."""
        if self._active and isinstance(event, ElectMaster):
            self._announce(event.broker_name)
            if event.master_id is None:
                self._look.set()

    async def wait_alive(self, broker_name: str, broker_id: int, timeout_ms: int) -> None:
        """Returns once a registered broker has been heard, or the time is over."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while (key := self._key(broker_name, broker_id)) and not self.liveness().is_alive(key):
                    await self._someone_came.wait()
        except TimeoutError:
            return

    def decide(self, decide: Callable[[ReplicasState, Liveness], Decision]) -> Decision:
        """What a command comes to now."""
        return decide(self._state, self.liveness())

    async def watch(self) -> None:
        """Replace lost masters until cancelled: at once when something happened, else, while leading, each period."""
        leading_ms = min(
            LOOK_EVERY_MS,
            self._settings.scan_inactive_master_interval_ms,
            self._settings.scan_not_active_broker_interval_ms,
        )
        forget_at_ms = 0
        while True:
            try:
                async with asyncio.timeout((leading_ms if self._active else FORGET_EVERY_MS) / 1000):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            now_ms = self._clock.monotonic_ms()
            if now_ms >= forget_at_ms:
                self._heartbeats.forget_silent(now_ms)
                forget_at_ms = now_ms + FORGET_EVERY_MS
            if self._active:
                await self._replace_lost_masters()

    async def _replace_lost_masters(self) -> None:
        for broker_name in list(self._state.sync_states):
            due = self._replacement(broker_name)
            if due is None or not due.events:
                continue
            before = replace(self._state.sync_states[broker_name])
            try:
                decision = await self._runner.run(partial(self._replacement, broker_name))
            except (NotLeader, Busy, TooManyProposals, OutcomeUnknown) as error:
                logger.warning(
                    "election not held", extra=fields(broker=broker_name, reason=due.reason, why=error)
                )
                continue
            if decision is not None:
                self.log_election(broker_name, decision, before)

    def _replacement(self, broker_name: str) -> Decision | None:
        unclean = self._settings.enable_elect_unclean_master
        return replace_lost_master(self._state, self.liveness(), broker_name=broker_name, unclean=unclean)

    def log_election(
        self, broker_name: str, decision: Decision, before: SyncState, asked_by: str | None = None
    ) -> None:
        """One line for each election that changed something; `asked_by` is where a request for it came from."""
        elected = next((event for event in decision.events if isinstance(event, ElectMaster)), None)
        sync_state = self._state.sync_states.get(broker_name)
        if elected is None or sync_state is None:
            return
        logger.info(
            "elected" if elected.master_id is not None else "struck off",
            extra=fields(
                broker=broker_name,
                reason=decision.reason,
                **({} if asked_by is None else {"asked_by": asked_by}),
                old=before.master_id,
                new=elected.master_id,
                unclean=before.master_epoch > 0 and elected.master_id not in before.members | {None},
                epoch=sync_state.master_epoch,
                sync_state_set=sorted(sync_state.members),
                set_epoch=sync_state.set_epoch,
            ),
        )

    def _announce(self, broker_name: str) -> None:
        known = self._state.known(broker_name)
        if known is None or not self._settings.notify_broker_role_changed:
            return
        replicas, sync_state = known
        master = replicas.by_id.get(sync_state.master_id or 0)
        if master is None:
            return
        live = self.liveness()
        header = NotifyBrokerRoleChangedHeader(
            master.address, sync_state.master_epoch, sync_state.set_epoch, sync_state.master_id
        )
        addresses = [
            replica.address
            for broker_id, replica in replicas.by_id.items()
            if live.is_reachable((replicas.cluster_name, broker_name, broker_id))
        ]
        epoch = sync_state.master_epoch

        def sent(address: str) -> None:
            if address == master.address:
                self._on_master_told(broker_name, epoch)

        self._notifier.announce(addresses, header, sync_state.members, sent)

    def _key(self, broker_name: str, broker_id: int) -> BrokerKey | None:
        """Under the stored cluster name; None for a broker that is not registered."""
        replicas = self._state.replicas.get(broker_name)
        if replicas is None or broker_id not in replicas.by_id:
            return None
        return (replicas.cluster_name, broker_name, broker_id)
