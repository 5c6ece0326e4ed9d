"""The SyncStateSet as its master must count it, during one mastership.

Three groups are waited for, by broker id: the set that the controller has applied, every proposed set whose fate
is open, and slaves about to be proposed. Their union is what acks and the confirm offset are counted over.

Invariant: a byte below `confirm_offset` is held by every member of the union; so whichever open proposal the
controller turns out to have accepted, all members of that set hold what was confirmed. Only an applied set or a
definite refusal makes the union smaller."""

from __future__ import annotations

from dataclasses import dataclass

from ha import confirm
from ha.errors import AlterInFlight


@dataclass(frozen=True, slots=True)
class Limits:
    """When a slave is out and when it may come in, all in ms."""

    not_caught_up_ms_max: int
    disconnected_ms_max: int
    join_lag_ms_max: int
    join_ms_max: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """The set that the master should ask the controller for."""

    members: frozenset[int]
    reason: str


@dataclass(slots=True)
class _Replica:
    """What is known of one slave in this mastership."""

    connected: bool = False
    is_async_learner: bool = False
    ack_offset: int | None = None  # over the newest connection only
    caught_up_ms: int | None = None
    disconnected_ms: int = 0
    joining_ms: int | None = None  # since when it is waited for so that it can be proposed


@dataclass(frozen=True, slots=True)
class _Proposal:
    members: frozenset[int]
    set_epoch: int  # that it was based on; refused for good once a newer set is applied


