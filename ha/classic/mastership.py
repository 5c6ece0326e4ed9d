"""The mastership in a pair: the links, and the log ends of the slaves. Upstream: DefaultHAService.

Invariant: this broker is master by configuration, so its log is authoritative, and as in upstream all of it is confirmed. Sends
that end above `acked_end` wait for a slave."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ha.classic.acks import PairAcks
from ha.classic.connection import PairConnection
from ha.counters import HACounters
from ha.log import ReplicatedLog
from ha.master.unreadableranges import UnreadableRanges
from ha.settings import HASettings, PairSettings
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.tasks import Tasks

logger = logging.getLogger("ha.classic")


class PairMastership:
    """The mastership, which lasts as long as this broker is master. For `on_confirm` see HAService. `waiting_end()` is the end
    of the first waiting send."""

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        pair: PairSettings,
        settings: HASettings,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
        on_confirm: Callable[[], None],
        waiting_end: Callable[[], int],
    ) -> None:
        self._log = log
        self._pair = pair
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._counters = counters
        self._on_confirm = on_confirm
        self._waiting_end = waiting_end
        self._ended = False
        self._connections: dict[PairConnection, None] = {}  # in order of arrival
        self._acks = PairAcks()
        self._unreadable = UnreadableRanges(clock)

    def begin(self) -> None:
        self._confirm()

    # -- read by the links

    @property
    def segment_size_bytes(self) -> int:
        return self._log.segment_size_bytes

    @property
    def log_min(self) -> int:
        return self._log.min_offset()

    @property
    def log_end(self) -> int:
        return self._log.max_offset()

    # -- called by the links

    def accept(self) -> PairConnection:
        """Returns the protocol of a connection that a slave opens."""
        return PairConnection(
            self,
            self._log,
            self,
            settings=self._settings,
            clock=self._clock,
            tasks=self._tasks,
            counters=self._counters,
            unreadable=self._unreadable,
        )

    def opened(self, connection: PairConnection) -> None:
        self._connections[connection] = None
        if self._ended:
            connection.close("change of role")

    def reported(self, connection: PairConnection, offset: int) -> None:
        if connection not in self._acks:
            logger.info("slave connected", extra=fields(address=connection.address, log_end=offset))
            self._acks.came(connection, offset, connection.link.next_offset)
        self._acks.reported(connection, offset)
        self._on_confirm()

    def lost(self, connection: PairConnection, reason: str) -> None:
        self._connections.pop(connection, None)
        self._acks.gone(connection)
        logger.info("slave gone", extra=fields(address=connection.address, reason=reason))

    # -- called by the broker

    @property
    def connections(self) -> list[PairConnection]:
        return list(self._connections)

    def read_from(self) -> int | None:
        """The offset from which on connected slaves still read the log; None without a connected slave."""
        places = (connection.read_from for connection in self._connections)
        return min((place for place in places if place is not None), default=None)

    @property
    def acked_end(self) -> int:
        """The offset up to which sends may be answered: the end of what at least one slave has held, or the log's end if sends
        wait for no slave."""
        if not self._pair.waits_for_slave:
            return self._log.max_offset()
        return self.followed_end()

    def followed_end(self) -> int:
        """The offset up to which at least one slave has held the log."""
        return self._acks.held_end(self._waiting_end())

    def reachable(self, end: int) -> bool:
        """Whether a send that ends at `end` may wait: no slave is needed, or a connected slave is close."""
        return not self._pair.waits_for_slave or bool(self._acks.in_step(end, self._pair.gap_max))

    def in_step(self) -> list[PairConnection]:
        """Connections of slaves that are close."""
        close = set(self._acks.in_step(self._log.max_offset(), self._pair.gap_max))
        return [connection for connection in self._connections if connection in close]

    def log_grew(self) -> None:
        """Send an appended batch, and allow reading it. Called once for every batch."""
        for connection in self.connections:
            connection.pump()
        self._confirm()

    def _confirm(self) -> None:
        self._log.set_confirm_offset(self._log.max_offset())
        self._on_confirm()

    async def end(self, reason: str) -> None:
        """Drop all links. On return no link holds a view of the log."""
        self._ended = True
        while self._connections:
            connections = self.connections
            for connection in connections:
                connection.close(reason)
            for connection in connections:
                await connection.wait_closed()
