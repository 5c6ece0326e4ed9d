"""Liveness of brokers, as far as this controller knows. Upstream: BrokerHeartbeatManager.

Every controller keeps its own table, from the heartbeats that each broker sends to all of them; it is never
replicated. Invariant: an entry belongs to the newest connection that a heartbeat of its broker came over, so only the
end of that connection ends the broker, and the late end of an older one does not. Late messages of a dead process are ignored:
their connection is older than the successor's, and so is their incarnation, if one was sent. Both comparisons are needed,
because clocks are set back and requests are sent twice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controller.electpolicy import LiveReport
from controller.reasons import CONNECTION_LOST, HEARTBEAT_LOST, NEVER_HEARD

UNHEARD_TIMEOUT_MS = 10_000
"""Time that a new leader waits for a broker that it never heard: the default lifetime that brokers announce."""
FORGET_AFTER_MS = 600_000
PROCESSES_KEPT = 4
"""Processes kept of one broker, those with the newest connections; older ones are rejected by comparison with them."""

BrokerKey = tuple[str, str, int]
"""(cluster name, broker name, broker id)"""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The contents of one request 904."""

    address: str
    timeout_ms: int
    report: LiveReport


@dataclass(frozen=True, slots=True)
class BrokerLoss:
    """The loss of a dead broker; None: not known. Silence has no moment of its own."""

    why: str
    heard_ago_ms: int | None = None
    noticed_ago_ms: int | None = None


@dataclass(slots=True)
class _Heartbeat:
    connection: int
    open: bool
    last_seen_ms: int
    heartbeat: Heartbeat
    closed_ms: int = 0  # when it was last found closed
    found_silent: bool = False

    def alive_at(self, now_ms: int) -> bool:
        return self.open and self.last_seen_ms + self.heartbeat.timeout_ms >= now_ms

    def is_silent(self, now_ms: int, judging_since_ms: int) -> bool:
        return max(self.last_seen_ms, judging_since_ms) + self.heartbeat.timeout_ms < now_ms


class Heartbeats:
    """The last heartbeat of each broker. Connections are numbered; later ones have higher numbers."""

    def __init__(self) -> None:
        self._entries: dict[BrokerKey, _Heartbeat] = {}
        self._spoken: dict[BrokerKey, dict[int, int]] = {}
        """By broker, the newest connection of its last incarnations that sent heartbeats or registrations."""
        self._of_connection: dict[int, dict[BrokerKey, None]] = {}
        """The brokers whose entry a connection has, in the order of arrival."""

    def of_former(self, key: BrokerKey, connection: int, incarnation: int) -> bool:
        """Whether a message over `connection` was sent by a process that has a successor; incarnation 0: not sent. If
        not, the process is noted."""
        if incarnation <= 0:
            return False
        spoken = self._spoken.setdefault(key, {})
        if any(later > incarnation and over > connection for later, over in spoken.items()):
            return True
        spoken[incarnation] = max(connection, spoken.get(incarnation, 0))
        if len(spoken) > PROCESSES_KEPT:
            del spoken[min(spoken, key=spoken.__getitem__)]
        return False

    def heard(self, key: BrokerKey, connection: int, heartbeat: Heartbeat, now_ms: int) -> bool:
        """Record a heartbeat; True if it brings a broker (back) to life.

        The newest report counts, also when it is lower than the one before: a connection keeps its order, and a
        truncated log is really shorter. (Upstream keeps the highest ever seen.) A heartbeat over an older connection,
        while the newer one is open, proves life and nothing else."""
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Heartbeat(connection, True, now_ms, heartbeat)
            self._of_connection.setdefault(connection, {})[key] = None
            return self._entries[key].alive_at(now_ms)
        was_alive = entry.alive_at(now_ms)
        if connection >= entry.connection or not entry.open:
            if connection != entry.connection:
                self._leave_connection(key, entry)
                self._of_connection.setdefault(connection, {})[key] = None
            entry.connection, entry.open, entry.heartbeat = connection, True, heartbeat
        entry.last_seen_ms = now_ms
        entry.found_silent = False
        return entry.alive_at(now_ms) and not was_alive

    def came_over(self, connection: int) -> bool:
        """Whether some broker's newest connection is this one."""
        return connection in self._of_connection

    def connection_closed(self, connection: int, now_ms: int) -> list[BrokerKey]:
        """End the brokers whose connection this was."""
        ended = [key for key in self._of_connection.get(connection, ()) if self._entries[key].open]
        for key in ended:
            self._entries[key].open = False
            self._entries[key].closed_ms = now_ms
        return ended

    def restarted(self, key: BrokerKey, connection: int, now_ms: int, incarnation: int = 0) -> bool:
        """Note a new process of the broker, heard over `connection`: its messages over older connections no longer
        count.

        False, and no effect, if it was heard over a newer connection: the request is late. If only its former
        processes were, their messages were delayed, and the request counts."""
        entry = self._entries.get(key)
        if entry is None or entry.connection == connection:
            return True
        if entry.connection > connection and not self._follows(key, connection, incarnation):
            return False
        entry.open = False
        entry.closed_ms = now_ms
        return True

    def _follows(self, key: BrokerKey, connection: int, incarnation: int) -> bool:
        spoken = self._spoken.get(key, {})
        return 0 < max((said for said, over in spoken.items() if over > connection), default=0) < incarnation

    def begins(self, key: BrokerKey, connection: int, now_ms: int) -> None:
        """Note that a new process of the broker registered over `connection`, by a start number above all known ones:
        it alone counts from now on."""
        self._spoken.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None and entry.connection != connection and entry.open:
            entry.open = False
            entry.closed_ms = now_ms

    def unfit(self, key: BrokerKey) -> str:
        """Reason in the last report why it could not lead."""
        entry = self._entries.get(key)
        return entry.heartbeat.report.unfit if entry is not None else ""

    def spoken_of(self) -> list[BrokerKey]:
        """The ids under which anything was heard."""
        return list(dict.fromkeys([*self._entries, *self._spoken]))

    def forget(self, key: BrokerKey) -> None:
        """Drop everything heard under this id."""
        self._spoken.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._leave_connection(key, entry)

    def fell_silent(self, key: BrokerKey, now_ms: int, judging_since_ms: int) -> bool:
        """Whether its lifetime ended since the last call, with its connection still open."""
        entry = self._entries.get(key)
        if entry is None or not entry.open or entry.found_silent:
            return False
        entry.found_silent = entry.is_silent(now_ms, judging_since_ms)
        return entry.found_silent

    def forget_silent(self, now_ms: int) -> None:
        """Drop dead brokers that were not heard for long."""
        for key, entry in list(self._entries.items()):
            if not entry.alive_at(now_ms) and entry.last_seen_ms + FORGET_AFTER_MS < now_ms:
                self.forget(key)

    def _leave_connection(self, key: BrokerKey, entry: _Heartbeat) -> None:
        others = self._of_connection[entry.connection]
        del others[key]
        if not others:
            del self._of_connection[entry.connection]

    def at(
        self,
        now_ms: int,
        judging_since_ms: int,
        incomplete: frozenset[BrokerKey] = frozenset(),
        start_number: Callable[[BrokerKey], int] = lambda key: 0,
    ) -> Liveness:
        """The table at one instant; silence counts from `judging_since_ms` on. `incomplete`, `start_number`: see
        controller.holdings."""
        return Liveness(self._entries, now_ms, judging_since_ms, incomplete, start_number)


