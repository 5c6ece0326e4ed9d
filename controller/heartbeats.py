"""Liveness of brokers, as this controller knows it. Upstream: BrokerHeartbeatManager.

Each broker sends its heartbeats to all controllers, and every controller keeps its own table, which is never replicated.

Invariant: an entry belongs to the newest connection over which its broker sent a heartbeat. So the broker counts as dead when
that connection ends, but not when an older connection ends late. Late messages of a dead process are ignored: they have an
older connection than those of the next process, and an older incarnation, if they have one. Both connection and incarnation are
compared: an incarnation is a time of the broker's clock, which may be set back, and a request may be sent a second time over a
newer connection. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controller.electpolicy import LiveReport
from controller.reasons import CONNECTION_LOST, HEARTBEAT_LOST, NEVER_HEARD

UNHEARD_TIMEOUT_MS = 10_000
"""The time for which a new leader waits for a broker that it never heard. It is the default lifetime in brokers' heartbeats."""
FORGET_AFTER_MS = 600_000
PROCESSES_KEPT = 4
"""For each broker this number of processes is kept, those with the newest connections. Messages of older processes are rejected
by comparison with them."""

BrokerKey = tuple[str, str, int]
"""(cluster name, broker name, broker id)"""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The contents of one BROKER_HEARTBEAT request (904)."""

    address: str
    timeout_ms: int
    report: LiveReport


@dataclass(frozen=True, slots=True)
class BrokerLoss:
    """The loss of a dead broker. A time is None if it is not known. A loss by silence has no `noticed_ago_ms`."""

    why: str
    heard_ago_ms: int | None = None
    noticed_ago_ms: int | None = None


@dataclass(slots=True)
class _Heartbeat:
    connection: int
    open: bool
    last_seen_ms: int
    heartbeat: Heartbeat
    closed_ms: int = 0  # when the connection was last found closed
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
        """By broker: incarnation -> the newest connection over which this incarnation sent heartbeats or registrations."""
        self._of_connection: dict[int, dict[BrokerKey, None]] = {}
        """By connection, the brokers whose entries belong to it, in the order of arrival."""

    def of_former(self, key: BrokerKey, connection: int, incarnation: int) -> bool:
        """Whether a message over `connection` comes from a former process of the broker. If not, the process is recorded.
        `incarnation` is 0 if the message has none."""
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

        The newest report counts, even if its log end is lower than before: a connection keeps the order of messages, and a
        truncated log is really shorter. (Upstream keeps the highest log end ever seen.) A heartbeat over an older connection,
        while the newer connection is open, only proves that the broker is alive."""
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
        """Whether `connection` is the newest connection of a broker."""
        return connection in self._of_connection

    def connection_closed(self, connection: int, now_ms: int) -> list[BrokerKey]:
        """Mark the brokers of this connection as dead, and return them."""
        ended = [key for key in self._of_connection.get(connection, ()) if self._entries[key].open]
        for key in ended:
            self._entries[key].open = False
            self._entries[key].closed_ms = now_ms
        return ended

    def restarted(self, key: BrokerKey, connection: int, now_ms: int, incarnation: int = 0) -> bool:
        """Record a new process of the broker, heard over `connection`. Messages over older connections no longer count.

        Returns False and changes nothing if this process was already heard over a newer connection, because the request is then
        late. If only its former processes were heard over a newer connection, their messages were delayed, and the request
        counts."""
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
        """Record that a new process of the broker registered over `connection`, with a start number above all known start
        numbers. Only this process counts from now on."""
        self._spoken.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None and entry.connection != connection and entry.open:
            entry.open = False
            entry.closed_ms = now_ms

    def unfit(self, key: BrokerKey) -> str:
        """The reason in the broker's last report why it could not lead."""
        entry = self._entries.get(key)
        return entry.heartbeat.report.unfit if entry is not None else ""

    def spoken_of(self) -> list[BrokerKey]:
        """The keys of all brokers that were heard."""
        return list(dict.fromkeys([*self._entries, *self._spoken]))

    def forget(self, key: BrokerKey) -> None:
        """Drop everything that was heard of the broker `key`."""
        self._spoken.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._leave_connection(key, entry)

    def fell_silent(self, key: BrokerKey, now_ms: int, judging_since_ms: int) -> bool:
        """Whether the broker fell silent since the last call: its lifetime ended while its connection was open."""
        entry = self._entries.get(key)
        if entry is None or not entry.open or entry.found_silent:
            return False
        entry.found_silent = entry.is_silent(now_ms, judging_since_ms)
        return entry.found_silent

    def forget_silent(self, now_ms: int) -> None:
        """Drop dead brokers that were not heard for a long time."""
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
        """The table at one instant. Silence counts from `judging_since_ms` on. For `incomplete` and `start_number` see
        controller.holdings."""
        return Liveness(self._entries, now_ms, judging_since_ms, incomplete, start_number)


@dataclass(frozen=True, slots=True)
class Liveness:
    """Liveness of brokers at one instant.

    A broker enters a SyncStateSet only if it is heard (`is_alive`). It is elected without an operator only if it was heard
    since this controller leads (`has_reported`). It is deposed as lost only if it is known to be gone (`is_dead`): its
    connection ended, or it was silent for its whole lifetime while this controller was judging. Shortly after a change of
    leader a broker may be neither alive nor dead."""

    entries: dict[BrokerKey, _Heartbeat]
    now_ms: int
    judging_since_ms: int
    incomplete: frozenset[BrokerKey] = frozenset()
    """Brokers whose logs are known to be missing data that their set confirmed."""
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
        """Whether the broker is alive and reports that it cannot lead."""
        entry = self.entries.get(key)
        return entry is not None and entry.alive_at(self.now_ms) and bool(entry.heartbeat.report.unfit)

    def is_reachable(self, key: BrokerKey) -> bool:
        """Whether messages can be sent to the broker: its connection is not known to have ended."""
        entry = self.entries.get(key)
        return entry is None or entry.open

    def has_reported(self, key: BrokerKey) -> bool:
        """Whether the broker is alive and has reported since this controller leads. Only the leader is notified of restarts, so
        an earlier report may come from a dead process, or from a log that is shorter now."""
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
