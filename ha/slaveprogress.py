"""What a master knows of one slave during a mastership: whether the slave is in sync, and whether it may join the SyncStateSet.

Invariant: a slave's log end counts only if the newest connection of its broker id reported it. So after a new connection the
log end is unknown until the first ack. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Limits for leaving and joining the set, and the interval of the checks; all in ms."""

    not_caught_up_ms_max: int
    disconnected_ms_max: int
    join_lag_ms_max: int
    join_ms_max: int
    join_stall_ms_max: int
    check_ms: int
    alter_retry_ms: int


@dataclass(slots=True)
class SlaveProgress:
    """The progress. Times are monotonic ms; offsets are byte positions in the log."""

    connected: bool = False
    excluded: str | None = None  # the reason why its acks never count
    ack_offset: int | None = None
    caught_up_ms: int | None = None
    disconnected_ms: int = 0
    joining_ms: int | None = None  # the time since which sends wait for it, before it is proposed
    catch_up_target: int | None = None  # for a new member that has not acked up to here yet
    stalled_ms: int | None = None  # the time since which it is behind without progress

    def handshaken(self, *, excluded: str | None) -> None:
        """Note the handshake of a new connection. Acks of the former connection no longer count."""
        self.connected = True
        self.excluded = excluded
        self.ack_offset = None
        self.joining_ms = None

    def gone(self, now_ms: int) -> None:
        """Note that the newest connection has ended."""
        self.connected = False
        self.ack_offset = None
        self.joining_ms = None
        self.disconnected_ms = now_ms

    def acked(self, offset: int, caught_up_ms: int | None) -> None:
        """Note an ack. For `caught_up_ms` see MasterLink."""
        if self.ack_offset is None or offset > self.ack_offset:
            self.stalled_ms = None
        if self.catch_up_target is not None and offset >= self.catch_up_target:
            self.catch_up_target = None
        self.ack_offset = offset
        if caught_up_ms is not None:
            self.caught_up_ms = max(caught_up_ms, self.caught_up_ms or 0)

    def holds(self, offset: int) -> bool:
        """Whether the slave counts as holding all data below `offset`."""
        return self.excluded is None and self.ack_offset is not None and self.ack_offset >= offset

    def may_join(self, epoch_start: int, limits: SetLimits, now_ms: int) -> bool:
        """Whether the slave is so close that sends may wait for it."""
        return (
            self.holds(epoch_start)
            and self.caught_up_ms is not None
            and now_ms - self.caught_up_ms <= limits.join_lag_ms_max
        )

    def entered(self, log_end: int) -> None:
        """Note that the slave is a member now. If it died while joining, sends wait for it until it leaves again, so it is
        watched until it has caught up."""
        self.joining_ms = None
        self.catch_up_target = None if self.holds(log_end) else log_end

    def look(self, log_end: int, now_ms: int) -> None:
        """Check the slave's progress. Called regularly until the slave has caught up as a member."""
        if self.ack_offset is not None and self.ack_offset >= log_end:
            self.stalled_ms = None
        elif self.stalled_ms is None:
            self.stalled_ms = now_ms

    def stalls(self, limits: SetLimits, now_ms: int) -> bool:
        """Whether the slave has made no progress for too long."""
        return self.stalled_ms is not None and now_ms - self.stalled_ms >= limits.join_stall_ms_max

    def gone_ms(self, now_ms: int) -> int:
        """The time without a connection; 0 while there is a connection."""
        return 0 if self.connected else now_ms - self.disconnected_ms

    def out_of_sync_reason(self, master_since_ms: int, limits: SetLimits, now_ms: int) -> str | None:
        """The reason to remove a member from the set; None while the member is in sync."""
        if self.excluded is not None:
            return self.excluded
        gone_ms = self.gone_ms(now_ms)
        if gone_ms > limits.disconnected_ms_max:
            return f"disconnected for {gone_ms} ms"
        if self.catch_up_target is not None and self.stalled_ms is not None and self.stalls(limits, now_ms):
            return f"no progress for {now_ms - self.stalled_ms} ms since it entered"
        late_ms = now_ms - (master_since_ms if self.caught_up_ms is None else self.caught_up_ms)
        return f"not caught up for {late_ms} ms" if late_ms > limits.not_caught_up_ms_max else None
