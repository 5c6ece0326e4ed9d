"""The brokers known to this controller: their heartbeats, their connections, their confirmed offsets.

Invariant: a broker that is not registered is ignored. Silence counts from the start of each leadership, by a clock without
pauses of this process, so a broker is never blamed for heartbeats that this process could not receive. A connection stays
recorded after its end, so that late messages over it are recognised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from controller.commands import (
    START_NUMBERS_ON,
    IdentityRefusal,
    Process,
    is_another_process,
    why_not_this_process,
)
from controller.electpolicy import LiveReport
from controller.eligibility import UPSTREAM
from controller.events import ApplyBrokerId, Event
from controller.heartbeats import BrokerKey, Heartbeat, Heartbeats, Liveness
from controller.holdings import Held, Holdings, LogReport
from controller.isolation import Hearing
from controller.state import ReplicasState, SyncState
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from remoting.headers.controller import (
    BrokerHeartbeatHeader,
    GetReplicaInfoHeader,
    RegisterBrokerToControllerHeader,
)

logger = logging.getLogger(__name__)


DOUBLE_MS, SURELY_MS = 20_000, 2_000
"""A second process of a broker counts for DOUBLE_MS after its last request, and after SURELY_MS of requests. It asks every few
seconds."""


@dataclass
class _Double:
    """A second process that claims to be a live broker."""

    first_ms: int
    last_ms: int = 0
    address: str = ""
    is_confirmed: bool = False
    failure: RepeatedFailure = field(default_factory=RepeatedFailure)

    def __post_init__(self) -> None:
        self.last_ms = self.first_ms


class LiveBrokers:
    """`state` is read and never changed. `clock` excludes pauses of this process. `on_change` is called with the name of a set
    when a broker of the set came, or when the connection of such a broker ended."""

    def __init__(
        self, state: ReplicasState, holdings: Holdings, clock: Clock, on_change: Callable[[str], None]
    ) -> None:
        self._state = state
        self._holdings = holdings
        self._clock = clock
        self._on_change = on_change
        self._heartbeats = Heartbeats()
        self.hearing = Hearing()
        self._judging_since_ms = 0
        self._awaited: dict[BrokerKey, list[asyncio.Event]] = {}
        self._doubles: dict[BrokerKey, _Double] = {}

    def liveness(self) -> Liveness:
        """Liveness of all brokers now."""
        now_ms = self._clock.monotonic_ms()
        holdings = self._holdings
        return self._heartbeats.at(now_ms, self._judging_since_ms, holdings.incomplete, holdings.start_number)

    def judge_from_now(self) -> None:
        """Begin a leadership of this controller."""
        self._judging_since_ms = self._clock.monotonic_ms()
        self.hearing.leads_from(self._judging_since_ms)

    def should_give_way(self) -> bool:
        """Whether this leading controller hears no registered broker, so that another controller should lead."""
        return bool(self._state.replicas) and self.hearing.should_give_way(self._clock.monotonic_ms())

    def gives_way(self, members: Iterable[str], self_id: str) -> str:
        """The controller to transfer leadership to."""
        return self.hearing.give_way(members, self_id, self._clock.monotonic_ms())

    def heard(self, header: BrokerHeartbeatHeader, connection: int) -> None:
        """Record BROKER_HEARTBEAT (904), which came over `connection`. A heartbeat from another address than the registered
        address is ignored: its sender had the id before, and has not noticed the loss of the id."""
        assert header.broker_id is not None
        key = self._key(header.broker_name, header.broker_id)
        if key is None or key[0] != header.cluster_name or not self._is_registered(key, header):
            return
        if not self._is_known(key, header) and self._heartbeats.of_former(
            key, connection, header.incarnation
        ):
            return
        known = self._state.known(header.broker_name)
        self.hearing.heard(header.heartbeat_timeout_mills, self._clock.monotonic_ms())
        member = known is not None and _held_all(known[1], header.broker_id)
        confirmed = header.records_confirmed if header.start_number else header.confirm_offset
        held = LogReport(header.epoch, header.max_offset, confirmed, header.start_number)
        missing = self._holdings.heard(key, connection, held, member=member)
        if missing is not None:
            _warn_of_missing_data(key, held, missing)
        report = LiveReport(
            header.epoch,
            header.max_offset,
            header.election_priority,
            max(UPSTREAM, header.min_in_sync_replicas),
            header.may_miss_acknowledged,
            header.unfit_to_lead,
            header.async_learner,
            bool(header.could_lead),
            bool(header.disk_set_back),
        )
        heartbeat = Heartbeat(header.broker_addr, header.heartbeat_timeout_mills, report)
        yields = bool(header.unfit_to_lead) and not self._heartbeats.unfit(key)
        if self._heartbeats.heard(key, connection, heartbeat, self._clock.monotonic_ms()):
            logger.info("broker alive", extra=fields(cluster=key[0], broker=key[1], id=key[2]))
            if header.disk_set_back:
                _warn_of_old_disk(key, header.max_offset)
            elif header.may_miss_acknowledged:
                _warn_of_lost_memory(key, header.max_offset)
            self._on_change(key[1])
        elif yields:
            self._on_change(key[1])
        for came in self._awaited.get(key, ()):
            came.set()

    def why_not_this_process(self, header: RegisterBrokerToControllerHeader) -> IdentityRefusal | None:
        """The reason why the sender of CONTROLLER_REGISTER_BROKER (1003) does not count as the broker that it names."""
        key = self._key(header.broker_name, header.broker_id)
        if key is None or header.register_check_code not in (None, self._state.check_code(key)):
            return None
        replica = self._state.replicas[key[1]].by_id[key[2]]
        process = Process(header.start_number, header.incarnation, header.register_check_code is not None)
        refusal = why_not_this_process(replica, self.liveness(), key, header.broker_address, process)
        if refusal is not None and refusal.other_address is not None:
            self._note_double(key, header.broker_address)
        return refusal

    def begins(self, header: RegisterBrokerToControllerHeader, connection: int) -> bool:
        """Whether the accepted CONTROLLER_REGISTER_BROKER (1003) comes from a new process with a start number above all earlier
        numbers. If so, messages of other processes of this broker no longer count, however late they come."""
        key = self._key(header.broker_name, header.broker_id)
        if key is None or not header.start_number:
            return False
        if header.register_check_code not in (None, self._state.check_code(key)):
            return False
        if header.incarnation == self._state.replicas[key[1]].by_id[key[2]].incarnation:
            return False
        self._heartbeats.begins(key, connection, self._clock.monotonic_ms())
        return True

    def polled(self, header: GetReplicaInfoHeader) -> str | None:
        """Handle CONTROLLER_GET_REPLICA_INFO (1004). If the registered process of a broker asks, returns the address of another
        process that lately claimed to be this broker; else None."""
        key = None if header.broker_id is None else self._key(header.broker_name, header.broker_id)
        if key is None:
            return None
        replica = self._state.replicas[key[1]].by_id[key[2]]
        if not replica.may_say(header.register_check_code):
            return None
        if is_another_process(replica, header.broker_address, header.incarnation):
            if self.liveness().is_alive(key):
                self._note_double(key, header.broker_address or "")
            return None
        double = self._doubles.get(key)
        lasts = double is not None and self._clock.monotonic_ms() - double.last_ms <= DOUBLE_MS
        return double.address if double is not None and lasts and double.is_confirmed else None

    def _note_double(self, key: BrokerKey, address: str) -> None:
        """Record that another process than the registered process claims to be this live broker. A single claim does not count,
        because the other process may be gone and its message delayed."""
        now_ms = self._clock.monotonic_ms()
        double = self._doubles.get(key)
        if double is None or now_ms - double.last_ms > DOUBLE_MS:
            double = self._doubles[key] = _Double(now_ms)
        double.address, double.last_ms = address, now_ms
        if now_ms - double.first_ms < SURELY_MS:
            return
        double.is_confirmed = True
        if double.failure.failed(address, now_ms):
            logger.warning(
                "duplicate broker",
                extra=fields(
                    cluster=key[0],
                    broker=key[1],
                    id=key[2],
                    registered=self._state.replicas[key[1]].by_id[key[2]].address,
                    other=address,
                    hint="two processes have one identity, and one store is a copy of the other: stop the one that is not "
                    "registered and empty its store, so that it joins with an id of its own",
                ),
            )

    def restarted(
        self,
        broker_name: str,
        broker_id: int,
        connection: int,
        incarnation: int = 0,
        check_code: str | None = None,
    ) -> bool:
        """Record CONTROLLER_REGISTER_BROKER (1003), which came over `connection`. The broker counts as alive again after its
        next heartbeat, which has the new end of its log. Returns False if the request is late: the sender, or a later process,
        was heard over a newer connection. A request whose `check_code` differs from the code of the id is rejected elsewhere,
        and changes nothing here."""
        key = self._key(broker_name, broker_id)
        if key is None or check_code not in (None, self._state.check_code(key)):
            return True
        if self._heartbeats.of_former(key, connection, incarnation):
            return False
        return self._heartbeats.restarted(key, connection, self._clock.monotonic_ms(), incarnation)

    def applied(self, event: Event) -> None:
        """Called when `event` has just changed the state. If `event` granted an id, everything heard under this id came from an
        earlier owner of the id, and is dropped."""
        if isinstance(event, ApplyBrokerId):
            self._heartbeats.forget((event.cluster_name, event.broker_name, event.broker_id))

    def loaded(self, before: ReplicasState) -> None:
        """Called when a snapshot has just replaced the state `before`. Drops everything heard under ids that now belong to
        another broker. Only heard ids are checked, because the state may have far more ids."""
        for key in self._heartbeats.spoken_of():
            code = self._state.check_code(key)
            if code is not None and code != before.check_code(key):
                self._heartbeats.forget(key)

    def speak_over(self, connection: int) -> bool:
        """Whether the newest heartbeat of a registered broker came over `connection`."""
        return self._heartbeats.came_over(connection)

    def connection_closed(self, connection: int) -> None:
        """Mark the brokers of this connection as dead."""
        for cluster, broker, broker_id in self._heartbeats.connection_closed(
            connection, self._clock.monotonic_ms()
        ):
            logger.info("broker connection ended", extra=fields(cluster=cluster, broker=broker, id=broker_id))
            self._on_change(broker)

    def log_silent(self, broker_name: str) -> None:
        """Log each broker of the set that fell silent since the last call. Only the leading controller judges this."""
        replicas, now_ms = self._state.replicas.get(broker_name), self._clock.monotonic_ms()
        if replicas is None:
            return
        for broker_id in replicas.by_id:
            key = (replicas.cluster_name, broker_name, broker_id)
            if self._heartbeats.fell_silent(key, now_ms, self._judging_since_ms):
                logger.info("broker silent", extra=fields(cluster=key[0], broker=broker_name, id=broker_id))

    def forget_silent(self) -> None:
        """Drop dead brokers that were not heard for a long time."""
        now_ms = self._clock.monotonic_ms()
        self._heartbeats.forget_silent(now_ms)
        self._doubles = {
            key: each for key, each in self._doubles.items() if now_ms - each.last_ms <= DOUBLE_MS
        }

    async def wait_alive(self, broker_name: str, broker_id: int, timeout_ms: int) -> None:
        """Wait until a registered broker is heard, at most `timeout_ms`."""
        key = self._key(broker_name, broker_id)
        if key is None or self.liveness().is_alive(key):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._next_words([key])

    async def wait_reported(self, broker_name: str, timeout_ms: int) -> None:
        """Wait until all live brokers of the set have reported since this controller leads, at most `timeout_ms`."""
        replicas = self._state.replicas.get(broker_name)
        live = self.liveness()
        keys = (
            [(replicas.cluster_name, broker_name, broker_id) for broker_id in replicas.by_id]
            if replicas
            else []
        )
        unreported = [key for key in keys if live.is_alive(key) and not live.has_reported(key)]
        if unreported:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._next_words(unreported)

    async def _next_words(self, keys: list[BrokerKey]) -> None:
        came = [(key, asyncio.Event()) for key in keys]
        for key, event in came:
            self._awaited.setdefault(key, []).append(event)
        try:
            for _, event in came:
                await event.wait()
        finally:
            for key, event in came:
                self._awaited[key].remove(event)
                if not self._awaited[key]:
                    del self._awaited[key]

    def _key(self, broker_name: str, broker_id: int) -> BrokerKey | None:
        """The broker's key, with the stored cluster name; None for a broker that is not registered."""
        replicas = self._state.replicas.get(broker_name)
        if replicas is None or broker_id not in replicas.by_id:
            return None
        return (replicas.cluster_name, broker_name, broker_id)

    def _is_registered(self, key: BrokerKey, header: BrokerHeartbeatHeader) -> bool:
        """Whether the registered process sent this heartbeat. If the registered process did not identify itself (upstream's),
        any process at its address counts."""
        replica = self._state.replicas[key[1]].by_id[key[2]]
        says = replica.start_number and replica.incarnation
        return (self._is_known(key, header) or not says) and replica.address == header.broker_addr

    def _is_known(self, key: BrokerKey, header: BrokerHeartbeatHeader) -> bool:
        """Whether the start number and the incarnation prove that the registered process sent this heartbeat."""
        incarnation = self._state.replicas[key[1]].by_id[key[2]].incarnation
        if not header.start_number > 0 or not 0 < incarnation == header.incarnation:
            return False
        heard = self._holdings.start_number(key)
        known = max(heard, self._state.replicas[key[1]].by_id[key[2]].start_number)
        return header.start_number - known <= START_NUMBERS_ON


