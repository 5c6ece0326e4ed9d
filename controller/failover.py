"""Failover of broker sets: notices lost masters, replaces them, and announces elected masters. All elections go through
`MasterFailover.elect`.

Invariant: only the leading controller replaces a master, and only a master that is dead, reports that it cannot lead, or is not
in its SyncStateSet. The controller checks a few sets in a turn of the event loop. A slow election of one set delays no other
set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice

from controller.decision import Decision
from controller.elections import replace_lost_master, waiting
from controller.events import ElectMaster, Event
from controller.handover import HandOver
from controller.heartbeats import Liveness
from controller.livebrokers import LiveBrokers
from controller.masterless import Unelected
from controller.notify import Notifier
from controller.reasons import UNCLEAN
from controller.runner import Busy, CommandRunner, D
from controller.setlocks import ITSELF, CommandSource
from controller.settings import ControllerSettings
from controller.state import ReplicasState, SyncState
from dledger.raft.actions import Role
from dledger.raft.errors import NotLeader, OutcomeUnknown, TooManyProposals
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.tasks import Tasks
from mqruntime.waking import wait_event
from remoting.headers.controller import NotifyBrokerRoleChangedHeader

logger = logging.getLogger(__name__)

LOOK_EVERY_MS = 100
LOOK_AT_ALL_EVERY_MS = 500
"""Interval of checking all sets, also those without news, because a master's heartbeats may simply have stopped."""
FORGET_EVERY_MS = 60_000
LOG_EVERY_MS = 5_000
SETS_A_TURN = 64
"""Few enough to keep a turn of the loop short."""


