"""The order of evaluating, proposing and reporting, with a scripted group member."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from controller import runner
from controller.decision import Decision
from controller.events import ElectMaster
from controller.heartbeats import Heartbeats, Liveness
from controller.runner import WAITING_MAX, Busy, CommandRunner
from controller.setlocks import ITSELF, BrokerTurns, CommandSource, Rank, TurnNotCome
from controller.state import ReplicasState
from dledger.node.node import DLedgerNode
from dledger.raft.errors import NotLeader, OutcomeUnknown
from scripts.peers.waits import WAIT_S

ELECT = Decision(events=(ElectMaster("a", 1),))
STILL = Decision(code=2011)


class Member:
    """Plays DLedgerNode; `trace` lists the calls in order."""

    def __init__(self) -> None:
        self.is_active = True
        self.term = 1
        self.leader_id = self.leader_address = None
        self.applied_index = 0
        self.last_index = 0
        self.trace: list[str] = []
        self.outcome: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def propose(self, bodies: list[bytes], timeout_ms: int) -> list[object]:
        self.trace.append("propose")
        self.last_index += len(bodies)
        if self.outcome is not None:
            await self.outcome()
        self.applied_index = self.last_index
        return [None]

    async def read_barrier(self, timeout_ms: int) -> None:
        self.trace.append("barrier")


def runner_of(member: Member, on_proposed: Callable[[str], None] = lambda status: None) -> CommandRunner:
    return CommandRunner(
        cast(DLedgerNode, member),
        ReplicasState(),
        lambda: Heartbeats().at(0, 0),
        on_proposing=lambda decision: None,
        on_proposed=lambda status, seconds: on_proposed(status),
    )


async def hangs() -> None:
    await asyncio.Event().wait()


async def unknown_outcome() -> None:
    raise OutcomeUnknown("not committed")


async def refused() -> None:
    raise NotLeader(None, None)


@pytest.mark.parametrize(
    ("outcome", "status"), [(None, "success"), (unknown_outcome, "timeout"), (refused, "failed")]
)
def test_the_outcome_of_every_proposal_is_reported_once(outcome: Any, status: str) -> None:
    member, heard = Member(), list[str]()
    member.outcome = outcome
    commands = runner_of(member, heard.append)
    asyncio.run(_outcome(commands))
    assert heard == [status]


async def _outcome(commands: CommandRunner) -> None:
    with contextlib.suppress(NotLeader, OutcomeUnknown):
        await commands.run("a", lambda state, live: ELECT)


def test_a_reply_waits_for_its_events_or_for_a_read_barrier() -> None:
    member = Member()
    commands = runner_of(member)
    assert asyncio.run(commands.run("a", lambda state, live: ELECT)) is ELECT
    assert asyncio.run(commands.run("a", lambda state, live: STILL)) is STILL
    assert asyncio.run(commands.read(lambda state, live: STILL)) is STILL
    assert member.trace == ["propose", "barrier", "barrier"]


def test_a_command_without_events_is_evaluated_again_after_the_read_barrier() -> None:
    member = Member()
    decisions = iter([STILL, ELECT])
    assert asyncio.run(runner_of(member).run("a", lambda state, live: next(decisions))) is ELECT
    assert member.trace == ["barrier", "propose"]


def test_a_controller_that_does_not_lead_rejects_commands() -> None:
    member = Member()
    member.is_active = False
    with pytest.raises(NotLeader):
        asyncio.run(runner_of(member).run("a", lambda state, live: pytest.fail("evaluated")))


def test_commands_of_one_set_are_evaluated_one_after_the_other() -> None:
    member = Member()
    seen: list[int] = []

    def decide(state: ReplicasState, live: Liveness) -> Decision:
        seen.append(member.applied_index)
        return ELECT

    async def slowly() -> None:
        await asyncio.sleep(0)

    member.outcome = slowly

    async def all_at_once() -> None:
        commands = runner_of(member)
        await asyncio.gather(*(commands.run("a", decide) for _ in range(3)))

    asyncio.run(all_at_once())
    assert seen == [0, 1, 2]


def test_no_command_is_evaluated_while_an_earlier_outcome_is_unknown() -> None:
    async def scenario() -> None:
        member = Member()
        commands = runner_of(member)
        member.outcome = unknown_outcome
        with pytest.raises(OutcomeUnknown):
            await commands.run("a", lambda state, live: ELECT)
        member.outcome = None
        evaluated_at: list[int] = []
        waiting = asyncio.create_task(
            commands.run("a", lambda state, live: evaluated_at.append(member.applied_index) or STILL)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert evaluated_at == []
        member.applied_index = 1
        commands.progressed()
        assert await waiting is STILL
        assert evaluated_at[0] == 1

    asyncio.run(scenario())


def test_a_new_term_settles_an_unknown_outcome() -> None:
    async def scenario() -> None:
        member = Member()
        commands = runner_of(member)
        member.outcome = unknown_outcome
        with pytest.raises(OutcomeUnknown):
            await commands.run("a", lambda state, live: ELECT)
        member.outcome, member.term = None, 2
        assert await commands.run("a", lambda state, live: STILL) is STILL

    asyncio.run(scenario())


def test_a_command_that_waits_too_long_is_rejected_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TIMEOUT_MS", 1)
    monkeypatch.setattr(runner, "PROPOSE_MS_MIN", 0)

    async def scenario() -> None:
        member = Member()
        commands = runner_of(member)
        hang = asyncio.Event()

        async def hangs_on() -> None:
            await hang.wait()

        member.outcome = hangs_on
        first = asyncio.create_task(commands.run("a", lambda state, live: ELECT))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await commands.run("a", lambda state, live: pytest.fail("evaluated"))
        hang.set()
        await first

    asyncio.run(scenario())


def test_commands_on_different_sets_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        member = Member()
        commands = runner_of(member)
        committed = asyncio.Event()

        async def hangs_on() -> None:
            await committed.wait()

        member.outcome = hangs_on
        waiting = [
            asyncio.create_task(commands.run(name, lambda state, live: ELECT))
            for name in ("a", "b", "a", "c")
        ]
        await asyncio.sleep(0)
        assert member.trace == ["propose"] * 3, "one proposal of each set"
        committed.set()
        await asyncio.gather(*waiting)
        assert member.trace == ["propose"] * 4

    asyncio.run(scenario())


def test_an_unknown_outcome_of_one_set_does_not_delay_others() -> None:
    async def scenario() -> None:
        member = Member()
        commands = runner_of(member)
        member.outcome = unknown_outcome
        with pytest.raises(OutcomeUnknown):
            await commands.run("a", lambda state, live: ELECT)
        member.outcome = None
        same = asyncio.create_task(commands.run("a", lambda state, live: STILL))
        assert await commands.run("b", lambda state, live: STILL) is STILL
        assert not same.done()
        member.applied_index = member.last_index
        commands.progressed()
        assert await same is STILL

    asyncio.run(scenario())


def test_a_cancelled_proposal_has_an_unknown_outcome() -> None:
    async def scenario() -> None:
        member = Member()
        commands = runner_of(member)

        member.outcome = hangs
        cancelled = asyncio.create_task(commands.run("a", lambda state, live: ELECT))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        next_one = asyncio.create_task(commands.run("a", lambda state, live: STILL))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert member.trace == ["propose"], "nothing is evaluated before that is settled"
        member.applied_index = member.last_index
        commands.progressed()
        assert await next_one is STILL

    asyncio.run(scenario())


def test_no_lock_is_kept_for_sets_without_waiters() -> None:
    async def scenario() -> None:
        turns = BrokerTurns()
        end = asyncio.get_running_loop().time() + WAIT_S
        order: list[int] = []

        async def take(number: int) -> None:
            async with turns.of("a", end):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(take(number) for number in range(5)))
        assert order == [0, 1, 2, 3, 4]
        with pytest.raises(TurnNotCome):
            async with turns.of("a", end), turns.of("a", asyncio.get_running_loop().time()):
                pytest.fail("two holders")
        assert turns.waiting == 0 and not turns._turns

    asyncio.run(scenario())


def test_own_commands_run_first_then_brokers_then_connections_in_turn() -> None:
    async def scenario() -> None:
        turns, order = BrokerTurns(), []
        end = asyncio.get_running_loop().time() + WAIT_S

        async def take(name: str, asker: CommandSource) -> None:
            async with turns.of("a", end, asker):
                order.append(name)
                await asyncio.sleep(0)

        flood, other = CommandSource(Rank.ANYBODY, 7), CommandSource(Rank.ANYBODY, 8)
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(take(f"flood {number}", flood))
            group.create_task(take("other", other))
            group.create_task(take("broker", CommandSource(Rank.BROKER, 9)))
            group.create_task(take("election", ITSELF))
        assert order == ["flood 0", "election", "broker", "flood 1", "other", "flood 2", "flood 3"]
        assert turns.waiting == 0 and not turns._turns and not turns._waiting_of

    asyncio.run(scenario())


def test_the_turn_of_a_cancelled_waiter_passes_to_the_next() -> None:
    async def scenario() -> None:
        turns = BrokerTurns()
        end = asyncio.get_running_loop().time() + WAIT_S
        took = asyncio.Event()

        async def take() -> None:
            async with turns.of("a", end):
                took.set()

        async with turns.of("a", end):
            going, staying = asyncio.create_task(take()), asyncio.create_task(take())
            await asyncio.sleep(0)
        going.cancel()  # its turn has come, and it has not run yet
        await asyncio.gather(going, staying, return_exceptions=True)
        assert going.cancelled() and took.is_set() and not turns._turns

    asyncio.run(scenario())


def test_a_flooding_connection_leaves_room_for_others() -> None:
    async def scenario() -> None:
        member = Member()
        commands = runner_of(member)

        member.outcome = hangs
        flood = CommandSource(Rank.ANYBODY, 7)
        held = [asyncio.create_task(commands.run("a", lambda state, live: ELECT, flood))]
        await asyncio.sleep(0)
        held += [
            asyncio.create_task(commands.run("a", lambda state, live: ELECT, flood))
            for _ in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await commands.run("a", lambda state, live: ELECT, flood)
        for asker in (CommandSource(Rank.ANYBODY, 8), CommandSource(Rank.BROKER, 9), ITSELF):
            waits = asyncio.create_task(commands.run("a", lambda state, live: ELECT, asker))
            held.append(waits)
            await asyncio.sleep(0)
            assert not waits.done()
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    asyncio.run(scenario())
