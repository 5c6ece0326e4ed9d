"""Carries out commands on the leading controller, one at a time for each broker set.

Invariant: a command reads and changes only one set. No other event of the set can be applied between the command's decision and
its events: every earlier event by this leader has been applied, and if another controller becomes leader, the proposal fails. A
decision without events is returned only after a quorum confirmed that this controller still led when the decision was made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from controller.decision import Decision
from controller.events import encode
from controller.heartbeats import Liveness
from controller.setlocks import SOMEBODY, BrokerTurns, CommandSource, Rank, TurnNotCome
from controller.state import ReplicasState
from dledger.node.node import DLedgerNode
from dledger.raft.errors import NotLeader, OutcomeUnknown

WAITING_MAX = 1024
TIMEOUT_MS = 2400
"""Limit from the arrival of a command to its answer. Callers wait 3000 ms; a Java caller then closes the connection that its
heartbeats use."""
PROPOSE_MS_MIN = 400
"""A command is not tried if less time is left."""

D = TypeVar("D", Decision, Decision | None)


class Busy(Exception):
    """The command was not tried, because too many commands are waiting or earlier commands took too long."""


class CommandRunner:
    """The only place where events are proposed. `on_proposing` is called with each decision before its proposal, `on_proposed`
    with the result (success, failed or timeout) and the duration in seconds of each proposal."""

    def __init__(
        self,
        node: DLedgerNode,
        state: ReplicasState,
        liveness: Callable[[], Liveness],
        on_proposing: Callable[[Decision], None],
        on_proposed: Callable[[str, float], None],
    ) -> None:
        self._node = node
        self._state = state
        self._liveness = liveness
        self._on_proposing = on_proposing
        self._on_proposed = on_proposed
        self._turns = BrokerTurns()
        self._unsettled: dict[str, tuple[int, int]] = {}
        """Sets whose last proposal has an unknown outcome, with the proposal's term and an upper bound of its index."""
        self._progress = asyncio.Event()

    def progressed(self) -> None:
        """Called when an event is being applied, or when the role has changed."""
        self._progress.set()

    async def run(
        self,
        broker_name: str,
        decide: Callable[[ReplicasState, Liveness], D],
        asker: CommandSource = SOMEBODY,
    ) -> D:
        """Call `decide` on the set `broker_name`, and return the decision once its events are applied. If `decide` returns
        None, there is nothing to do, and None is returned. For the order of commands see controller.setlocks.

        Raises: NotLeader, Busy or TooManyProposals if nothing was done; OutcomeUnknown if the events may be applied, now or
        later."""
        if not self._node.is_active:
            raise NotLeader(self._node.leader_id, self._node.leader_address)
        if asker.rank is Rank.ANYBODY and not self._has_room(asker):
            raise Busy(f"{WAITING_MAX} commands wait")
        end = asyncio.get_running_loop().time() + TIMEOUT_MS / 1000
        try:
            async with self._turns.of(broker_name, end, asker):
                return await self._run(broker_name, decide, end)
        except TurnNotCome:
            raise Busy(f"its turn did not come within {TIMEOUT_MS} ms") from None

    def _has_room(self, asker: CommandSource) -> bool:
        """Whether one more command may wait. For a connection without a waiting command the limit is doubled."""
        turns = self._turns
        return turns.waiting < (WAITING_MAX if turns.waits(asker) else 2 * WAITING_MAX)

    async def read(self, decide: Callable[[ReplicasState, Liveness], Decision]) -> Decision:
        """The result of `decide` on a state with everything that was committed before this call. Raises NotLeader."""
        await self._node.read_barrier(TIMEOUT_MS)
        return decide(self._state, self._liveness())

    async def _run(self, broker_name: str, decide: Callable[[ReplicasState, Liveness], D], end: float) -> D:
        await self._settle(broker_name, end)
        decision = decide(self._state, self._liveness())
        if decision is not None and not decision.events:
            await self._node.read_barrier(_ms_until(end))
            decision = decide(self._state, self._liveness())
        if decision is not None and decision.events:
            if _ms_until(end) < PROPOSE_MS_MIN:
                raise Busy(f"its turn came after {TIMEOUT_MS - PROPOSE_MS_MIN} ms")
            self._on_proposing(decision)
            await self._propose(broker_name, [encode(event) for event in decision.events], _ms_until(end))
        return decision

    async def _propose(self, broker_name: str, bodies: list[bytes], timeout_ms: int) -> None:
        term, status, began = self._node.term, "failed", asyncio.get_running_loop().time()
        try:
            await self._node.propose(bodies, timeout_ms)
            status = "success"
        except (OutcomeUnknown, asyncio.CancelledError):
            status = "timeout"
            self._forget_settled()
            self._unsettled[broker_name] = (term, self._node.last_index)
            raise
        finally:
            self._on_proposed(status, asyncio.get_running_loop().time() - began)

    async def _settle(self, broker_name: str, end: float) -> None:
        """Wait until an earlier proposal with an unknown outcome is applied, or can never be applied because its term is
        over."""
        if broker_name not in self._unsettled:
            return
        term, end_index = self._unsettled[broker_name]
        try:
            async with asyncio.timeout_at(end):
                while self._is_pending(term, end_index):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise Busy("an earlier command is not committed yet") from None
        if not self._node.is_active:
            raise NotLeader(self._node.leader_id, self._node.leader_address)
        self._unsettled.pop(broker_name, None)

    def _forget_settled(self) -> None:
        """Drop settled proposals, so that idle sets use no memory."""
        self._unsettled = {
            name: proposal for name, proposal in self._unsettled.items() if self._is_pending(*proposal)
        }

    def _is_pending(self, term: int, end_index: int) -> bool:
        node = self._node
        return node.is_active and node.term == term and node.applied_index < end_index


def _ms_until(end: float) -> int:
    return max(1, int((end - asyncio.get_running_loop().time()) * 1000))
