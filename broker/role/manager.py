"""Shell of `broker.role.membership`: performs the actions of the state machine, and sends the requests of `ha` to the
controllers. Upstream: ReplicasManager.

Invariant: neither the reaction to a notification nor the change to a granted role waits for a pending controller call.
Heartbeats to each controller have their own task, so no controller delays the heartbeats to another. Writes that a full disk
rejects are repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from broker.role.actions import (
    Action,
    AskAll,
    BeginHeartbeats,
    Call,
    Disbelieved,
    Duplicate,
    ElectCall,
    Follow,
    Grant,
    Lead,
    MasterMoved,
    NoteSetBack,
    PollCall,
    RoleAnnounced,
    SaveIdentity,
    SaveTemporary,
    SetRead,
)
from broker.role.controllercalls import ControllerCalls, said_grant
from broker.role.controllerclient import ControllerClient
from broker.role.identityfiles import IdentityFiles
from broker.role.leaderhealth import HealthProblem, LeaderHealth
from broker.role.membership import Membership, ReplicaRole
from broker.role.switch import RoleChangeFailed, RoleRefused, RoleSwitch
from ha.service.replication import Replication
from ha.syncstateset import Alter, AlterNotSent, AlterOutcome, AlterUnknown
from mqruntime.clock import Clock
from mqruntime.coretimer import CoreTimer
from mqruntime.diskfull import RetriedWrite
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks
from mqruntime.waking import wait_event
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError, NotSent, RemotingError
from remoting.peer import Peer

logger = logging.getLogger("broker.replicasmanager")

ALTER = "AlterCall"  # the name of the call in logs
TRYING_ON = (
    "controller call failed, retrying; a majority of controllers must run at the addresses of controllerAddr"
)


UNTRUE = {
    "notification": "stop the sender of 1008 with such epochs; no controller does, and nothing was changed",
    "answer": (
        "check that controllerAddr names the controllers of this cluster and nobody else; if they did hold so many elections, "
        "resync with an empty store: mqadmin resyncBroker"
    ),
}
"""Source of an impossible epoch -> the hint for an operator."""


class Timers(Protocol):
    """Settings of the manager's intervals, in ms."""

    sync_controller_metadata_period: int
    broker_heartbeat_interval: int