class MasterFailover:
    """`state` is read and never changed. Elections go through `runner` like any command. Call `changed` when there is news of a
    broker. `on_master_notified` is called with the broker name and epoch of each elected master that was notified."""

    def __init__(
        self,
        state: ReplicasState,
        brokers: LiveBrokers,
        runner: CommandRunner,
        notifier: Notifier,
        hand_over: HandOver,
        settings: ControllerSettings,
        clock: Clock,
        tasks: Tasks,
        on_master_notified: Callable[[str, int], None],
    ) -> None:
        self._state = state
        self._brokers = brokers
        self._runner = runner
        self._notifier = notifier
        self._hand_over = hand_over
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._on_master_notified = on_master_notified
        self._active = False
        self._wake = asyncio.Event()
        self._changed: dict[str, None] = {}
        """Sets with news of a broker since the last check."""
        self._unannounced: dict[str, None] = {}
        """Sets that this new leader has not notified of their masters yet."""
        self._unled: dict[str, None] = {}
        """Sets that have no master, or whose election failed."""
        self._unelected = Unelected()
        self._under_way: set[str] = set()
        """Sets with an election in progress."""

    def changed(self, broker_name: str) -> None:
        """Called when a broker of this set came, or when a broker's connection ended."""
        self._changed[broker_name] = None
        self._wake.set()

    def role_changed(self, role: Role, term: int) -> None:
        """Start to lead if `role` is LEADER (the state is then complete), else stop."""
        self._active = role is Role.LEADER
        self._unelected.look({}, self._clock.monotonic_ms())
        if self._active:
            self._brokers.judge_from_now()
            logger.info("controller leads", extra=fields(term=term, sets=len(self._state.sync_states)))
            self._unannounced = dict.fromkeys(self._state.sync_states)
            self._changed = dict.fromkeys(self._state.sync_states)
            self._wake.set()

    def applied(self, event: Event) -> None:
        """Called when `event` has just changed the state."""
        if self._active and isinstance(event, ElectMaster):
            self.announce(event.broker_name)
            if event.master_id is None:
                self.changed(event.broker_name)

    async def elect(
        self,
        broker_name: str,
        decide: Callable[[ReplicasState, Liveness], D],
        asked_by: str | None = None,
        asker: CommandSource = ITSELF,
    ) -> D:
        """Carry out an election through the runner, like any command. `asked_by` is the address that requested the election."""
        before = SyncState()

        def decide_now(state: ReplicasState, live: Liveness) -> D:
            nonlocal before
            before = replace(state.sync_states.get(broker_name, before))
            return decide(state, live)

        leaving = await self._hand_over.prepare(broker_name, decide) if self._active else None
        try:
            decision = await self._runner.run(broker_name, decide_now, asker)
        except (NotLeader, Busy, TooManyProposals):
            self._hand_over.called_off(leaving)
            raise
        if decision is None or not decision.events:
            self._hand_over.called_off(leaving)
        if decision is not None:
            self._log_election(broker_name, decision, before, asked_by)
        return decision

    async def watch(self) -> None:
        """Replace lost masters until cancelled. A set with news is checked at once, a set whose master cannot be replaced yet
        repeatedly, and all sets at longer intervals."""
        settings = self._settings
        scan_ms = min(settings.scan_inactive_master_interval_ms, settings.scan_not_active_broker_interval_ms)
        look_ms, look_at_all_ms = min(LOOK_EVERY_MS, scan_ms), min(LOOK_AT_ALL_EVERY_MS, scan_ms)
        forget_at_ms = look_at_ms = all_at_ms = log_at_ms = 0
        while True:
            now_ms = self._clock.monotonic_ms()
            await wait_event(self._wake, max(1, look_at_ms - now_ms) if self._active else FORGET_EVERY_MS)
            self._wake.clear()
            now_ms = self._clock.monotonic_ms()
            if now_ms >= forget_at_ms:
                self._brokers.forget_silent()
                forget_at_ms = now_ms + FORGET_EVERY_MS
            if self._active and now_ms >= log_at_ms:
                log_at_ms = now_ms + LOG_EVERY_MS
                await self._log_unelected(now_ms)
            if self._active and now_ms >= all_at_ms:
                all_at_ms = now_ms + look_at_all_ms
                self._changed = dict.fromkeys(self._state.sync_states)
            if self._active and now_ms >= look_at_ms:
                look_at_ms = now_ms + look_ms
                self._changed |= self._unled
                self._unled = {}
            unannounced, self._unannounced = self._unannounced, {}
            async for names in a_few_a_turn(unannounced):
                for broker_name in names if self._active else ():
                    self.announce(broker_name)
            changed, self._changed = self._changed, {}
            async for names in a_few_a_turn(changed):
                self._replace_lost_masters(names)

    def _replace_lost_masters(self, names: Iterable[str]) -> None:
        """Replace masters concurrently, so that the proposals share disk syncs and messages to the other controllers."""
        live = self._brokers.liveness()
        for broker_name in names if self._active else ():
            self._brokers.log_silent(broker_name)
            sync_state = self._state.sync_states.get(broker_name)
            if sync_state is not None and sync_state.master_id is None:
                self._unled[broker_name] = None
            if broker_name not in self._under_way and self._is_due(broker_name, live):
                self._under_way.add(broker_name)
                self._tasks.start(self._replace_lost_master(broker_name), name=f"elect {broker_name}")

    async def _log_unelected(self, now_ms: int) -> None:
        found = {}
        async for names in a_few_a_turn(dict(self._unled)):
            live = self._brokers.liveness()
            for name in names:
                if (why := waiting(self._state, live, broker_name=name)) is not None:
                    found[name] = why
        self._unelected.look(found if self._active else {}, now_ms)

    def _is_due(self, broker_name: str, live: Liveness) -> bool:
        due = self._replacement(broker_name, self._state, live)
        return due is not None and bool(due.events)

    async def _replace_lost_master(self, broker_name: str) -> None:
        try:
            await self.elect(broker_name, partial(self._replacement, broker_name))
        except (NotLeader, Busy, TooManyProposals, OutcomeUnknown) as error:
            logger.warning("election not held", extra=fields(broker=broker_name, why=error))
            self._unled[broker_name] = None
        finally:
            self._under_way.discard(broker_name)

    def _replacement(self, broker_name: str, state: ReplicasState, live: Liveness) -> Decision | None:
        unclean = self._settings.enable_elect_unclean_master
        return replace_lost_master(state, live, broker_name=broker_name, unclean=unclean)

    def _log_election(
        self, broker_name: str, decision: Decision, before: SyncState, asked_by: str | None
    ) -> None:
        """Log one line for each election that changed the state."""
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
                unclean=(decision.reason or "").endswith(UNCLEAN),
                epoch=sync_state.master_epoch,
                sync_state_set=sorted(sync_state.members),
                set_epoch=sync_state.set_epoch,
                eligible=sorted(sync_state.eligible),
            ),
        )

    def announce(self, broker_name: str) -> None:
        """Notify all brokers of the set of its master and members."""
        known = self._state.known(broker_name)
        if known is None or not self._settings.notify_broker_role_changed:
            return
        replicas, sync_state = known
        master = replicas.by_id.get(sync_state.master_id or 0)
        if master is None:
            return
        live = self._brokers.liveness()
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
                self._on_master_notified(broker_name, epoch)

        self._notifier.announce(addresses, header, sync_state.members, sent)


async def a_few_a_turn(names: Iterable[str]) -> AsyncIterator[list[str]]:
    """All names in batches, yielding to the loop in between."""
    rest = iter(names)
    few = list(islice(rest, SETS_A_TURN))
    while few:
        yield few
        few = list(islice(rest, SETS_A_TURN))
        if few:
            await asyncio.sleep(0)
