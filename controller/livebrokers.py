"""The brokers that this controller hears: their heartbeats, their connections, what their logs hold.

Invariant: a broker that is not registered counts for nothing. Silence is judged from the beginning of each leadership, and
by a clock that stands still while this controller does: what nobody could hear is held against nobody. Ended connections are
not forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from controller.commands import (
    START_NUMBERS_ON,
    Process,
    Refusal,
    is_another_process,
    why_not_this_process,
)
from controller.electpolicy import LiveReport
from controller.eligibility import UPSTREAM
from controller.events import ApplyBrokerId, Event
from controller.hearing import Hearing
from controller.heartbeats import BrokerKey, Heartbeat, Heartbeats, Liveness
from controller.holdings import Held, Holdings, Report
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
"""A second process of one broker asks again every few seconds."""


@dataclass
class _Double:
    """A process that says that it is a broker which lives."""

    first_ms: int
    last_ms: int = 0
    address: str = ""
    is_told: bool = False
    told: RepeatedFailure = field(default_factory=RepeatedFailure)

    def __post_init__(self) -> None:
        self.last_ms = self.first_ms


class LiveBrokers:
    """`state` is read, never changed; `clock` is one that counts the time that this controller was awake for;
    `on_change` hears the name of a set of which a broker came, or the connection of one ended."""

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
        """Who lives now."""
        now_ms = self._clock.monotonic_ms()
        holdings = self._holdings
        return self._heartbeats.at(now_ms, self._judging_since_ms, holdings.lacking, holdings.start_number)

    def judge_from_now(self) -> None:
        """This controller begins to lead."""
        self._judging_since_ms = self._clock.monotonic_ms()
        self.hearing.leads_from(self._judging_since_ms)

    def should_give_way(self) -> bool:
        """Whether this controller, which leads, hears none of the registered brokers, so that another one should try."""
        return bool(self._state.replicas) and self.hearing.should_give_way(self._clock.monotonic_ms())

    def gives_way(self, members: Iterable[str], self_id: str) -> str:
        """Whom it should try to give the leadership."""
        return self.hearing.yield_to_preferred(members, self_id, self._clock.monotonic_ms())

    def heard(self, header: BrokerHeartbeatHeader, connection: int) -> None:
        """Request 904 came over `connection`. One from another address than the id's is of a broker that had the id before,
        and has not noticed."""
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
        held = Report(header.epoch, header.max_offset, confirmed, header.start_number)
        lacks = self._holdings.heard(key, connection, held, member=member)
        if lacks is not None:
            _warn_of_lack(key, held, lacks)
        report = LiveReport(
            header.epoch,
            header.max_offset,
            header.election_priority,
            max(UPSTREAM, header.min_in_sync_replicas),
            header.may_lack_acknowledged,
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
            elif header.may_lack_acknowledged:
                _warn_of_lost_memory(key, header.max_offset)
            self._on_change(key[1])
        elif yields:
            self._on_change(key[1])
        for came in self._awaited.get(key, ()):
            came.set()

    def why_not_this_process(self, header: RegisterBrokerToControllerHeader) -> Refusal | None:
        """Why who sent request 1003 does not count as the broker that it speaks for."""
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
        """Whether request 1003, which is not refused, is of a new process by its start number, which is above all others:
        what others said for this broker counts no longer, however late it comes."""
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
        """Request 1004 came. Where another process lately said that it is the broker which asks, as the registered one."""
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
        return double.address if double is not None and lasts and double.is_told else None

    def _note_double(self, key: BrokerKey, address: str) -> None:
        """A process that is not the registered one says that it is this broker, which lives. One that says so once may be gone,
        and its word held up."""
        now_ms = self._clock.monotonic_ms()
        double = self._doubles.get(key)
        if double is None or now_ms - double.last_ms > DOUBLE_MS:
            double = self._doubles[key] = _Double(now_ms)
        double.address, double.last_ms = address, now_ms
        if now_ms - double.first_ms < SURELY_MS:
            return
        double.is_told = True
        if double.told.failed(address, now_ms):
            logger.warning(
                "duplicate broker",
                extra=fields(
                    cluster=key[0],
                    broker=key[1],
                    id=key[2],
                    registered=self._state.replicas[key[1]].by_id[key[2]].address,
                    other=address,
                    hint="two processes have one identity, the store of one is a copy of the other's: stop the one that is not "
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
        """Request 1003 came over `connection`. The broker is alive once it is heard again, and with what its log holds
        now. False when the request is late: its sender, or the process after it, has been heard over a newer connection.
        Who says another `check_code` than the id was granted with is refused, and has said nothing of the id's broker."""
        key = self._key(broker_name, broker_id)
        if key is None or check_code not in (None, self._state.check_code(key)):
            return True
        if self._heartbeats.of_former(key, connection, incarnation):
            return False
        return self._heartbeats.restarted(key, connection, self._clock.monotonic_ms(), incarnation)

    def applied(self, event: Event) -> None:
        """`event` has just changed the state. An id that is granted again is another broker's: what was heard under it before
        the set was cleaned is not that one's life."""
        if isinstance(event, ApplyBrokerId):
            self._heartbeats.forget((event.cluster_name, event.broker_name, event.broker_id))

    def loaded(self, before: ReplicasState) -> None:
        """A snapshot has just replaced the state `before`: the same of each id that is another broker's now. Only those that
        were heard are looked at: the state may have far more."""
        for key in self._heartbeats.spoken_of():
            code = self._state.check_code(key)
            if code is not None and code != before.check_code(key):
                self._heartbeats.forget(key)

    def speak_over(self, connection: int) -> bool:
        """Whether a registered broker's newest heartbeat came over it."""
        return self._heartbeats.came_over(connection)

    def connection_closed(self, connection: int) -> None:
        """A broker whose connection this was is gone."""
        for cluster, broker, broker_id in self._heartbeats.connection_closed(
            connection, self._clock.monotonic_ms()
        ):
            logger.info("broker connection ended", extra=fields(cluster=cluster, broker=broker, id=broker_id))
            self._on_change(broker)

    def tell_silent(self, broker_name: str) -> None:
        """Who of the set fell silent since the last time is told once; only the controller that judges knows."""
        replicas, now_ms = self._state.replicas.get(broker_name), self._clock.monotonic_ms()
        if replicas is None:
            return
        for broker_id in replicas.by_id:
            key = (replicas.cluster_name, broker_name, broker_id)
            if self._heartbeats.fell_silent(key, now_ms, self._judging_since_ms):
                logger.info("broker silent", extra=fields(cluster=key[0], broker=broker_name, id=broker_id))

    def forget_silent(self) -> None:
        """Drop the dead that have not been heard of for long."""
        now_ms = self._clock.monotonic_ms()
        self._heartbeats.forget_silent(now_ms)
        self._doubles = {
            key: each for key, each in self._doubles.items() if now_ms - each.last_ms <= DOUBLE_MS
        }

    async def wait_alive(self, broker_name: str, broker_id: int, timeout_ms: int) -> None:
        """Returns once a registered broker has been heard, or the time is over."""
        key = self._key(broker_name, broker_id)
        if key is None or self.liveness().is_alive(key):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._next_words([key])

    async def wait_told(self, broker_name: str, timeout_ms: int) -> None:
        """Returns once all brokers of the set that live have told this controller how they are since it leads, or the time is
        over."""
        replicas = self._state.replicas.get(broker_name)
        live = self.liveness()
        keys = (
            [(replicas.cluster_name, broker_name, broker_id) for broker_id in replicas.by_id]
            if replicas
            else []
        )
        untold = [key for key in keys if live.is_alive(key) and not live.has_told(key)]
        if untold:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._next_words(untold)

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
        """Under the stored cluster name; None for a broker that is not registered."""
        replicas = self._state.replicas.get(broker_name)
        if replicas is None or broker_id not in replicas.by_id:
            return None
        return (replicas.cluster_name, broker_name, broker_id)

    def _is_registered(self, key: BrokerKey, header: BrokerHeartbeatHeader) -> bool:
        """Whether the process that sent this heartbeat is the one that registered; it counts as that one where that did not say
        which it is, as upstream's do not."""
        replica = self._state.replicas[key[1]].by_id[key[2]]
        says = replica.start_number and replica.incarnation
        return (self._is_known(key, header) or not says) and replica.address == header.broker_addr

    def _is_known(self, key: BrokerKey, header: BrokerHeartbeatHeader) -> bool:
        """Whether it surely is."""
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
            "master it is not elected by itself: start the other members, or its newest disk, or elect the best that there is "
            "with mqadmin electMaster and lose what is missing",
        ),
    )


def _warn_of_lost_memory(key: BrokerKey, log_end: int) -> None:
    logger.warning(
        "the machine of a broker went down under its store, or a sync of its log failed; until it has caught up with a master "
        "it is not elected while another member may come: start the others, or elect it with mqadmin electMaster and lose what "
        "it lacks",
        extra=fields(broker=key[1], id=key[2], log_end=log_end),
    )


def _held_all(sync_state: SyncState, broker_id: int) -> bool:
    """Whether it had all that was acknowledged when the set last changed."""
    return broker_id in sync_state.members or broker_id in sync_state.eligible


def _warn_of_lack(key: BrokerKey, held: Report, lacks: Held) -> None:
    logger.warning(
        "a member of the SyncStateSet came back with less than was confirmed; while another member may come it is not "
        "elected: start the others, or elect it with mqadmin electMaster and lose what it lacks",
        extra=fields(
            broker=key[1],
            id=key[2],
            log_end=held.max_offset,
            confirmed=lacks.confirm_offset,
            epoch=lacks.epoch,
        ),
    )
