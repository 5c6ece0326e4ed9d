"""Planned switchover: a live master lets its successor catch up before an election deposes it.

Each election goes through it (`MasterFailover.elect` in controller/failover.py). The master answers in
broker/switchover/handover.py.

Invariant: no election depends on it. A master that refuses, does not know the request or does not answer in time is
deposed all the same. If the election then does not happen, the master is notified; if that message is lost, it
resumes by itself after HOLD_MS."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from controller.decision import Decision
from controller.events import ElectMaster
from controller.heartbeats import Liveness
from controller.state import ReplicasState
from mqruntime.log import fields
from mqruntime.tasks import Tasks
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.group import HandOverHeader

logger = logging.getLogger(__name__)

WAIT_MS = 400
"""Time for the successor to catch up. Callers of an election wait 3000 ms, and it may itself take runner.TIMEOUT_MS."""
ANSWER_MS = WAIT_MS + 150
HOLD_MS = 3_000
"""Longest time that the master accepts no messages. Then it resumes: it was not deposed, or does not know."""


@dataclass(frozen=True, slots=True)
class PlannedSwitchover:
    """A live master at `address`, and its successor."""

    broker_name: str
    address: str
    master_epoch: int
    successor_id: int


def departure(
    broker_name: str, decision: Decision | None, state: ReplicasState, live: Liveness
) -> PlannedSwitchover | None:
    """The switchover that `decision`, made on `state` and `live`, would cause; None if it deposes no live master.
    Only a member of the set can be waited for."""
    known = state.known(broker_name)
    elected = next(
        (
            event.master_id
            for event in (decision.events if decision else ())
            if isinstance(event, ElectMaster)
        ),
        None,
    )
    if known is None or elected is None:
        return None
    replicas, sync_state = known
    master = replicas.by_id.get(sync_state.master_id or 0)
    if master is None or sync_state.master_id == elected or elected not in sync_state.members:
        return None
    if not live.is_alive((replicas.cluster_name, broker_name, sync_state.master_id or 0)):
        return None
    return PlannedSwitchover(broker_name, master.address, sync_state.master_epoch, elected)


class HandOver:
    """Sends requests over `client`'s connections; `tasks` run those that nobody waits for."""

    def __init__(
        self, client: RemotingClient, state: ReplicasState, liveness: Callable[[], Liveness], tasks: Tasks
    ) -> None:
        self._client = client
        self._state = state
        self._liveness = liveness
        self._tasks = tasks

    async def prepare(
        self, broker_name: str, decide: Callable[[ReplicasState, Liveness], Decision | None]
    ) -> PlannedSwitchover | None:
        """Prepare the election that `decide` comes to now. Returns the switchover whose master holds its messages and whose
        successor has caught up; None if there is none."""
        live = self._liveness()
        leaving = departure(broker_name, decide(self._state, live), self._state, live)
        if leaving is None:
            return None
        header = HandOverHeader(broker_name, leaving.master_epoch, leaving.successor_id, WAIT_MS, HOLD_MS)
        try:
            reply = await self._client.call(
                leaving.address, RemotingCommand.request(RequestCode.HAND_OVER, header), ANSWER_MS
            )
        except RemotingError as error:
            logger.warning("no planned hand-over", extra=fields(broker=broker_name, why=error))
            self.called_off(leaving)
            return None
        if reply.code == ResponseCode.SUCCESS:
            return leaving
        logger.info(
            "no planned hand-over",
            extra=fields(broker=broker_name, code=reply.code, why=reply.remark or ""),
        )
        return None

    def called_off(self, leaving: PlannedSwitchover | None) -> None:
        """Notify the master that there is no election, so that it need not wait."""
        if leaving is not None:
            self._tasks.start(self._call_off(leaving), name=f"call off hand-over of {leaving.broker_name}")

    async def _call_off(self, leaving: PlannedSwitchover) -> None:
        header = HandOverHeader(
            leaving.broker_name, leaving.master_epoch, leaving.successor_id, called_off=True
        )
        try:
            await self._client.one_way(
                leaving.address, RemotingCommand.request(RequestCode.HAND_OVER, header)
            )
        except RemotingError as error:
            logger.debug("hand-over not called off", extra=fields(broker=leaving.broker_name, why=error))
