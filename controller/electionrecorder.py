"""Records elections on this controller, in memory and in a small file.

Invariant: the recorder only observes. A set is encoded again only when its elections changed, and only a few sets in a turn of
the event loop. If the file cannot be read or written, the history of elections is lost, but no election fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from controller.decision import Decision
from controller.electionhistory import ElectionHistory
from controller.events import AlterSyncStateSet, ElectMaster, Event
from controller.heartbeats import BrokerKey, Liveness
from controller.state import ReplicasState
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles
from remoting.bodies.elections import Elections
from remoting.errors import BodyError
from remoting.headers.controller import BrokerHeartbeatHeader

logger = logging.getLogger(__name__)

FILE = "elections.json"
SAVE_AFTER_MS = 2_000
"""The last times of an election are known soon after the election, and are saved together with it."""
SETS_A_TURN = 10
BEFORE, AFTER = Elections().encode().split(b"}", 1)[0], b"}}"
"""The bytes around the sets in the file."""


class ElectionRecorder:
    """`state` and `liveness()` are those of this controller."""

    def __init__(
        self, state: ReplicasState, liveness: Callable[[], Liveness], files: SmallFiles, clock: Clock
    ) -> None:
        self._state = state
        self._liveness = liveness
        self._files = files
        self._clock = clock
        self._changed = asyncio.Event()
        self._masters: dict[str, BrokerKey | None] = {}
        """Master of each broker set that held an election, as of the last applied event."""
        self._history = ElectionHistory(self._changed.set)
        self._encoded: dict[str, bytes] = {}
        """The encoding of each set with elections, as in the file."""

    def elections_of(self, broker_names: list[str]) -> Elections:
        """The last elections of the named sets, without unknown sets."""
        return self._history.elections_of(broker_names)

    # Events

    def proposing(self, decision: Decision) -> None:
        """Called when this controller is about to propose the events of `decision`."""
        for event in decision.events:
            if isinstance(event, ElectMaster):
                self._history.proposing(event, decision.reason, self._clock.now_ms())

    def deposed(self) -> None:
        """Called when this controller does not lead any more."""
        self._history.deposed()

    def applied(self, event: Event, *, witnessed: bool) -> None:
        """Called when `event` has just changed the state. `witnessed` is True if `event` arrived here before it was
        committed."""
        name, now_ms = event.broker_name, self._clock.now_ms()
        known = self._state.known(name)
        if known is None:
            self._masters.pop(name, None)
            self._history.forget(name, witnessed=witnessed)
            return
        replicas, sync_state = known
        match event:
            case ElectMaster():
                self._elected(event, sync_state.master_epoch, now_ms if witnessed else None)
                master_id = sync_state.master_id
                self._masters[name] = None if master_id is None else (replicas.cluster_name, name, master_id)
            case AlterSyncStateSet() if witnessed:
                self._history.acts(name, sync_state.master_id, sync_state.master_epoch, now_ms)

    def loaded(self, before: ReplicasState) -> None:
        """Called when a snapshot has just replaced the state `before`. This controller did not witness the elections in the
        snapshot."""
        for name in before.sync_states.keys() - self._state.sync_states.keys():
            self._masters.pop(name, None)
            self._history.forget(name, witnessed=False)
        for name in self._state.sync_states:
            known = self._state.known(name)
            if known is not None and known[1].master_epoch:
                replicas, sync_state = known
                master_id = sync_state.master_id
                self._masters[name] = None if master_id is None else (replicas.cluster_name, name, master_id)
                self._history.resumed(name, sync_state.master_epoch, master_id)

    def notified(self, broker_name: str, epoch: int) -> None:
        """Called when the master of `epoch` was notified."""
        self._history.notified(broker_name, epoch, self._clock.now_ms())

    def heard(self, header: BrokerHeartbeatHeader) -> None:
        """Called when a heartbeat came, with the epoch in which the broker acts."""
        self._history.acts(header.broker_name, header.broker_id, header.epoch, self._clock.now_ms())

    def _elected(self, event: ElectMaster, epoch: int, witnessed_ms: int | None) -> None:
        old_master = self._masters.get(event.broker_name)
        loss = self._liveness().loss(old_master) if old_master is not None else None
        self._history.elected(event, epoch, loss, witnessed_ms)

    # The file

    async def load(self) -> None:
        """Load the file of an earlier process; a damaged file counts as missing."""
        try:
            data = await self._files.read(FILE)
            if data is not None:
                self._history.restore(Elections.decode(data))
        except (OSError, BodyError) as error:
            logger.warning(
                "earlier elections not loaded",
                extra=fields(file=FILE, why=error, hint="the file will be replaced"),
            )

    async def run(self) -> None:
        """Save changes, until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(SAVE_AFTER_MS / 1000)
            await self.save()

    async def save(self) -> None:
        """Write the file if an election changed since the last call."""
        if not self._changed.is_set():
            return
        self._changed.clear()
        try:
            await self._encode_stale()
            await self._files.replace(FILE, BEFORE + b",".join(self._encoded.values()) + AFTER)
        except OSError as error:
            logger.warning(
                "elections not saved", extra=fields(why=error, hint="the next election saves them too")
            )

    async def _encode_stale(self) -> None:
        stale = self._history.take_stale()
        for start in range(0, len(stale), SETS_A_TURN):
            for name in stale[start : start + SETS_A_TURN]:
                elections = self._history.elections_of([name])
                if elections.elections_table:
                    self._encoded[name] = elections.encode()[len(BEFORE) : -len(AFTER)]
                else:
                    self._encoded.pop(name, None)
            await asyncio.sleep(0)
