"""The masters of many sets lost at one time."""

from __future__ import annotations

import asyncio
from typing import cast

from controller.electpolicy import LiveReport
from controller.events import AlterSyncStateSet, ApplyBrokerId, ElectMaster, decode
from controller.guard import MasterGuard
from controller.heartbeats import Heartbeat, Heartbeats, Liveness
from controller.livebrokers import LiveBrokers
from controller.notify import Notifier
from controller.runner import CommandRunner
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from dledger.actions import Role
from dledger.node import DLedgerNode
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
        self._undecided: list[tuple[list[bytes], asyncio.Future[None]]] = []

    @property
    def undecided(self) -> int:
        return len(self._undecided)

    async def propose(self, bodies: list[bytes], timeout_ms: int) -> None:
        decided = asyncio.get_running_loop().create_future()
        self._undecided.append((bodies, decided))
        await decided

    def decide(self) -> None:
        undecided, self._undecided = self._undecided, []
        for bodies, decided in undecided:
            for event in map(decode, bodies):
                assert event is not None
                self._state.apply(event)
            decided.set_result(None)


class Brokers:
    """Plays LiveBrokers: broker 1 of each set has just died, broker 2 lives."""

    def __init__(self, names: list[str]) -> None:
        self._table = Heartbeats()
        for number, name in enumerate(names):
            for broker_id in (1, 2):
                connection = 2 * number + broker_id
                beat = Heartbeat("", 10_000, LiveReport(1, 100, 0))
                self._table.heard(("c", name, broker_id), connection, beat, NOW)
            self._table.connection_closed(2 * number + 1, NOW)

    def liveness(self) -> Liveness:
        return self._table.at(NOW, NOW)

    def judge_from_now(self) -> None:
        pass

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


def test_elections_of_many_sets_are_proposed_together() -> None:
    async def scenario() -> None:
        names = [f"set-{number}" for number in range(SETS)]
        state, brokers, wake = of_two(names), Brokers(names), asyncio.Event()
        member = Member(state)
        runner = CommandRunner(
            cast(DLedgerNode, member),
            state,
            brokers.liveness,
            on_proposing=lambda decision: None,
            on_proposed=lambda status, seconds: None,
        )
        guard = MasterGuard(
            state,
            cast(LiveBrokers, brokers),
            runner,
            cast(Notifier, None),
            SETTINGS,
            ManualClock(),
            wake,
            lambda name, epoch: None,
        )
        guard.role_changed(Role.LEADER, 1)
        watching = asyncio.create_task(guard.watch())
        rounds = []
        while any(sync_state.master_id == 1 for sync_state in state.sync_states.values()):
            await until_quiet(member)
            rounds.append(member.undecided)
            member.decide()
        watching.cancel()
        assert sum(rounds) == SETS and len(rounds) == 2
        assert all(sync_state.master_id == 2 for sync_state in state.sync_states.values())

    asyncio.run(scenario())


async def until_quiet(member: Member) -> None:
    """Until what can be proposed without a decision is proposed."""
    before = -1
    while member.undecided != before or not before:
        before = member.undecided
        for _ in range(5):
            await asyncio.sleep(0)