class SyncStateSet:
    def __init__(
        self,
        *,
        own_id: int,
        members: frozenset[int],
        set_epoch: int,
        epoch_start: int,
        log_end: int,
        confirm_offset: int,
        limits: Limits,
        now_ms: int,
    ) -> None:
        """`confirm_offset` is what this log knows as held by all; `epoch_start` where the master epoch began."""
        self._own_id = own_id
        self._applied = members | {own_id}
        self._set_epoch = set_epoch
        self._epoch_start = epoch_start
        self._log_end = log_end
        self._confirm_offset = min(confirm_offset, log_end)
        self._limits = limits
        self._master_since_ms = now_ms
        self._proposals: list[_Proposal] = []
        self._alter_in_flight = False
        self._replicas: dict[int, _Replica] = {}
        self._recompute()

    # -- what others read

    @property
    def confirm_offset(self) -> int:
        return self._confirm_offset

    @property
    def applied_members(self) -> frozenset[int]:
        return self._applied

    @property
    def set_epoch(self) -> int:
        return self._set_epoch

    def union(self) -> frozenset[int]:
        joining = (
            broker_id for broker_id, replica in self._replicas.items() if replica.joining_ms is not None
        )
        return self._applied.union(joining, *(proposal.members for proposal in self._proposals))

    def acked_end(self, members_min: int) -> int:
        """See ha/confirm.py."""
        return confirm.acked_end(self._confirm_offset, len(self._applied), members_min)

    # -- what happens to the log and to links

    def log_grew(self, log_end: int) -> None:
        self._log_end = log_end
        self._recompute()

    def epoch_began(self, epoch_start: int, members: frozenset[int], set_epoch: int) -> None:
        """The master was elected again while it was master: its links and logs stay as they are, and a proposal
        of the old epoch can no longer be accepted."""
        self._epoch_start = epoch_start
        self._proposals.clear()
        self._alter_in_flight = False
        self._applied = members | {self._own_id}
        self._set_epoch = set_epoch
        self._recompute()

    def connected(self, broker_id: int, *, is_async_learner: bool) -> None:
        """A link of this id has shaken hands; it replaces any former one, and its end is unknown until it acks."""
        replica = self._replicas.setdefault(broker_id, _Replica())
        replica.connected = True
        replica.is_async_learner = is_async_learner
        replica.ack_offset = None
        replica.joining_ms = None
        self._recompute()

    def disconnected(self, broker_id: int, now_ms: int) -> None:
        """The newest link of this id has ended. That alone takes no member out."""
        replica = self._replicas[broker_id]
        replica.connected = False
        replica.ack_offset = None
        replica.joining_ms = None
        replica.disconnected_ms = now_ms
        self._recompute()

    def acked(self, broker_id: int, offset: int, caught_up_ms: int | None, now_ms: int) -> None:
        """The newest link of this id says how far its log goes; `caught_up_ms` as of MasterLink."""
        replica = self._replicas[broker_id]
        replica.ack_offset = offset
        if caught_up_ms is not None:
            replica.caught_up_ms = max(caught_up_ms, replica.caught_up_ms or 0)
        if broker_id not in self._applied and replica.joining_ms is None and self._may_join(replica, now_ms):
            replica.joining_ms = now_ms
        self._recompute()

    def _may_join(self, replica: _Replica, now_ms: int) -> bool:
        return (
            not replica.is_async_learner
            and replica.ack_offset is not None
            and replica.ack_offset >= self._epoch_start
            and replica.caught_up_ms is not None
            and now_ms - replica.caught_up_ms <= self._limits.join_lag_ms_max
        )

    # -- the controller's part

    def wanted(self, now_ms: int) -> Wanted | None:
        """The set to propose, None if the applied one is right or an alter is in flight."""
        self._give_up_late_joiners(now_ms)
        if self._alter_in_flight:
            return None
        leaving = {
            broker_id: why
            for broker_id in sorted(self._applied)
            if broker_id != self._own_id and (why := self._why_out(broker_id, now_ms))
        }
        entering = [
            broker_id
            for broker_id in sorted(self._replicas)
            if broker_id not in self._applied
            and self._replicas[broker_id].joining_ms is not None
            and self._holds_confirmed(broker_id)
        ]
        if not leaving and not entering:
            return None
        reasons = [f"shrink {broker_id}: {why}" for broker_id, why in leaving.items()]
        reasons += [
            f"expand {broker_id}: holds {self._replicas[broker_id].ack_offset}" for broker_id in entering
        ]
        return Wanted(self._applied.difference(leaving).union(entering), "; ".join(reasons))

    def _why_out(self, broker_id: int, now_ms: int) -> str | None:
        replica = self._replicas.get(broker_id)
        if replica is None:
            late_ms = now_ms - self._master_since_ms
            return f"not seen for {late_ms} ms" if late_ms > self._limits.not_caught_up_ms_max else None
        gone_ms = now_ms - replica.disconnected_ms
        if not replica.connected and gone_ms > self._limits.disconnected_ms_max:
            return f"disconnected for {gone_ms} ms"
        late_ms = now_ms - (self._master_since_ms if replica.caught_up_ms is None else replica.caught_up_ms)
        return f"not caught up for {late_ms} ms" if late_ms > self._limits.not_caught_up_ms_max else None

    def _give_up_late_joiners(self, now_ms: int) -> None:
        for replica in self._replicas.values():
            if replica.joining_ms is not None and now_ms - replica.joining_ms > self._limits.join_ms_max:
                replica.joining_ms = None
        self._recompute()

    def _holds_confirmed(self, broker_id: int) -> bool:
        replica = self._replicas.get(broker_id)
        return (
            replica is not None
            and not replica.is_async_learner
            and replica.ack_offset is not None
            and replica.ack_offset >= max(self._confirm_offset, self._epoch_start)
        )

    def propose(self, members: frozenset[int]) -> bool:
        """The controller is about to be asked for `members`, which are waited for from now on. False if it must
        not be asked, because a new member no longer holds all that is confirmed. AlterInFlight."""
        if self._alter_in_flight:
            raise AlterInFlight("wait for the fate of the proposal before, or report it as failed")
        if self._own_id not in members:
            return False
        if not all(self._holds_confirmed(broker_id) for broker_id in members - self._applied):
            return False
        self._proposals.append(_Proposal(members, self._set_epoch))
        self._alter_in_flight = True
        self._recompute()
        return True

    def proposal_failed(self, *, definite: bool) -> None:
        """The proposal in flight was refused (`definite`) or nobody can say: then it stays in the union until a
        set newer than the one it was based on is applied."""
        if not self._alter_in_flight:
            return  # a set applied meanwhile has settled it
        self._alter_in_flight = False
        if definite:
            self._proposals.pop()
        else:
            self._proposals[:] = dict.fromkeys(self._proposals)
        self._recompute()

    def applied(self, members: frozenset[int], set_epoch: int) -> bool:
        """The controller's set, from a reply, a notice or a read. False if it is not newer, or not ours."""
        if set_epoch <= self._set_epoch or self._own_id not in members:
            return False
        self._applied = members
        self._set_epoch = set_epoch
        self._proposals.clear()  # all were based on an older set: accepted as one now known, or refused for good
        self._alter_in_flight = False
        for broker_id in members & self._replicas.keys():
            self._replicas[broker_id].joining_ms = None
        self._recompute()
        return True

    # -- the confirm offset

    def _recompute(self) -> None:
        self._confirm_offset = confirm.confirm_offset(self._confirm_offset, map(self._end_of, self.union()))

    def _end_of(self, broker_id: int) -> int | None:
        if broker_id == self._own_id:
            return self._log_end
        replica = self._replicas.get(broker_id)
        return None if replica is None else replica.ack_offset
