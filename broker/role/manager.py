"""Carries out what `broker.role.membership` decides: files, controller calls, heartbeats and role changes.

Invariant: one controller call and one role change run at a time, each in a task of its own, so an announced role is
taken at once however long a call waits. Heartbeats go to each controller by its own task; none waits for another. What a full
disk refuses is tried again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from broker.role.actions import (
    AlterCall,
    Applied,
    Call,
    Effect,
    ElectCall,
    Grant,
    MasterMoved,
    ProposalFailed,
    SaveIdentity,
    SaveTemporary,
)
from broker.role.controllercalls import ControllerCalls, announced_grant
from broker.role.controllerclient import ControllerClient
from broker.role.identity import Identity, TemporaryIdentity
from broker.role.identityfiles import IdentityFiles
from broker.role.membership import Replicas, Role
from mqruntime.clock import Clock
from mqruntime.diskfull import DISK_FULL
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks
from mqruntime.waking import woken
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError, NotSent, RemotingError
from remoting.headers.controller import BrokerHeartbeatHeader
from remoting.peer import Peer

logger = logging.getLogger("broker.replicasmanager")

WAIT_MS_MAX = 3_600_000
SAVE_RETRY_MS = 1_000
TRYING_ON = (
    "controller call failed, trying on; a majority of controllers must run at the addresses of controllerAddr"
)


class RoleRefused(Exception):
    """The log knows a newer epoch than the granted one: this broker does not take the role."""


class RoleChangeFailed(Exception):
    """The change broke off; the text says why. It is to be repeated."""


class RoleChanges(Protocol):
    """What a role means for the rest of the broker."""

    async def become_master(self, grant: Grant) -> None:
        """Raises RoleRefused (nothing changed) or RoleChangeFailed."""
        ...

    async def become_slave(self, grant: Grant) -> None:
        """Raises RoleRefused or RoleChangeFailed."""
        ...

    def role_taken(self) -> None:
        """`replicas.role` and `replicas.taken` are new."""
        ...

    def propose(self, members: frozenset[int]) -> bool:
        """Count acks over the union with `members` too; False when they are not fit to be proposed any more."""
        ...

    def applied(self, members: frozenset[int], sync_state_set_epoch: int) -> None: ...

    def proposal_failed(self) -> None: ...

    def master_moved(self, address: str) -> None: ...


class Timers(Protocol):
    """The settings that pace it; ms."""

    sync_broker_metadata_period: int
    sync_controller_metadata_period: int
    broker_heartbeat_interval: int


class ReplicasManager:
    """One broker's side of the controller protocol."""

    def __init__(
        self,
        *,
        cluster_name: str,
        broker_name: str,
        address: str,
        identity_files: IdentityFiles,
        timers: Timers,
        controllers: ControllerClient,
        clock: Clock,
        heartbeat: Callable[[], BrokerHeartbeatHeader],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._cluster_name = cluster_name
        self._broker_name = broker_name
        self._address = address
        self._identity_files = identity_files
        self._timers = timers
        self._controllers = controllers
        self._calls = ControllerCalls(cluster_name, broker_name, address)
        self._clock = clock
        self._heartbeat = heartbeat
        self._tasks = Tasks(on_fatal)
        self._call_wake = asyncio.Event()
        self._role_wake = asyncio.Event()
        self._may_beat = asyncio.Event()  # registered once: the controllers know our id
        self._beat_now = asyncio.Event()  # a new one each time that it was set
        self._announced_epoch = 0
        self._failure = RepeatedFailure()
        self._save_failure = RepeatedFailure()
        self._role_failure = RepeatedFailure()
        self.replicas = self._new_replicas()

    def _new_replicas(self, **identities: object) -> Replicas:
        return Replicas(
            cluster_name=self._cluster_name,
            broker_name=self._broker_name,
            address=self._address,
            poll_ms=self._timers.sync_broker_metadata_period,
            **identities,  # type: ignore[arg-type]
        )

    def known_as(self, identity: Identity | TemporaryIdentity | None) -> None:
        """Who we are, or ask to be, as the disk says; before `start`."""
        if isinstance(identity, Identity):
            self.replicas = self._new_replicas(identity=identity)
        elif identity is not None:
            self.replicas = self._new_replicas(temporary=identity)

    def start(self, roles: RoleChanges) -> None:
        """Begin to talk to the controllers; `known_as` came before."""
        self._roles = roles
        self._tasks.start(self._run_calls(), name="controller calls")
        self._tasks.start(self._run_roles(), name="role changes")
        self._tasks.start(self._run_discovery(), name="controller discovery")
        for address in self._controllers.addresses:
            self._tasks.start(self._run_heartbeats(address), name=f"heartbeats to {address}")

    async def stop(self) -> None:
        await self._tasks.stop()

    # -- what others tell

    def sync_state_set_wanted(self, members: frozenset[int], why: str) -> None:
        """The log's replicas justify this set; the controllers are asked at once."""
        logger.info("another SyncStateSet wanted", extra=fields(members=sorted(members), why=why))
        self.replicas.report.want(members)
        self._wake()

    def poll_soon(self) -> None:
        """Something suggests that the controllers know more than we do."""
        self.replicas.poll_soon()
        self._wake()

    def notified(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """1008: a controller announces an election."""
        grant = announced_grant(command)
        if grant is not None:
            self._apply(self.replicas.announced(grant, self._clock.monotonic_ms()))
        return command.reply(ResponseCode.SUCCESS)

    # -- controller calls

    async def _run_calls(self) -> None:
        while True:
            step = self.replicas.next_step(self._clock.monotonic_ms())
            if step is None:
                await self._wait(self._call_wake, self.replicas.call_due_ms())
            elif isinstance(step, SaveTemporary | SaveIdentity):
                await self._save(step)
            else:
                await self._call(step)

    async def _save(self, step: SaveTemporary | SaveIdentity) -> None:
        try:
            if isinstance(step, SaveTemporary):
                await self._identity_files.apply_for(step.identity)
            else:
                await self._identity_files.granted(step.identity)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            if self._save_failure.failed(error.errno, self._clock.monotonic_ms()):
                logger.warning(
                    "broker id cannot be saved, trying on; make room on this broker's disk",
                    extra=fields(why=error),
                )
            await asyncio.sleep(SAVE_RETRY_MS / 1000)
            return
        self._save_failure.recovered(self._clock.monotonic_ms())
        self.replicas.saved()
        if isinstance(step, SaveIdentity):
            logger.info("broker id granted", extra=fields(broker_id=step.identity.broker_id))

    async def _call(self, call: Call) -> None:
        replicas, clock = self.replicas, self._clock
        if isinstance(call, AlterCall) and not call.again and not self._roles.propose(call.proposal.members):
            replicas.not_proposed(clock.monotonic_ms())
            return
        request = self._calls.request(call, replicas.broker_id, clock.now_ms())
        try:
            if isinstance(call, ElectCall):
                await self._controllers.heartbeat_to_leader(self._heartbeat())
            command = await self._controllers.call(request)
            reply = self._calls.reply(call, command)
        except (RemotingError, HeaderError, BodyError) as error:
            if self._failure.failed(type(error), clock.monotonic_ms()):
                logger.warning("%s", TRYING_ON, extra=fields(call=type(call).__name__, why=error))
            sent = not isinstance(error, NotSent)
            self._apply(replicas.not_replied(call, clock.monotonic_ms(), sent=sent))
            return
        if reply.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            if self._failure.failed((type(call), reply.code), clock.monotonic_ms()):
                logger.warning(
                    "controller refused, trying on",
                    extra=fields(call=type(call).__name__, code=reply.code, remark=command.remark or ""),
                )
        elif (lasted_ms := self._failure.recovered(clock.monotonic_ms())) is not None:
            logger.info("controllers carry out calls again", extra=fields(after_ms=lasted_ms))
        self._apply(replicas.replied(call, reply, clock.monotonic_ms(), clock.now_ms()))

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Applied(members, epoch):
                    logger.info("SyncStateSet", extra=fields(members=sorted(members), epoch=epoch))
                    self._roles.applied(members, epoch)
                case ProposalFailed():
                    self._roles.proposal_failed()
                case MasterMoved(address):
                    self._roles.master_moved(address)
        if self.replicas.registered:
            self._may_beat.set()
        wanted = self.replicas.wanted
        if wanted is not None and wanted.master_epoch != self._announced_epoch:
            self._announced_epoch = wanted.master_epoch
            logger.info(
                "role announced", extra=fields(epoch=wanted.master_epoch, master=wanted.master_address)
            )
        self._wake()

    async def _run_discovery(self) -> None:
        while True:
            await asyncio.sleep(self._timers.sync_controller_metadata_period / 1000)
            await self._controllers.discover()

    async def _run_heartbeats(self, address: str) -> None:
        await self._may_beat.wait()
        while True:
            try:
                await self._controllers.heartbeat(address, self._heartbeat())
            except RemotingError as error:
                logger.debug("no heartbeat", extra=fields(address=address, why=error))
            await woken(self._beat_now, self._timers.broker_heartbeat_interval)

    # -- roles

    async def _run_roles(self) -> None:
        while True:
            grant = self.replicas.next_role(self._clock.monotonic_ms())
            if grant is None:
                await self._wait(self._role_wake, self.replicas.role_due_ms())
                continue
            await self._change_role(grant)
            self._wake()

    async def _change_role(self, grant: Grant) -> None:
        replicas = self.replicas
        leads = grant.master_id == replicas.broker_id
        said = fields(
            role=(Role.MASTER if leads else Role.SLAVE).value,
            epoch=grant.master_epoch,
            master=grant.master_address,
        )
        try:
            if leads:
                await self._roles.become_master(grant)
            else:
                await self._roles.become_slave(grant)
        except RoleRefused as refused:
            logger.error("role refused: %s", refused, extra=said)
            replicas.role_refused(grant)
        except RoleChangeFailed as failure:
            if self._role_failure.failed((grant, str(failure)), self._clock.monotonic_ms()):
                logger.error("role change failed and will be repeated: %s", failure, extra=said)
            replicas.role_failed(self._clock.monotonic_ms())
        else:
            self._role_failure.recovered(self._clock.monotonic_ms())
            replicas.role_taken(grant)
            logger.info("role taken", extra=said)
            self._roles.role_taken()
            self._beat_now.set()  # the controllers note when an elected master acts
            self._beat_now = asyncio.Event()

    # -- waiting

    def _wake(self) -> None:
        self._call_wake.set()
        self._role_wake.set()

    async def _wait(self, wake: asyncio.Event, due_ms: int) -> None:
        """Until something was reported or it is `due_ms`."""
        wait_ms = due_ms - self._clock.monotonic_ms() + 1
        await woken(wake, min(wait_ms, WAIT_MS_MAX))
        wake.clear()
