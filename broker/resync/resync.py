"""An operator's request to resync this replica with an empty store (RESYNC_BROKER, 290025).

Invariant: the store is set aside only after the controllers have forgotten this broker, and they forget only a broker that is
not needed. From this request on, unless the controllers reject it, the broker sends them no other requests, so it does not
return under its former id. The id stays forgotten, so late acknowledgements of the removed store count for no replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.resync.roomforboth import InsufficientSpace, ResyncSpaceCheck
from broker.resync.storeaside import StoreAside
from broker.role.controllercalls import ControllerCalls
from broker.role.controllerclient import ControllerClient
from broker.role.manager import ReplicasManager
from broker.role.membership import Membership, ReplicaRole
from ha.errors import MasterUnread
from ha.service.replication import Replication
from ha.slave.link import LeftBehind
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from mqruntime.diskfull import cure
from mqruntime.log import fields
from mqruntime.tasks import Tasks
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.headers.admin import ResyncBrokerHeader, ResyncBrokerResponseHeader
from remoting.peer import Peer
from remoting.router import Router

logger = logging.getLogger("broker.resync")

RESTART_AFTER_MS = 300
"""Time for the answer to be sent, and for the master to see that no send waits for this broker any more."""
LOOK_MS = 1_000


class Resync:
    """The handler, and the steps after it. `restart` stops this broker gracefully and starts it again."""

    def __init__(
        self,
        membership: Membership,
        *,
        aside: StoreAside,
        room: ResyncSpaceCheck,
        store: BrokerStore,
        ha: Replication,
        manager: ReplicasManager,
        calls: ControllerCalls,
        controllers: ControllerClient,
        is_learner: bool,
        clock: Clock,
        tasks: Tasks,
        restart: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._aside = aside
        self._room = room
        self._store = store
        self._ha = ha
        self._manager = manager
        self._calls = calls
        self._controllers = controllers
        self._is_learner = is_learner
        self._clock = clock
        self._tasks = tasks
        self._restart = restart
        self._level = False
        ha.on_caught_up(self._is_caught_up)

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.RESYNC_BROKER, self._resync)

    # -- the request

    async def _resync(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        """Resync this replica. If this broker refuses, the answer is NO_PERMISSION (16) with the reason. If the controllers
        reject the request, the answer has their code. If the controllers or the master cannot be reached, it is
        SERVICE_NOT_AVAILABLE (14). After success the broker restarts at once and sets the store aside, unless `dryRun`."""
        dry_run = ResyncBrokerHeader.from_ext(command.ext).dry_run
        refusal = await self._unable(command)
        if refusal is not None:
            return refusal
        broker_id = self._membership.broker_id
        assert broker_id is not None, "a registered broker has an id"
        keeps = not self._ha.copies and not isinstance(self._ha.stays_out, LeftBehind)
        header = ResyncBrokerResponseHeader(
            broker_id=broker_id,
            folder=self._aside.folder_at(self._clock.now_ms()),
            log_bytes=self._store.max_offset() - self._store.min_offset(),
            keeps=keeps,
        )
        if dry_run:
            refusal = await self._refused(command, dry_run=True)
            return refusal or command.reply(header=header)
        self._membership.hold_calls()
        logger.info("resync requested", extra=fields(folder=header.folder, asked_by=peer.remote_address))
        giving_up = self._tasks.start(self._give_up(command, header), name="resync")
        return await asyncio.shield(giving_up)  # runs to its end, even if the caller is cancelled

    async def _give_up(self, command: RemotingCommand, header: ResyncBrokerResponseHeader) -> RemotingCommand:
        refusal = await self._refused(command, dry_run=False) or await self._planned(command, header)
        if refusal is not None:
            self._membership.release_calls()
            self._manager.read_sync_state_set()
            return refusal
        logger.warning("resync started", extra=fields(folder=header.folder))
        asyncio.get_running_loop().call_later(RESTART_AFTER_MS / 1000, self._restart)
        return command.reply(header=header)

    async def _unable(self, command: RemotingCommand) -> RemotingCommand | None:
        """The reply if this broker cannot resync; None if it can."""
        why = self._why_not() or await self._why_immovable()
        if why is None:
            try:
                await self._room.check()
            except MasterUnread as error:
                why = f"the master to copy did not answer ({error}); nothing was changed"
                return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why)
            except InsufficientSpace as error:
                why = str(error)
        why = why or self._why_not()  # it may be master by now, or another request may have come
        return None if why is None else command.reply(ResponseCode.NO_PERMISSION, why)

    def _why_not(self) -> str | None:
        us = self._membership
        if us.role is ReplicaRole.MASTER:
            return "this broker is the master: elect another one first"
        if us.calls_held:
            return "this broker is about to resync already"
        if self._aside.now is not None:
            return (
                f"this broker resynced already, and is not in the SyncStateSet yet; {self._aside.now.folder} holds its "
                "former store; to resync once more stop it, empty its store but for that folder, and start it"
            )
        if not us.registered or us.role is not ReplicaRole.SLAVE or us.stopping:
            return (
                "this broker is not registered at the controllers, or has no role; where it stays so, stop it and empty its "
                "store"
            )
        return None

    async def _why_immovable(self) -> str | None:
        names = await self._aside.immovable()
        if not names:
            return None
        return (
            f"{', '.join(names)} in the store is a link, or has a disk of its own, and cannot be set aside; stop this "
            "broker and empty its store"
        )

    async def _refused(self, command: RemotingCommand, *, dry_run: bool) -> RemotingCommand | None:
        """The reply if the controllers do not forget this broker; None if they do."""
        try:
            answer = await self._controllers.call(self._calls.give_up(dry_run=dry_run))
        except NotSent as error:
            why = f"no controller leads or answers ({error}); nothing was changed"
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        except RemotingError as error:
            why = f"the controllers' answer did not come ({error}); nothing is set aside, so give the command again"
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        if answer.code == ResponseCode.SUCCESS:
            return None
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            why = (
                "these controllers, upstream's or an older version, do not report whether this broker is needed: check "
                "getSyncStateSet, stop it and empty its store"
            )
            return command.reply(ResponseCode.NO_PERMISSION, why)
        return command.reply(answer.code, f"the controllers do not let it go: {answer.remark}")

    async def _planned(
        self, command: RemotingCommand, header: ResyncBrokerResponseHeader
    ) -> RemotingCommand | None:
        """The reply if the plan cannot be written; None after success. The controllers have forgotten this broker by then, so
        it registers under its id again by itself."""
        try:
            await self._aside.plan(header.folder, header.broker_id, keeps=header.keeps)
        except OSError as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"nothing is set aside: {error}{cure(error)}")
        return None

    # -- after the restart

    def _is_caught_up(self) -> None:
        self._level = True

    async def run(self) -> None:
        """Remove the store that was set aside, once this is allowed."""
        while self._aside.now is not None:
            await asyncio.sleep(LOOK_MS / 1000)
            if self._membership.in_sync or (self._is_learner and self._level):
                try:
                    await self._aside.joined()
                except OSError as error:
                    logger.warning("old store not removed, retrying", extra=fields(why=error))