def _warn_of_old_disk(key: BrokerKey, log_end: int) -> None:
    logger.warning(
        "broker disk set back",
        extra=fields(
            broker=key[1],
            id=key[2],
            log_end=log_end,
            hint="its start number was heard before, so this disk is an earlier image or a copy; until it has caught up with a "
            "master it is elected only by an operator: start the other members, or its newest disk, or elect the best broker "
            "with mqadmin electMaster and lose what is missing",
        ),
    )


def _warn_of_lost_memory(key: BrokerKey, log_end: int) -> None:
    logger.warning(
        "broker may be missing acknowledged data",
        extra=fields(
            broker=key[1],
            id=key[2],
            log_end=log_end,
            hint="its machine went down, or a sync of its log failed; until it has caught up it is not elected while another "
            "member may come: start the others, or elect it with mqadmin electMaster and lose what is missing",
        ),
    )


def _held_all(sync_state: SyncState, broker_id: int) -> bool:
    """Whether the broker held all acknowledged data when the set last changed."""
    return broker_id in sync_state.members or broker_id in sync_state.eligible


def _warn_of_missing_data(key: BrokerKey, held: LogReport, missing: Held) -> None:
    logger.warning(
        "member is missing confirmed data",
        extra=fields(
            broker=key[1],
            id=key[2],
            log_end=held.max_offset,
            confirmed=missing.confirm_offset,
            epoch=missing.epoch,
            hint="it is not elected while another member may come: start the others, or elect it with mqadmin electMaster and "
            "lose what is missing",
        ),
    )
