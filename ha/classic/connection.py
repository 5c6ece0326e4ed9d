"""One accepted connection of a pair's master. Upstream: DefaultHAConnection."""

from __future__ import annotations

from typing import Protocol

from ha.classic.master import ClassicMasterLink, LogView
from ha.counters import HACounters
from ha.log import ReplicatedLog
from ha.master.link import Acked, HandshakeDone
from ha.master.sender import LogSender
from ha.master.unreadableranges import UnreadableRanges
from ha.settings import HASettings
from mqruntime.clock import Clock
from mqruntime.tasks import Tasks


class PairListener(Protocol):
    """Receives the events of a connection."""

    def opened(self, connection: PairConnection) -> None: ...
    def reported(self, connection: PairConnection, offset: int) -> None: ...
    def lost(self, connection: PairConnection, reason: str) -> None: ...


class PairConnection(LogSender):
    """The connection. `master` is the link's view of the log."""

    def __init__(
        self,
        master: LogView,
        log: ReplicatedLog,
        listener: PairListener,
        *,
        settings: HASettings,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
        unreadable: UnreadableRanges,
    ) -> None:
        self._classic = link = ClassicMasterLink(
            master,
            transfer_batch_size=settings.transfer_batch_size,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            housekeeping_interval_ms=settings.housekeeping_interval_ms,
            now_ms=clock.monotonic_ms(),
        )
        buffer_size_max = 2 * settings.transfer_batch_size
        super().__init__(
            link,
            log,
            buffer_size_max=buffer_size_max,
            clock=clock,
            tasks=tasks,
            counters=counters,
            unreadable=unreadable,
        )
        self._listener = listener

    @property
    def read_from(self) -> int | None:
        """See ClassicMasterLink.read_from."""
        return self._classic.read_from

    @property
    def slave(self) -> str:
        """The slave's host; a classic slave does not send its broker id."""
        return self.peer_host

    def _opened(self) -> None:
        self._listener.opened(self)
        if not self.certificate.is_of_server:
            self.close("its certificate speaks for no server")

    def _heard(self, message: Acked | HandshakeDone) -> None:
        assert isinstance(message, Acked), "a classic link has no handshake"
        self._listener.reported(self, message.offset)

    def _lost(self, reason: str) -> None:
        self._listener.lost(self, reason)
