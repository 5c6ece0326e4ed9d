"""An app that acts both as an operator and as a stranger. As an operator it reads from every controller, moves masters and
forgets brokers. As a stranger it forges requests that only a master may send, and delivers requests whose answers were lost
once more, much later.

Invariant: no controller may ever carry out a forged request. A request that is delivered late may take effect, because its
sender never got a definite answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from mqruntime.runtime import Runtime
from remoting.bodies.replicas import SyncStateSetBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    CleanBrokerDataHeader,
    ElectMasterHeader,
    GetReplicaInfoHeader,
)
from simulation.controllers.asks import OPERATOR
from simulation.controllers.scriptedbroker import CLUSTER_NAME, Surroundings
from simulation.controllers.setmodel import SetState

STRANGER = 99
ANOTHER_CLUSTER = "AnotherCluster"
CALL_TIMEOUT_MS = 3000


@dataclass(frozen=True)
class Manners:
    """How often the operator does something, and whether that includes elections."""

    pause_ms: int = 300
    elects: bool = True


class Operator:
    """An app for a simulated node. `leader` returns the leader's address."""

    def __init__(
        self,
        controllers: list[str],
        around: Surroundings,
        manners: Manners,
        leader: Callable[[], str | None],
        runtime: Runtime,
    ) -> None:
        self.controllers = controllers
        self.around = around
        self.check = around.check
        self.manners = manners
        self.runtime = runtime
        self.random = runtime.random
        self._leader = leader
        self._client = RemotingClient(clock=runtime.clock, connect_timeout_ms=500)
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._asking: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._keep(self._run())

    async def stop(self) -> None:
        for task in self._asking:
            task.cancel()
        await self._client.close()

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def _keep(self, coroutine: object) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)  # type: ignore[arg-type,var-annotated]
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _run(self) -> None:
        """Run without waiting for answers, because a hanging answer must not delay requests to other controllers."""
        while True:
            await asyncio.sleep(self.random.uniform(0.2, 1.8) * self.manners.pause_ms / 1000)
            known = sorted(name for name, model in self.check.sets.items() if model.now.known)
            if known:
                self._keep(self._do_something(self.random.choice(known)))

    async def _do_something(self, name: str) -> None:
        state = self.check.state(name)
        draw = self.random.random()
        if draw < 0.45:
            await self.read(self.random.choice(self.controllers), name)
        elif draw < 0.65:
            await self._forge(name, state)
        elif draw < 0.8:
            await self._deliver_late()
        elif draw < 0.86:
            await self._pretend(name, state)
        elif draw < 0.92 and self.manners.elects:
            await self._elect(name, state)
        elif draw < 0.97:
            await self._take_an_id(name, state)
        else:
            await self._clean(name, state)

    async def read(self, controller: str, name: str) -> None:
        """Ask any controller. A former leader must not answer."""
        if self.random.random() < 0.5:
            await self._ask(controller, RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader(name))
        else:
            names = json.dumps(sorted(self.check.sets)[:3]).encode()
            await self._ask(controller, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, names)

    async def _forge(self, name: str, state: SetState) -> None:
        """Send an alter that is valid except for one field."""
        master, epoch, set_epoch = state.master_id, state.master_epoch, state.set_epoch
        leader = self._leader()
        if master is None or leader is None:
            return
        others = frozenset(state.codes) - {master}
        drawn = self.random.sample(sorted(others), self.random.randint(0, len(others)))
        members = frozenset({master, *drawn})
        if members == state.members:
            members ^= frozenset({self.random.choice(sorted(others))}) if others else frozenset({STRANGER})
        match self.random.randrange(6):
            case 0:
                epoch -= 1
            case 1:
                set_epoch -= 1
            case 2 if others:
                master = self.random.choice(sorted(others))
                members |= {master}
                if members == state.members:
                    return
            case 3:
                members |= {STRANGER}
            case 4:
                members = frozenset()
            case _:
                members -= {master}
        members_min = self.random.randint(0, 2)
        header = AlterSyncStateSetHeader(name, master, epoch, 0, min_in_sync_replicas=members_min)
        body = SyncStateSetBody(members, set_epoch).encode()
        await self._ask(leader, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)

    async def _deliver_late(self) -> None:
        leader = self._leader()
        if self.around.late_beats and leader is not None and self.random.random() < 0.5:
            late = self.random.choice(list(self.around.late_beats))
            copy = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT)
            copy.ext = dict(late.ext)
            if not int(copy.ext.get("incarnation", 0)):
                self.check.echoed.add((copy.ext["brokerName"], int(copy.ext["brokerId"])))
            with contextlib.suppress(RemotingError):
                await self._client.one_way(leader, copy)
            return
        if self.around.late and leader is not None:
            late = self.random.choice(list(self.around.late)[-self.random.choice((3, 40)) :])
            copy = RemotingCommand.request(RequestCode(late.code), None, late.body)
            copy.ext = dict(late.ext)
            await self._send(leader, copy)

    async def _pretend(self, name: str, state: SetState) -> None:
        """Send a heartbeat with a broker's name but another cluster, or of an unknown broker."""
        broker_id = self.random.choice([*sorted(state.codes), STRANGER])
        address = state.addresses.get(broker_id, "10.9.9.9:1")
        cluster = ANOTHER_CLUSTER if broker_id in state.codes else CLUSTER_NAME
        header = BrokerHeartbeatHeader(cluster, address, name, broker_id, 2**31 - 1, 2**62, 2**62)
        with contextlib.suppress(RemotingError):
            for controller in self.controllers:
                await self._client.one_way(
                    controller, RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header)
                )

    async def _elect(self, name: str, state: SetState) -> None:
        leader = self._leader()
        if leader is not None:
            electable = state.codes.keys() - self.check.learners_of(state)
            broker_id = self.random.choice([*sorted(electable), STRANGER])
            header = ElectMasterHeader(name, CLUSTER_NAME, broker_id, True)
            await self._ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, header)

    async def _take_an_id(self, name: str, state: SetState) -> None:
        """Apply for an id that another broker has."""
        leader = self._leader()
        if leader is not None:
            header = ApplyBrokerIdHeader(
                name, self.random.choice(sorted(state.codes)), "10.9.9.9:1;7", CLUSTER_NAME
            )
            await self._ask(leader, RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    async def _clean(self, name: str, state: SetState) -> None:
        """Ask to forget a broker. A live broker must not be forgotten, unless the request says so."""
        leader = self._leader()
        if leader is None:
            return
        broker_id = self.random.choice(sorted(state.codes))
        living_too = self.random.random() < 0.1
        header = CleanBrokerDataHeader(name, CLUSTER_NAME, str(broker_id), living_too)
        await self._ask(leader, RequestCode.CLEAN_BROKER_DATA, header)

    async def _ask(
        self, controller: str, code: RequestCode, header: Header | None, body: bytes | None = None
    ) -> RemotingCommand | None:
        return await self._send(controller, RemotingCommand.request(code, header, body))

    async def _send(self, controller: str, request: RemotingCommand) -> RemotingCommand | None:
        ask = self.check.sent(OPERATOR, request)
        try:
            reply = await self._client.call(controller, request, CALL_TIMEOUT_MS)
        except NotSent:
            self.check.not_sent(ask)
        except RemotingError:
            return None
        else:
            self.check.answered(ask, reply)
            return reply
        return None