class ReplicasManager:
    """One broker's side of the controller protocol; call `start` once `membership` knows identity and address."""

    def __init__(
        self,
        membership: Membership,
        roles: RoleSwitch,
        ha: Replication,
        *,
        identity_files: IdentityFiles,
        health: LeaderHealth,
        timers: Timers,
        calls: ControllerCalls,
        controllers: ControllerClient,
        clock: Clock,
        tables_replicated_to: Callable[[frozenset[int]], Awaitable[bool]],
        on_registered: Callable[[], None],
        on_set_back: Callable[[int], Awaitable[None]],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`tables_replicated_to(members)`: whether all members hold the table rows that were acknowledged to administrators.
        `on_set_back(known)` durably records that the disk was set back, and draws a start number above `known`."""
        self._membership = membership
        self._roles = roles
        self._ha = ha
        self._identity_files = identity_files
        self._health = health
        self._timers = timers
        self._calls = calls
        self._controllers = controllers
        self._clock = clock
        self._tables_replicated_to = tables_replicated_to
        self._on_registered = on_registered
        self._on_set_back = on_set_back
        self._tasks = Tasks(on_fatal)
        self._timer = CoreTimer(clock, self._tasks, self._tick)
        self._running = False
        self._may_beat = asyncio.Event()  # set once the broker has registered: the controllers know its id
        self._beat_now = asyncio.Event()  # replaced each time that it was set
        self._no_change = asyncio.Event()  # no change of role is running
        self._no_change.set()
        self._failure = RepeatedFailure()
        self._duplicate = RepeatedFailure()
        self._write = RetriedWrite(logger, "broker id cannot be saved, retrying")
        self._role_failure = RepeatedFailure()
        self._disbelieved = {source: RepeatedFailure() for source in UNTRUE}

    def start(self) -> None:
        """Start the tasks that call the controllers."""
        self._running = True
        if self._controllers.addresses:
            self._tasks.start(self._run_discovery(), name="controller discovery")
        for address in self._controllers.addresses:
            self._tasks.start(self._run_heartbeats(address), name=f"heartbeats to {address}")
        self._tick()

    async def stop(self) -> None:
        self._running = False
        self._timer.cancel()
        await self._tasks.stop()

    # -- events

    def notified(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """Handle NOTIFY_BROKER_ROLE_CHANGED (1008): a peer, usually a controller, reports an election. Ask the controllers."""
        if not self._running:
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is still starting")
        said = said_grant(command)
        if said is not None:
            actions = self._membership.notified(said, self._now_ms())
            for action in actions:
                if isinstance(action, Disbelieved):
                    self._log_disbelieved(action, peer.remote_address)
                    return command.reply(ResponseCode.INVALID_PARAMETER, action.why)
            self._perform(actions)
        return command.reply(ResponseCode.SUCCESS)

    def granted(self, grant: Grant) -> None:
        """Handle a grant of a Raft group, which replaces a controller's."""
        self._perform(self._membership.granted_by_group(grant, self._now_ms()))

    # -- the membership's side

    def _tick(self) -> None:
        self._perform(self._membership.tick(self._now_ms()))

    def _perform(self, actions: Iterable[Action]) -> None:
        if not self._running:
            return
        for action in actions:
            match action:
                case SaveTemporary() | SaveIdentity() | NoteSetBack():
                    self._tasks.start(self._save(action), name="save broker id")
                case Lead() | Follow():
                    self._no_change.clear()
                    self._tasks.start(self._change_role(action), name="role change")
                case SetRead(members, epoch):
                    if self._ha.mastership is not None:
                        self._ha.mastership.observe(members, epoch)
                case MasterMoved(address, epoch):
                    self._roles.master_moved(address, epoch)
                case RoleAnnounced(grant):
                    said = fields(epoch=grant.master_epoch, master=grant.master_address)
                    logger.info("role announced", extra=said)
                    self._roles.role_announced()
                case Duplicate():
                    self._log_duplicate(action)
                case BeginHeartbeats():
                    self._on_registered()
                    self._may_beat.set()
                case AskAll():
                    self._tasks.start(self._ask_all(), name="ask all controllers")
                case Disbelieved():
                    self._log_disbelieved(action)
                case _:
                    self._tasks.start(self._call(action), name="controller call")
        self._timer.due_at(self._membership.next_tick_ms)

    def _log_disbelieved(self, action: Disbelieved, sender: str = "a controller") -> None:
        if self._disbelieved[action.source].failed(action.source, self._now_ms()):
            said = fields(source=action.source, sender=sender, why=action.why, hint=UNTRUE[action.source])
            logger.error("epoch disbelieved", extra=said)

    def _log_duplicate(self, duplicate: Duplicate) -> None:
        if not self._duplicate.failed(duplicate, self._now_ms()):
            return
        hint = (
            "the store of one is a copy of the other's, and controllers take that one for this broker: if this is the copy, "
            "stop it and empty its store, so that it joins with an id of its own; if the other one is, stop that, and this "
            "broker is registered again"
            if duplicate.registered
            else "its store is a copy of this broker's: stop it and empty its store, so that it joins with an id of its own"
        )
        us = self._membership
        said = fields(id=us.broker_id, address=us.address, other=duplicate.address, hint=hint)
        logger.error("duplicate broker", extra=said)

    async def _save(self, step: SaveTemporary | SaveIdentity | NoteSetBack) -> None:
        files = self._identity_files
        if isinstance(step, NoteSetBack):
            await self._write.perform(lambda: self._on_set_back(step.known))
        elif isinstance(step, SaveTemporary):
            await self._write.perform(lambda: files.apply_for(step.identity))
        else:
            await self._write.perform(lambda: files.granted(step.identity))
            logger.info("broker id granted", extra=fields(broker_id=step.identity.broker_id))
        self._perform(self._membership.saved(self._now_ms()))

    # -- controllers

    async def _call(self, call: Call) -> None:
        request = self._calls.request(call, self._clock.now_ms())
        try:
            if isinstance(call, ElectCall):
                await self._controllers.heartbeat_to_leader(self._calls.heartbeat())
            command = await self._controllers.call(request)
            reply = self._calls.reply(call, command)
        except (RemotingError, HeaderError, BodyError) as error:
            self._note_failure(type(call).__name__, error)
            self._perform(self._membership.not_replied(self._now_ms()))
            return
        self._note_answer(type(call).__name__, command)
        self._perform(self._membership.replied(call, reply, self._now_ms(), self._clock.now_ms()))

    async def _ask_all(self) -> None:
        poll = PollCall()

        def on_answer(answer: RemotingCommand) -> None:
            try:
                reply = self._calls.reply(poll, answer)
            except (HeaderError, BodyError) as error:
                self._note_failure(type(poll).__name__, error)
                return
            self._perform(self._membership.answered(reply, self._now_ms()))

        if not await self._controllers.ask_all(
            lambda: self._calls.request(poll, self._clock.now_ms()), on_answer
        ):
            self._perform(self._membership.unanswered(self._now_ms()))

    def alter_sync_state_set(self, alter: Alter) -> None:
        """Propose a SyncStateSet (CONTROLLER_ALTER_SYNC_STATE_SET, 1001). A new master sends the proposal after it has taken
        its role. A master that knows a newer masterEpoch, or that stops, sends none. A replica must hold the tables before it
        enters the set. A repeated proposal (`again`) is always sent: the first may have been accepted, which only an answer
        shows."""
        if self._running:
            self._tasks.start(self._alter(alter), name="alter SyncStateSet")

    async def _alter(self, alter: Alter) -> None:
        await self._no_change.wait()
        us = self._membership
        held = alter.again or await self._tables_replicated_to(alter.members - self._ha.applied_members())
        if not (held and us.accepts_sends and us.registered and us.master_epoch == alter.master_epoch):
            self._alter_ended(alter, AlterNotSent())
            return
        try:
            command = await self._controllers.call(self._calls.alter(alter, self._clock.now_ms()))
            outcome = self._calls.outcome(alter, command)
        except (RemotingError, HeaderError, BodyError) as error:
            self._note_failure(ALTER, error)
            outcome = AlterNotSent() if isinstance(error, NotSent) else AlterUnknown()
        else:
            self._note_answer(ALTER, command)
            if command.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE):
                # rejected, or sent to no leader: the controllers know more than this broker
                self._perform(us.poll_soon(self._now_ms()))
        self._alter_ended(alter, outcome)

    def _alter_ended(self, alter: Alter, outcome: AlterOutcome) -> None:
        if self._ha.mastership is not None:
            self._ha.mastership.alter_ended(alter, outcome)

    def read_sync_state_set(self) -> None:
        """Poll now, to read the SyncStateSet."""
        self._perform(self._membership.poll_soon(self._now_ms()))

    def _note_failure(self, call: str, error: Exception) -> None:
        if self._failure.failed(type(error), self._now_ms()):
            logger.warning("%s", TRYING_ON, extra=fields(call=call, why=error))

    def _note_answer(self, call: str, answer: RemotingCommand) -> None:
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            if self._failure.failed((call, answer.code), self._now_ms()):
                logger.warning(
                    "controller refused, retrying",
                    extra=fields(call=call, code=answer.code, remark=answer.remark or ""),
                )
        elif (lasted_ms := self._failure.recovered(self._now_ms())) is not None:
            logger.info("controllers carry out calls again", extra=fields(after_ms=lasted_ms))

    async def _run_discovery(self) -> None:
        while True:
            await asyncio.sleep(self._timers.sync_controller_metadata_period / 1000)
            await self._controllers.discover()

    def beat_now(self) -> None:
        """Send a heartbeat to each controller at once."""
        self._beat_now.set()
        self._beat_now = asyncio.Event()

    async def _run_heartbeats(self, address: str) -> None:
        await self._may_beat.wait()
        while True:
            try:
                await self._controllers.heartbeat(address, self._calls.heartbeat())
            except RemotingError as error:
                logger.debug("no heartbeat", extra=fields(address=address, why=error))
            await wait_event(self._beat_now, self._timers.broker_heartbeat_interval)

    # -- roles

    async def _change_role(self, change: Lead | Follow) -> None:
        membership, grant = self._membership, change.grant
        said = fields(
            role=(ReplicaRole.MASTER if isinstance(change, Lead) else ReplicaRole.SLAVE).value,
            epoch=grant.master_epoch,
            master=grant.master_address,
        )
        try:
            if isinstance(change, Lead):
                await self._roles.become_master(grant)
            else:
                await self._roles.become_slave(grant, change.broker_id)
        except RoleRefused as refused:
            logger.error("role refused: %s", refused, extra=said)
            actions = membership.role_refused(grant, self._now_ms())
        except RoleChangeFailed as failure:
            if self._role_failure.failed((grant, str(failure)), self._now_ms()):
                logger.error("role change failed and will be repeated: %s", failure, extra=said)
            self._health.note(HealthProblem.ROLE, True, self._now_ms())
            if isinstance(change, Lead):
                self._health.note(HealthProblem.LEAD, True, self._now_ms())
            actions = membership.role_failed(self._now_ms())
        else:
            self._role_failure.recovered(self._now_ms())
            self._health.note(HealthProblem.ROLE, False, self._now_ms())
            if isinstance(change, Lead):
                self._health.note(HealthProblem.LEAD, False, self._now_ms())
            former = membership.role
            actions = membership.role_taken(grant, self._now_ms())
            logger.info("role taken", extra=said)
            self._roles.role_taken(former, membership.role, grant)
            self.beat_now()  # so that the controllers learn that the elected master has taken its role
        self._no_change.set()
        self._perform(actions)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()
