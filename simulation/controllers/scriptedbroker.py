"""A broker as the controllers see one: registers, sends heartbeats, polls, asks for elections, changes the set.

Invariant: it takes a role only for a higher epoch; as master it proposes one set at a time, which all who are
reachable are in. It has no log: its heartbeats claim one that grows while it is master or in the set."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.bodies.replicas import SyncStateSet
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    ElectMasterHeader,
    GetMetadataResponseHeader,
    GetNextBrokerIdHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedHeader,
    RegisterBrokerToControllerHeader,
)
from remoting.headers.header import Header
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer

CLUSTER_NAME = "DefaultCluster"
BROKER_NAME = "broker-a"
BROKER_PORT = 10911
HEARTBEAT_EVERY_MS = 1000
STEP_EVERY_MS = 500
CALL_TIMEOUT_MS = 3000


class Unanswered(Exception):
    """No controller that leads could be asked, or the call's fate is unknown."""


@dataclass
class Told:
    """The newest epochs that any broker was told; a read begun later must not go behind them (R10)."""

    master_epoch: int = 0
    set_epoch: int = 0

    def note(self, master_epoch: int, set_epoch: int) -> None:
        self.master_epoch = max(self.master_epoch, master_epoch)
        self.set_epoch = max(self.set_epoch, set_epoch)


