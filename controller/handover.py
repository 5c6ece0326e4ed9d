"""Planned switchover: a live master lets its successor catch up before an election deposes the master.

Each election is prepared here (by `MasterFailover.elect` in controller/failover.py). The master's side is
broker/switchover/handover.py.

Invariant: no election depends on the preparation. A master that refuses, does not know the request or does not answer in time
is deposed all the same. If the election does not happen after all, the master is notified. If this message is lost, the master
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
"""Time for the successor to catch up. Callers of an election wait 3000 ms, and the election itself may take
runner.TIMEOUT_MS."""
ANSWER_MS = WAIT_MS + 150
HOLD_MS = 3_000
"""The longest time in which the master accepts no messages. After this time it resumes, because it was not deposed or does not
know that it was."""


@dataclass(frozen=True, slots=True)
class PlannedSwitchover:
    """A switchover from the live master at `address` to its successor."""

    broker_name: str
    address: str
    master_epoch: int
    successor_id: int


def departure(
    broker_name: str, decision: Decision | None, state: ReplicasState, live: Liveness
) -> PlannedSwitchover | None:
    """The switchover that `decision`, made on `state` and `live`, would cause. None if no live master is deposed, or if the
    successor is not a member of the set: the master cannot wait for such a successor."""
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
    """Sends requests over `client`'s connections. `tasks` runs requests that no caller waits for."""

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
        """Prepare the election that `decide` decides now. Returns the switchover if the master holds its sends and the
        successor has caught up; else None."""
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
        """Notify the master that there is no election, so that it resumes at once."""
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
