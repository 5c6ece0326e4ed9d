"""The masters of many sets lost at one time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

from controller.decision import Decision
from controller.electpolicy import LiveReport
from controller.events import AlterSyncStateSet, ApplyBrokerId, ElectMaster, decode
from controller.guard import LOOK_AT_ALL_EVERY_MS, LOOK_EVERY_MS, SETS_A_TURN, MasterGuard
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
from tests.unit.doubles import ManualClock

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
    """Plays DLedgerNode: what is proposed is decided together when `decide` is called."""

    def __init__(self, state: ReplicasState) -> None:
        self.is_active = True
        self.term = 1
        self.applied_index = self.last_index = 0
        self._state = state
        self.undecided_now: list[tuple[list[bytes], asyncio.Future[None]]] = []

    @property
    def undecided(self) -> int:
        return len(self.undecided_now)

    async def propose(self, bodies: list[bytes], timeout_ms: int) -> None:
        decided = asyncio.get_running_loop().create_future()
        self.undecided_now.append((bodies, decided))
        await decided

    def decide(self) -> None:
        undecided, self.undecided_now = self.undecided_now, []
        for bodies, decided in undecided:
            for event in map(decode, bodies):
                assert event is not None
                self._state.apply(event)
            decided.set_result(None)


class Brokers:
    """Plays LiveBrokers: broker 1 of each set has just died, broker 2 lives."""

    def __init__(self, names: list[str]) -> None:
        self._table = Heartbeats()
        self._connections: dict[tuple[str, int], int] = {}
        self._last = 0
        self.asked_of: dict[str, None] = {}
        """Sets of which the silent were to be told."""
        for broker_id in (1, 2):
            self.hear(broker_id, names)
        self.lose(1, names)

    def hear(self, broker_id: int, names: list[str], *, may_lack: bool = False) -> None:
        """Over a new connection of each."""
        for name in names:
            self._last += 1
            self._connections[name, broker_id] = self._last
            beat = Heartbeat("", 10_000, LiveReport(1, 100, 0, may_lack=may_lack))
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
        self.told: list[str] = []
        self.guard = MasterGuard(
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
        self.told.extend(addresses)

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


def test_elections_of_many_sets_are_proposed_together() -> None:
    async def scenario(scene: Scene) -> None:
        scene.lead()
        await until_quiet(scene.member)
        assert scene.member.undecided == SETS
        scene.member.decide()
        assert scene.masters() == [2] * SETS
        assert [*scene.brokers.asked_of] == scene.names

    play(scenario)


def test_a_turn_of_the_loop_looks_at_few_sets_and_tells_few() -> None:
    async def scenario(scene: Scene) -> None:
        looked_at, is_due = 0, scene.guard._is_due

        def looking(broker_name: str, live: Liveness) -> bool:
            nonlocal looked_at
            looked_at += 1
            return is_due(broker_name, live)

        scene.guard._is_due = looking  # type: ignore[method-assign]
        scene.guard._settings = SETTINGS.model_copy(update={"notify_broker_role_changed": True})
        scene.lead()
        before = (0, 0, 0)
        while scene.member.undecided < SETS or len(scene.told) < SETS:
            await asyncio.sleep(0)
            now = (looked_at, len(scene.told), scene.member.undecided)
            assert all(done - earlier <= SETS_A_TURN for done, earlier in zip(now, before, strict=True))
            before = now
        assert looked_at == len(scene.told) == SETS

    play(scenario)


def test_sets_that_are_led_are_looked_at_seldom_and_those_without_a_master_often() -> None:
    async def scenario(scene: Scene) -> None:
        led, unled = scene.names[2], scene.names[3]
        for name in scene.names:
            if name != unled:
                scene.brokers.hear(1, [name])
        scene.brokers.lose(2, [unled])
        scene.state.apply(ElectMaster(unled, None))
        looked_at, is_due = Counter[str](), scene.guard._is_due

        def looking(broker_name: str, live: Liveness) -> bool:
            looked_at[broker_name] += 1
            return is_due(broker_name, live)

        scene.guard._is_due = looking  # type: ignore[method-assign]
        scene.lead()
        for _ in range(20):
            scene.clock.ms += LOOK_EVERY_MS
            scene.guard.changed("unknown")  # the clock of the test wakes nobody
            for _ in range(20):
                await asyncio.sleep(0)
        assert looked_at[unled] >= 20
        assert looked_at[led] <= 2 + 20 * LOOK_EVERY_MS // LOOK_AT_ALL_EVERY_MS

    play(scenario)


def test_a_set_whose_election_takes_long_holds_up_no_other() -> None:
    async def scenario(scene: Scene) -> None:
        stuck, lost_later = scene.names[0], scene.names[1]
        hangs = asyncio.create_task(
            scene.runner.run(stuck, lambda state, live: Decision(events=(ElectMaster(stuck, 2),)))
        )
        scene.brokers.hear(1, [lost_later])
        await asyncio.sleep(0)
        held, scene.member.undecided_now = scene.member.undecided_now, []
        scene.lead()
        await until_quiet(scene.member)
        scene.member.decide()
        assert scene.masters() == [1, 1] + [2] * (SETS - 2), (
            "all but the one that waits and the one that lives"
        )
        scene.brokers.lose(1, [lost_later])
        scene.guard.changed(lost_later)
        await until_quiet(scene.member)
        scene.member.decide()
        assert scene.masters() == [1] + [2] * (SETS - 1)
        scene.member.undecided_now = held
        scene.member.decide()
        await hangs

    play(scenario)


async def until_quiet(member: Member) -> None:
    """Until what can be proposed without a decision is proposed."""
    before = -1
    while member.undecided != before or not before:
        before = member.undecided
        for _ in range(5):
            await asyncio.sleep(0)
