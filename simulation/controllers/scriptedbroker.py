"""A script that behaves like a broker towards controllers: it registers, sends heartbeats, polls, asks for elections and
changes the set.

Invariant: the broker takes a role only for a higher epoch. As master it waits for its set and for every set that it requested
and that may still take effect (`union`): an alter whose answer was lost may take effect until the set's epoch has changed. The
master acknowledges what all these brokers hold, as far as they follow it. It acknowledges nothing while its set is too small,
and nothing before it has reported its minimum to the controllers. The broker has no log: its heartbeats only claim a log,
which grows while the broker is master or in the set."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from remoting.bodies.replicas import SyncStateSetBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.header import Header
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
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from simulation.controllers.asks import FENCED, UNDECIDED
from simulation.controllers.check import ControllerCheck

CLUSTER_NAME = "DefaultCluster"
BROKER_NAME = "broker-a"
BROKER_PORT = 10911
HEARTBEAT_EVERY_MS = 1000
STEP_EVERY_MS = 500
CALL_TIMEOUT_MS = 3000


MAY_COME_LATE = frozenset(
    {
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.CONTROLLER_REGISTER_BROKER,
    }
)
FINAL = frozenset({ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_INVALID_MASTER})
"""Rejections of an alter after which no earlier copy of the alter can take effect."""
FORGETFUL_MS_MAX = 10_000
UNFIT_MS_MAX = 8_000
ALONE_MS_MAX = 6_000
LATE_MAX = 40
"""How many asks are kept to be delivered late."""


class Unanswered(Exception):
    """No leading controller could be asked, or the outcome of the call is unknown. `not_done` means that nothing was done."""

    def __init__(self, why: str | None, *, not_done: bool) -> None:
        super().__init__(why)
        self.not_done = not_done


@dataclass(frozen=True)
class BrokerPart:
    """The settings of one scripted broker. It acknowledges nothing while the set has fewer members than `members_min`, and it
    reports that number, unless it is 0 (upstream's brokers do not report it). `fellows` returns the ids of live brokers, and
    `followers` those that follow in an epoch. Learners are not among them."""

    broker_name: str = BROKER_NAME
    learner: bool = False
    step_ms: int = STEP_EVERY_MS
    beat_ms: int = HEARTBEAT_EVERY_MS
    members_min: int = 0
    fellows: Callable[[], frozenset[int]] = frozenset
    followers: Callable[[int], frozenset[int]] = lambda _epoch: frozenset()


@dataclass
class Surroundings:
    """Objects that all brokers of a world share: the check that sees all asks (requests to controllers), and the asks that may
    be delivered once more, because their answers were lost or their sender allows it."""

    check: ControllerCheck
    late: deque[RemotingCommand] = field(default_factory=lambda: deque(maxlen=LATE_MAX))
    late_beats: deque[RemotingCommand] = field(default_factory=lambda: deque(maxlen=LATE_MAX))
    """Heartbeats that may be delivered once more."""
    restless: bool = False
    """Whether, now and then, masters remove a healthy member, and brokers cannot lead or lose memory."""


class ScriptedBroker:
    """An app for a simulated node. Its public fields hold what the broker believes about the set and its role."""

    def __init__(
        self, host: str, controllers: list[str], part: BrokerPart, around: Surroundings, runtime: Runtime
    ) -> None:
        self.part = part
        self.around = around
        self.check = around.check
        self.address = f"{host}:{BROKER_PORT}"
        self.controllers = controllers
        self.runtime = runtime
        self.broker_id: int | None = None
        self._check_code = ""
        self._incarnation = (
            runtime.clock.now_ms() if part.members_min else 0
        )  # upstream's brokers report none
        self.master_id: int | None = None
        self.epoch = 0
        self.set_epoch = 0
        self.members: frozenset[int] = frozenset()
        self.asked_for: list[tuple[frozenset[int], int]] = []
        """Sets that may still take effect, each with the epoch of the set that it would follow."""
        self.notified = 0
        self.alters = 0
        self._log_end = 0
        self.emptied = False
        """Whether the broker lost its log but kept its id, as a Java broker would."""
        self.leader: str | None = None
        self.registered = False
        self._is_current = False  # whether it asked the controllers since it registered
        self._reported_epoch = 0  # epoch in which an alter reported `members_min`
        self._may_miss_until_ms = 0
        self._unfit_until_ms = 0
        self._alone_until_ms = 0
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks(self._fail)
        self._client = RemotingClient(clock=runtime.clock, connect_timeout_ms=1000)
        router = Router()
        router.add(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._role_changed)
        self._server = RemotingServer(router, host=host, port=BROKER_PORT, clock=runtime.clock)

    @property
    def is_master(self) -> bool:
        return self.broker_id is not None and self.master_id == self.broker_id

    def union(self) -> frozenset[int]:
        """The brokers for which this broker waits as master."""
        return self.members.union(*(members for members, _ in self.asked_for))

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
                elif not self.registered:
                    await self._register()
                else:
                    if not self._asks_before_it_reads():
                        await self._poll()
                    if self.is_master:
                        self._acknowledge()
                        await self._alter()
            except Unanswered:
                self.leader = None
            await asyncio.sleep(self.part.step_ms / 1000)

    @property
    def _now_ms(self) -> int:
        return self.runtime.clock.monotonic_ms()

    async def _obtain_id(self) -> None:
        """Get an id (steps 1 and 2). The id is on disk before the broker applies for it. A broker that has an id was
        restarted, and may have lost its memory."""
        saved = await self.runtime.files.read("identity")
        draw = self.runtime.random
        if saved is not None and self.part.members_min and self.around.restless and draw.random() < 0.4:
            self._may_miss_until_ms = self._now_ms + draw.randint(500, FORGETFUL_MS_MAX)
        if saved is None:
            header = GetNextBrokerIdHeader(self.part.broker_name, CLUSTER_NAME)
            reply = await self._call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
            next_id = GetNextBrokerIdResponseHeader.from_ext(reply.ext).next_broker_id
            saved = f"{next_id} {self.address};{self.runtime.clock.now_ms()}".encode()
            await self.runtime.files.replace("identity", saved)
        broker_id, check_code = saved.decode().split(" ", 1)
        if await self._apply(int(broker_id), check_code):
            self.broker_id, self._check_code = int(broker_id), check_code

    async def _apply(self, broker_id: int, check_code: str) -> bool:
        apply = ApplyBrokerIdHeader(self.part.broker_name, broker_id, check_code, CLUSTER_NAME)
        reply = await self._call(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
        if reply.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self.broker_id = None
            await self.runtime.files.remove("identity")
        return reply.code == ResponseCode.SUCCESS

    async def _register(self) -> None:
        assert self.broker_id is not None
        header = RegisterBrokerToControllerHeader(
            self.part.broker_name,
            self.broker_id,
            self.address,
            CLUSTER_NAME,
            register_check_code=self._check_code,
            incarnation=self._incarnation,
        )
        reply = await self._call(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        self.registered, self._is_current = reply.code == ResponseCode.SUCCESS, False
        if self.registered and self.part.learner and self._draws_a_copy():
            await self._ask_for_election()
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            await self._forgotten(self.broker_id)

    async def _forgotten(self, broker_id: int) -> None:
        """The broker was forgotten. If the set still exists, the broker takes its id again. If the set was cleaned as a whole,
        and perhaps made again, the operator empties the broker."""
        header = GetReplicaInfoHeader(self.part.broker_name, broker_id, self._check_code)
        reply = await self._call(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            await self._apply(broker_id, self._check_code)
        elif reply.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            self.broker_id, self.registered = None, False
            self.epoch, self.master_id, self.set_epoch, self.members = 0, None, 0, frozenset()
            self._log_end = 0
            self.asked_for.clear()
            await self.runtime.files.remove("identity")

    async def _poll(self) -> None:
        assert self.broker_id is not None
        name = self.part.broker_name
        header = GetReplicaInfoHeader(name, self.broker_id, self._check_code)
        reply = await self._call(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        if reply.code != ResponseCode.SUCCESS:
            self.registered = False
            return
        info = GetReplicaInfoResponseHeader.from_ext(reply.ext)
        body = SyncStateSetBody.decode(reply.body)
        self._is_current = True
        self._adopt(info.master_epoch or 0, info.master_broker_id, body)
        if self.around.restless and self.part.members_min and self.runtime.random.random() < 0.02:
            self._unfit_until_ms = self._now_ms + self.runtime.random.randint(500, UNFIT_MS_MAX)
        if info.master_broker_id is None and (not self.part.learner or self.runtime.random.random() < 0.5):
            await self._ask_for_election()

    async def _ask_for_election(self) -> None:
        header = ElectMasterHeader(self.part.broker_name, CLUSTER_NAME, self.broker_id or 0)
        await self._call(RequestCode.CONTROLLER_ELECT_MASTER, header)

    def _acknowledge(self) -> None:
        """Acknowledge something, if all brokers for which the master waits follow it."""
        enough = len(self.members) >= self.part.members_min and self.epoch > 0
        reported = self.part.members_min == 0 or self._reported_epoch == self.epoch
        if enough and reported and self.union() <= self.part.followers(self.epoch):
            self.check.acknowledged(self.part.broker_name, self.union())

    def _asks_before_it_reads(self) -> bool:
        """Whether the master sends an ask before it reads whether an unanswered ask took effect."""
        return self.is_master and bool(self.asked_for) and self.runtime.random.random() < 0.4

    async def _alter(self) -> None:
        """Ask for a set with all brokers, or now and then without one of them. For a while after another broker was reported
        dead, ask for a set of only the master. An unanswered ask is mostly repeated. The same set is requested again to report
        `members_min`."""
        fellows = self.part.fellows()
        draw = self.runtime.random
        wanted = frozenset() if self._now_ms < self._alone_until_ms else fellows
        if fellows and self.around.restless and draw.random() < 0.25:
            wanted -= {draw.choice(sorted(fellows))}
        wanted |= {self.broker_id or 0}
        if self.asked_for and draw.random() < 0.7:
            wanted = self.asked_for[-1][0]
        members_min = self.part.members_min
        if wanted == self.members and (members_min == 0 or self._reported_epoch == self.epoch):
            return
        epoch = self.epoch
        sending = wanted, self.set_epoch
        self.asked_for.append(sending)
        header = AlterSyncStateSetHeader(
            self.part.broker_name, self.broker_id or 0, epoch, 0, min_in_sync_replicas=members_min
        )
        body = SyncStateSetBody(wanted, self.set_epoch).encode()
        try:
            reply = await self._call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        except Unanswered as unanswered:
            if unanswered.not_done:
                self._refused(sending)
            raise
        if reply.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE:
            self._alone_until_ms = self._now_ms + draw.randint(500, ALONE_MS_MAX)
        if epoch != self.epoch:
            return
        if reply.code == ResponseCode.SUCCESS:
            self.alters += 1
            self._reported_epoch = epoch
            self._adopt(epoch, self.master_id, SyncStateSetBody.decode(reply.body))
        elif reply.code in FINAL:
            self.asked_for.clear()
        else:
            self._refused(sending, reply.code)
            if reply.code in FENCED and reply.body:
                self._adopt(epoch, self.master_id, SyncStateSetBody.decode(reply.body))
        self._waits()

    def _refused(self, sending: tuple[frozenset[int], int], code: int | None = None) -> None:
        """One copy of an ask was rejected with `code`, or was not tried. Other copies for the same set may still be on their
        way."""
        if sending in self.asked_for:
            self.asked_for.remove(sending)
        self._waits()

    def _waits(self) -> None:
        if self.is_master:
            self.check.waits_for(self.part.broker_name, self.master_id or 0, self.epoch, self.union())

    def _adopt(self, epoch: int, master_id: int | None, members: SyncStateSetBody) -> None:
        if epoch > self.epoch:
            self.epoch, self.master_id, self.set_epoch = epoch, master_id, 0
            self.members = frozenset()
            self.asked_for.clear()
        if epoch == self.epoch and members.sync_state_set_epoch >= self.set_epoch:
            self.members, self.set_epoch = members.sync_state_set, members.sync_state_set_epoch
            self.asked_for = [sending for sending in self.asked_for if sending[1] >= self.set_epoch]

    def _role_changed(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        header = NotifyBrokerRoleChangedHeader.from_ext(request.ext)
        self.notified += 1
        self.check.announced(self.part.broker_name, header.master_broker_id, header.master_epoch or 0)
        if self._is_current:  # else it may be for the process before
            master_id, epoch = header.master_broker_id, header.master_epoch or 0
            self._adopt(epoch, master_id, SyncStateSetBody.decode(request.body))
        return request.reply()

    async def _beat(self, controller: str) -> None:
        while True:
            if self.registered:
                if self.broker_id in self.members:
                    self._log_end = self.epoch * 1000
                length = 0 if self.emptied else self._log_end
                epoch = -1 if self.emptied else self.epoch
                header = BrokerHeartbeatHeader(
                    CLUSTER_NAME, self.address, self.part.broker_name, self.broker_id, epoch, length, length
                )
                header.min_in_sync_replicas = self.part.members_min
                header.may_miss_acknowledged = self._now_ms < self._may_miss_until_ms
                if self._now_ms < self._unfit_until_ms:
                    header.unfit_to_lead = "its disk is slow"
                    header.could_lead = self._unfit_until_ms % 2 == 0 or None
                header.async_learner = self.part.learner
                header.incarnation = self._incarnation
                command = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header)
                if self.around.restless and self._draws_a_copy():
                    self.around.late_beats.append(command)
                with contextlib.suppress(RemotingError):
                    await self._client.one_way(controller, command)
            await asyncio.sleep(self.part.beat_ms / 1000)

    async def _call(self, code: RequestCode, header: Header, body: bytes | None = None) -> RemotingCommand:
        """Call the leading controller and return its answer. Raises Unanswered."""
        leader = self.leader or await self._find_leader()
        request = RemotingCommand.request(code, header, body)
        ask = self.check.sent(f"{self.address} {self.part.broker_name} {self.broker_id}", request)
        try:
            reply = await self._client.call(leader, request, CALL_TIMEOUT_MS)
        except NotSent as error:
            self.check.not_sent(ask)
            raise Unanswered(str(error), not_done=True) from None
        except RemotingError as error:
            self._may_come_late(request)
            raise Unanswered(str(error), not_done=False) from None
        self.check.answered(ask, reply)
        if reply.code in UNDECIDED or (reply.code == ResponseCode.SUCCESS and self._draws_a_copy()):
            self._may_come_late(request)
        if reply.code in (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_BUSY, *UNDECIDED):
            raise Unanswered(reply.remark, not_done=reply.code not in UNDECIDED)
        self.leader = leader
        return reply

    def _draws_a_copy(self) -> bool:
        return self.runtime.random.random() < 0.1

    def _may_come_late(self, request: RemotingCommand) -> None:
        if request.code in MAY_COME_LATE:
            self.around.late.append(request)

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
        raise Unanswered("no controller knows the leader", not_done=True)
