"""Which brokers live, as far as this controller knows.

Every controller keeps its own table, from the heartbeats that each broker sends to all of them; it is never
replicated. Invariant: an entry belongs to the newest connection that a heartbeat of its broker came over,
so only the end of that connection ends the broker; the end of an older one, however late it is noticed,
does not. What a process that is gone sent, and what comes only now, counts for nobody: its connection is
older than its successor's, and its incarnation too, where brokers tell. Either alone is not enough, for
clocks are set back, and requests are sent twice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controller.electpolicy import LiveReport
from controller.reasons import CONNECTION_LOST, HEARTBEAT_LOST, NEVER_HEARD

UNHEARD_TIMEOUT_MS = 10_000
"""How long a new leader waits for a broker it never heard of: the lifetime that brokers announce by
default."""
FORGET_AFTER_MS = 600_000
PROCESSES_KEPT = 4
"""Of a broker; those with the newest connections tell for all before them."""

BrokerKey = tuple[str, str, int]
"""(cluster name, broker name, broker id)"""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What one request 904 says."""

    address: str
    timeout_ms: int
    report: LiveReport


@dataclass(frozen=True, slots=True)
class BrokerLoss:
    """How a broker that is dead was lost; None is not known. Silence has no moment of its own."""

    why: str
    heard_ago_ms: int | None = None
    noticed_ago_ms: int | None = None


@dataclass(slots=True)
class _Entry:
    connection: int
    open: bool
    last_seen_ms: int
    heartbeat: Heartbeat
    closed_ms: int = 0  # when it was last found not to be open
    found_silent: bool = False

    def alive_at(self, now_ms: int) -> bool:
        return self.open and self.last_seen_ms + self.heartbeat.timeout_ms >= now_ms

    def is_silent(self, now_ms: int, judging_since_ms: int) -> bool:
        return max(self.last_seen_ms, judging_since_ms) + self.heartbeat.timeout_ms < now_ms


class Heartbeats:
    """Last heartbeat of each broker. A connection is known by its number; later connections have higher
    ones."""

    def __init__(self) -> None:
        self._entries: dict[BrokerKey, _Entry] = {}
        self._spoken: dict[BrokerKey, dict[int, int]] = {}
        """Of each broker incarnation -> newest connection, of the last ones that spoke, in heartbeats or registrations."""
        self._of_connection: dict[int, dict[BrokerKey, None]] = {}
        """The brokers whose entry a connection has, in the order in which they came over it."""

    def of_former(self, key: BrokerKey, connection: int, incarnation: int) -> bool:
        """Whether what came over `connection` was said by a process that another one has followed; 0: it does not tell. If
        not, it has spoken."""
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
        """Take in a heartbeat; True when it brings a broker (back) to life.

        The newest report counts, also when it is lower than the one before: one connection keeps its order,
        and after a truncation the log really is shorter. (Upstream keeps the highest ever seen.) A
        heartbeat that arrives over an older connection while the newer one is open proves life and nothing
        else."""
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(connection, True, now_ms, heartbeat)
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
        """Whether the newest connection of some broker is this one."""
        return connection in self._of_connection

    def connection_closed(self, connection: int, now_ms: int) -> list[BrokerKey]:
        """End the brokers whose connection this was."""
        ended = [key for key in self._of_connection.get(connection, ()) if self._entries[key].open]
        for key in ended:
            self._entries[key].open = False
            self._entries[key].closed_ms = now_ms
        return ended

    def restarted(self, key: BrokerKey, connection: int, now_ms: int, incarnation: int = 0) -> bool:
        """The broker's process is a new one, heard over `connection`: what it said over older ones no longer
        counts. False, and of no effect, when it has been heard over a newer one: that word is late. Not so where
        only its former processes were: their words were held up."""
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
        """A new process of the broker registered over `connection`, by a start number above all that were said: nobody else
        speaks for it any more."""
        self._spoken.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None and entry.connection != connection and entry.open:
            entry.open = False
            entry.closed_ms = now_ms

    def unfit(self, key: BrokerKey) -> str:
        """Why it last said that it could not lead."""
        entry = self._entries.get(key)
        return entry.heartbeat.report.unfit if entry is not None else ""

    def spoken_of(self) -> list[BrokerKey]:
        """Under which ids anything was heard."""
        return list(dict.fromkeys([*self._entries, *self._spoken]))

    def forget(self, key: BrokerKey) -> None:
        """What was heard under this id counts for nobody any more."""
        self._spoken.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._leave_connection(key, entry)

    def fell_silent(self, key: BrokerKey, now_ms: int, judging_since_ms: int) -> bool:
        """Whether its lifetime ended since the last time this was asked, its connection still open."""
        entry = self._entries.get(key)
        if entry is None or not entry.open or entry.found_silent:
            return False
        entry.found_silent = entry.is_silent(now_ms, judging_since_ms)
        return entry.found_silent

    def forget_silent(self, now_ms: int) -> None:
        """Drop the dead that have not been heard of for long."""
        for key, entry in list(self._entries.items()):
            if not entry.alive_at(now_ms) and entry.last_seen_ms + FORGET_AFTER_MS < now_ms:
                self.forget(key)

    def _leave_connection(self, key: BrokerKey, entry: _Entry) -> None:
        others = self._of_connection[entry.connection]
        del others[key]
        if not others:
            del self._of_connection[entry.connection]

    def at(
        self,
        now_ms: int,
        judging_since_ms: int,
        lacking: frozenset[BrokerKey] = frozenset(),
        start_number: Callable[[BrokerKey], int] = lambda key: 0,
    ) -> Liveness:
        """The table as one instant sees it; silence counts from `judging_since_ms` on. `lacking`, `start_number`: see
        controller.holdings."""
        return Liveness(self._entries, now_ms, judging_since_ms, lacking, start_number)


@dataclass(frozen=True, slots=True)
class Liveness:
    """Who lives at one instant.

    To enter a SyncStateSet a broker must have been heard (`is_alive`), to be elected by itself since this
    controller leads (`has_told`). To be deposed it must be known to be gone (`is_dead`): its connection ended,
    or it stayed silent for its whole lifetime while this controller was judging. In between, shortly after a
    change of leader, it is neither."""

    entries: dict[BrokerKey, _Entry]
    now_ms: int
    judging_since_ms: int
    lacking: frozenset[BrokerKey] = frozenset()
    """Whose logs are known to lack what their sets confirmed."""
    start_number: Callable[[BrokerKey], int] = lambda key: 0
    """The greatest that a broker has said in heartbeats."""

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
        """Whether it lives and says that it cannot lead."""
        entry = self.entries.get(key)
        return entry is not None and entry.alive_at(self.now_ms) and bool(entry.heartbeat.report.unfit)

    def is_reachable(self, key: BrokerKey) -> bool:
        """Whether nothing speaks against sending it something: its connection is not known to have ended."""
        entry = self.entries.get(key)
        return entry is None or entry.open

    def has_told(self, key: BrokerKey) -> bool:
        """Whether it lives and its last word was for this controller's ears: of a restart only the leader hears, so one from
        before this one led may be that of a process that is gone, and of a log that is shorter now."""
        entry = self.entries.get(key)
        return (
            entry is not None and entry.alive_at(self.now_ms) and entry.last_seen_ms >= self.judging_since_ms
        )

    def loss(self, key: BrokerKey) -> BrokerLoss | None:
        """What there is to say of the end of a dead broker; None of one that is not dead."""
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
        """What the living among `ids` last said."""
        return {
            broker_id: self.entries[key].heartbeat.report
            for broker_id in ids
            if self.is_alive(key := (cluster_name, broker_name, broker_id))
        }
