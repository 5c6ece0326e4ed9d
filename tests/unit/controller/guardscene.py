"""A guard over many broker sets whose masters have just died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from controller.electpolicy import LiveReport
from controller.events import AlterSyncStateSet, ApplyBrokerId, ElectMaster, decode
from controller.failover import MasterFailover
from controller.handover import HandOver
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.livebrokers import LiveBrokers
from controller.notify import Notifier
from controller.runner import CommandRunner
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from tests.support.doubles import ManualClock

SETS = 300
NOW = 1_000_000
SETTINGS = ControllerSettings.model_validate(
    {
        "controllerDLegerGroup": "g",
        "controllerDLegerPeers": "n0-h:1",
        "controllerDLegerSelfId": "n0",
        "notifyBrokerRoleChanged": "false",
    }
)


class Member:
    """Plays DLedgerNode: proposals are committed together when `commit` is called."""

    def __init__(self, state: ReplicasState) -> None:
        self.is_active = True
        self.term = 1
        self.applied_index = self.last_index = 0
        self._state = state
        self.uncommitted_now: list[tuple[list[bytes], asyncio.Future[None]]] = []

    @property
    def uncommitted(self) -> int:
        return len(self.uncommitted_now)

    async def propose(self, bodies: list[bytes], timeout_ms: int) -> None:
        committed = asyncio.get_running_loop().create_future()
        self.uncommitted_now.append((bodies, committed))
        await committed

    def commit(self) -> None:
        uncommitted, self.uncommitted_now = self.uncommitted_now, []
        for bodies, committed in uncommitted:
            for event in map(decode, bodies):
                assert event is not None
                self._state.apply(event)
            committed.set_result(None)


class Brokers:
    """Plays LiveBrokers: broker 1 of each set has just died, broker 2 is alive."""

    def __init__(self, names: list[str]) -> None:
        self._table = Heartbeats()
        self._connections: dict[tuple[str, int], int] = {}
        self._last = 0
        self.asked_of: dict[str, None] = {}
        """Sets whose silent brokers were to be logged."""
        for broker_id in (1, 2):
            self.hear(broker_id, names)
        self.lose(1, names)

    def hear(self, broker_id: int, names: list[str], *, may_miss: bool = False) -> None:
        """Send a heartbeat of each over a new connection."""
        for name in names:
            self._last += 1
            self._connections[name, broker_id] = self._last
            beat = Heartbeat("", 10_000, LiveReport(1, 100, 0, may_miss=may_miss))
            self._table.heard(("c", name, broker_id), self._last, beat, NOW)

    def lose(self, broker_id: int, names: list[str]) -> None:
        for name in names:
            self._table.connection_closed(self._connections[name, broker_id], NOW)

    def liveness(self) -> Liveness:
        return self._table.at(NOW, NOW)

    def judge_from_now(self) -> None:
        pass

    def log_silent(self, broker_name: str) -> None:
        self.asked_of[broker_name] = None

    def forget_silent(self) -> None:
        pass


def of_two(names: list[str]) -> ReplicasState:
    state = ReplicasState()
    for name in names:
        for broker_id in (1, 2):
            state.apply(ApplyBrokerId("c", name, broker_id, f"h{broker_id}:1", f"h{broker_id}:1;7"))
        state.apply(ElectMaster(name, 1))
        state.apply(AlterSyncStateSet(name, frozenset({1, 2})))
    return state


class Scene:
    """A guard that leads over `SETS` sets whose masters have just died."""

    def __init__(self) -> None:
        self.names = [f"set-{number}" for number in range(SETS)]
        self.state = of_two(self.names)
        self.brokers = Brokers(self.names)
        self.member = Member(self.state)
        self.runner = CommandRunner(
            cast(DLedgerNode, self.member),
            self.state,
            self.brokers.liveness,
            on_proposing=lambda decision: None,
            on_proposed=lambda status, seconds: None,
        )
        self.clock = ManualClock()
        self.failures: list[BaseException] = []
        self.tasks = Tasks(self.failures.append)
        self.notified: list[str] = []
        self.guard = MasterFailover(
            self.state,
            cast(LiveBrokers, self.brokers),
            self.runner,
            cast(Notifier, self),
            HandOver(cast(RemotingClient, None), self.state, self.brokers.liveness, self.tasks),
            SETTINGS,
            self.clock,
            self.tasks,
            lambda name, epoch: None,
        )

    def announce(self, addresses: list[str], *what: object) -> None:
        """Plays Notifier."""
        self.notified.extend(addresses)

    def lead(self) -> None:
        self.guard.role_changed(Role.LEADER, 1)
        self.tasks.start(self.guard.watch(), name="watch")

    def masters(self) -> list[int | None]:
        return [sync_state.master_id for sync_state in self.state.sync_states.values()]


def play(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def played() -> None:
        scene = Scene()
        try:
            await scenario(scene)
        finally:
            await scene.tasks.stop()
        assert not scene.failures

    asyncio.run(played())
