"""One accepted connection of a master under controllers. Upstream: AutoSwitchHAConnection.

Invariant: the handshake is answered and counts only after the slave was admitted."""

from __future__ import annotations

from typing import Protocol

from ha.counters import HACounters
from ha.frames import Handshake
from ha.log import ReplicatedLog
from ha.master.admittance import Why
from ha.master.link import Acked, HandshakeDone, Hold, MasterLink, MasterView
from ha.master.pace import Pace
from ha.master.sender import LogSender
from ha.master.unreadableranges import UnreadableRanges
from ha.settings import HASettings
from mqruntime.clock import Clock
from mqruntime.core import NEVER_MS
from mqruntime.tasks import Tasks


class Listener(Protocol):
    """Receives the events of a connection."""

    def opened(self, connection: MasterConnection) -> None: ...
    def claimed(self, connection: MasterConnection, handshake: Handshake) -> None:
        """The slave has sent its handshake; `admitted` or `refused` will follow."""
        ...

    def handshaken(self, connection: MasterConnection, handshake: Handshake) -> None: ...
    def acked(self, connection: MasterConnection, offset: int) -> None: ...
    def rejected(self, connection: MasterConnection, handshake: Handshake, why: Why) -> None: ...
    def lost(self, connection: MasterConnection, reason: str) -> None: ...
    def pace_of(self, broker_id: int) -> int | None:
        """Limit for this slave in bytes a second; None for no limit."""
        ...


class MasterConnection(LogSender):
    """The connection. `master` is the link's view of its master."""

    link: MasterLink

    def __init__(
        self,
        master: MasterView,
        log: ReplicatedLog,
        listener: Listener,
        *,
        settings: HASettings,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
        unreadable: UnreadableRanges,
    ) -> None:
        link = MasterLink(
            master,
            transfer_batch_size=settings.transfer_batch_size,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            housekeeping_interval_ms=settings.housekeeping_interval_ms,
            handshake_timeout_ms=settings.handshake_timeout_ms,
            pace=Pace(lambda: listener.pace_of(self._broker_id)),
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
        self._reply = b""
        self._broker_id = -1
        self.began_at: int | None = None
        """The offset from which the slave requested the log."""

    @property
    def slave_broker_id(self) -> int:
        """The slave's broker id; -1 before the slave is admitted."""
        return self._broker_id

    @property
    def slave(self) -> str:
        return f"broker {self._broker_id}"

    def pump(self) -> None:
        super().pump()
        if self.link.pace.due_ms < NEVER_MS:
            self._arm_timer()

    def _opened(self) -> None:
        self._listener.opened(self)

    def _lost(self, reason: str) -> None:
        self._listener.lost(self, reason)

    def _heard(self, message: Acked | HandshakeDone) -> None:
        if isinstance(message, Acked):
            self._listener.acked(self, message.offset)
        else:
            self._reply = message.reply
            self.link.hold(Hold.ADMITTANCE)
            self._listener.claimed(self, message.handshake)

    def admitted(self, broker_id: int) -> None:
        """Answer the slave, which was verified as `broker_id`, and count it from now on."""
        assert self.link.handshake is not None
        if not self._ended:
            self._broker_id = broker_id
            self._write([self._reply], len(self._reply))
            self._listener.handshaken(self, self.link.handshake)
            self.release(Hold.ADMITTANCE)

    def refused(self, why: Why) -> None:
        """Reject the slave. No message from this connection counts."""
        assert self.link.handshake is not None
        self._listener.rejected(self, self.link.handshake, why)
        self.close(f"refused: {why.value}")

    def send_confirm_offset(self) -> None:
        """Send the confirm offset, which has moved."""
        self._perform(self.link.confirm_offset_moved(self._now_ms()))