@dataclass(frozen=True, slots=True)
class Liveness:
    """Liveness of brokers at one instant.

    To enter a SyncStateSet a broker must be heard (`is_alive`); to be elected without an operator, since this
    controller leads (`has_reported`). To be deposed as lost it must be known to be gone (`is_dead`): its connection ended, or
    it was silent for its whole lifetime while this controller was judging. Shortly after a change of leader it may be
    neither alive nor dead."""

    entries: dict[BrokerKey, _Heartbeat]
    now_ms: int
    judging_since_ms: int
    incomplete: frozenset[BrokerKey] = frozenset()
    """Brokers whose logs are known to be missing data that their sets confirmed."""
    start_number: Callable[[BrokerKey], int] = lambda key: 0
    """The greatest start number in a broker's heartbeats."""

    def is_alive(self, key: BrokerKey) -> bool:
        entry = self.entries.get(key)
        return entry is not None and entry.alive_at(self.now_ms)

    def is_dead(self, key: BrokerKey) -> bool:
        entry = self.entries.get(key)
        if entry is None:
            return self.judging_since_ms + UNHEARD_TIMEOUT_MS < self.now_ms
        if not entry.open:
            return True
        return entry.is_silent(self.now_ms, self.judging_since_ms)

    def is_unfit(self, key: BrokerKey) -> bool:
        """Whether it is alive and reports that it cannot lead."""
        entry = self.entries.get(key)
        return entry is not None and entry.alive_at(self.now_ms) and bool(entry.heartbeat.report.unfit)

    def is_reachable(self, key: BrokerKey) -> bool:
        """Whether messages can be sent to it: its connection is not known to have ended."""
        entry = self.entries.get(key)
        return entry is None or entry.open

    def has_reported(self, key: BrokerKey) -> bool:
        """Whether it is alive and reported since this controller leads. Only the leader is notified of restarts, so
        an earlier report may be of a dead process, or of a log that is shorter now."""
        entry = self.entries.get(key)
        return (
            entry is not None and entry.alive_at(self.now_ms) and entry.last_seen_ms >= self.judging_since_ms
        )

    def loss(self, key: BrokerKey) -> BrokerLoss | None:
        """The loss of a dead broker; None if it is not dead."""
        if not self.is_dead(key):
            return None
        entry = self.entries.get(key)
        if entry is None:
            return BrokerLoss(NEVER_HEARD)
        heard_ago_ms = self.now_ms - entry.last_seen_ms
        if entry.open:
            return BrokerLoss(HEARTBEAT_LOST, heard_ago_ms)
        return BrokerLoss(CONNECTION_LOST, heard_ago_ms, self.now_ms - entry.closed_ms)

    def reports(self, cluster_name: str, broker_name: str, ids: Iterable[int]) -> dict[int, LiveReport]:
        """Last reports of the live brokers among `ids`."""
        return {
            broker_id: self.entries[key].heartbeat.report
            for broker_id in ids
            if self.is_alive(key := (cluster_name, broker_name, broker_id))
        }