class ScriptedBroker:
    """An app for a simulated node; its public fields are what it believes."""

    def __init__(self, host: str, controllers: list[str], told: Told, runtime: Runtime) -> None:
        self.told = told
        self.address = f"{host}:{BROKER_PORT}"
        self.controllers = controllers
        self.runtime = runtime
        self.broker_id: int | None = None
        self.master_id: int | None = None
        self.epoch = 0
        self.set_epoch = 0
        self.members: frozenset[int] = frozenset()
        self.notified = 0
        self.alters = 0
        self.emptied = False
        """Its log was lost while it kept its id, as a Java broker would."""
        self.leader: str | None = None
        self._registered = False
        self._alone = False
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks(self._fail)
        self._client = RemotingClient(clock=runtime.clock, connect_timeout_ms=1000)
        router = Router()
        router.add(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._role_changed)
        self._server = RemotingServer(router, host=host, port=BROKER_PORT, clock=runtime.clock)

    async def start(self) -> None:
        await self._server.start()
        self._tasks.start(self._live(), name="live")
        for controller in self.controllers:
            self._tasks.start(self._beat(controller), name=f"heartbeat {controller}")

    async def stop(self) -> None:
        await self._tasks.stop()
        await self._client.close()
        await self._server.stop()

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    async def _live(self) -> None:
        while True:
            try:
                if self.broker_id is None:
                    await self._obtain_id()
                elif not self._registered:
                    await self._register()
                else:
                    await self._poll()
                    if self.master_id == self.broker_id:
                        await self._alter()
            except Unanswered:
                self.leader = None
            await asyncio.sleep(STEP_EVERY_MS / 1000)

    async def _obtain_id(self) -> None:
        """Steps 1 and 2; the id applied for is on disk before it is applied for."""
        saved = await self.runtime.files.read("identity")
        if saved is None:
            header = GetNextBrokerIdHeader(BROKER_NAME, CLUSTER_NAME)
            reply = await self._call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
            next_id = GetNextBrokerIdResponseHeader.from_ext(reply.ext).next_broker_id
            saved = f"{next_id} {self.address};{self.runtime.clock.now_ms()}".encode()
            await self.runtime.files.replace("identity", saved)
        broker_id, check_code = saved.decode().split(" ", 1)
        apply = ApplyBrokerIdHeader(BROKER_NAME, int(broker_id), check_code, CLUSTER_NAME)
        reply = await self._call(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
        if reply.code == ResponseCode.SUCCESS:
            self.broker_id = int(broker_id)
        elif reply.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            await self.runtime.files.remove("identity")

    async def _register(self) -> None:
        assert self.broker_id is not None
        header = RegisterBrokerToControllerHeader(BROKER_NAME, self.broker_id, self.address, CLUSTER_NAME)
        reply = await self._call(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        self._registered = reply.code == ResponseCode.SUCCESS

    async def _poll(self) -> None:
        assert self.broker_id is not None
        told = self.told.master_epoch, self.told.set_epoch
        reply = await self._call(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader(BROKER_NAME))
        assert reply.code == ResponseCode.SUCCESS, f"R10: a registered set is unknown: {reply}"
        info = GetReplicaInfoResponseHeader.from_ext(reply.ext)
        body = SyncStateSet.decode(reply.body)
        assert (info.master_epoch or 0) >= told[0], f"R10: epoch {info.master_epoch} was read after {told}"
        assert body.sync_state_set_epoch >= told[1], f"R10: {body} was read after {told}"
        self._adopt(info.master_epoch or 0, info.master_broker_id, body)
        if info.master_broker_id is None:
            header = ElectMasterHeader(BROKER_NAME, CLUSTER_NAME, self.broker_id)
            await self._call(RequestCode.CONTROLLER_ELECT_MASTER, header)

    async def _alter(self) -> None:
        """Everybody in, or now and then somebody out; nobody but this broker after one was said to be dead."""
        wanted = frozenset() if self._alone else frozenset({1, 2, 3})
        if self.runtime.random.random() < 0.2:
            wanted -= {self.runtime.random.randint(1, 3)}
        wanted |= {self.broker_id or 0}
        self._alone = False
        if wanted == self.members:
            return
        header = AlterSyncStateSetHeader(BROKER_NAME, self.broker_id or 0, self.epoch)
        body = SyncStateSet(wanted, self.set_epoch).encode()
        reply = await self._call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        self._alone = reply.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
        if reply.code == ResponseCode.SUCCESS:
            self.alters += 1
            self._adopt(self.epoch, self.master_id, SyncStateSet.decode(reply.body))

    def _adopt(self, epoch: int, master_id: int | None, members: SyncStateSet) -> None:
        self.told.note(epoch, members.sync_state_set_epoch)
        if epoch > self.epoch:
            self.epoch, self.master_id, self.set_epoch = epoch, master_id, 0
        if epoch == self.epoch and members.sync_state_set_epoch >= self.set_epoch:
            self.members, self.set_epoch = members.sync_state_set, members.sync_state_set_epoch

    def _role_changed(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = NotifyBrokerRoleChangedHeader.from_ext(request.ext)
        self.notified += 1
        self._adopt(header.master_epoch or 0, header.master_broker_id, SyncStateSet.decode(request.body))
        return request.reply()

    async def _beat(self, controller: str) -> None:
        while True:
            if self._registered:
                length = self.epoch * 1000 if self.broker_id in self.members and not self.emptied else 0
                epoch = -1 if self.emptied else self.epoch
                header = BrokerHeartbeatHeader(
                    CLUSTER_NAME, self.address, BROKER_NAME, self.broker_id, epoch, length, length
                )
                command = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header)
                with contextlib.suppress(RemotingError):
                    await self._client.one_way(controller, command)
            await asyncio.sleep(HEARTBEAT_EVERY_MS / 1000)

    async def _call(self, code: RequestCode, header: Header, body: bytes | None = None) -> RemotingCommand:
        """The leading controller's answer. Raises Unanswered."""
        try:
            leader = self.leader or await self._find_leader()
            request = RemotingCommand.request(code, header, body)
            reply = await self._client.call(leader, request, CALL_TIMEOUT_MS)
        except RemotingError as error:
            raise Unanswered(str(error)) from None
        if reply.code in (
            ResponseCode.CONTROLLER_NOT_LEADER,
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.SYSTEM_BUSY,
        ):
            raise Unanswered(reply.remark)
        self.leader = leader
        return reply

    async def _find_leader(self) -> str:
        for controller in self.controllers:
            request = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
            try:
                reply = await self._client.call(controller, request, STEP_EVERY_MS)
            except RemotingError:
                continue
            found = GetMetadataResponseHeader.from_ext(reply.ext).controller_leader_address
            if found:
                return found
        raise Unanswered("no controller knows the leader")
