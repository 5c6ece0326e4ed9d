"""One look at a broker set, as the servers reported it.

Invariant: None means that no server reported the value. Nothing here is guessed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remoting.bodies.elections import Election


@dataclass(frozen=True, slots=True)
class ControllerView:
    """One controller's view of its group. `trouble` is why it did not answer."""

    address: str
    is_leader: bool = False
    leader_id: str | None = None
    leader_address: str | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member. `broker_id`, `alive` and `in_sync` come from the controllers, the rest from the member itself."""

    address: str
    broker_id: int | None = None
    alive: bool | None = None
    in_sync: bool | None = None
    role: str | None = None  # master, slave or none
    epoch: int | None = None  # the last epoch in its epoch file
    max_offset: int | None = None
    confirm_offset: int | None = None
    role_since_ms: int | None = None
    lag_bytes: int | None = None  # bytes of the master's log that it is missing
    lag_ms: int | None = None  # age of the first message that it is missing
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class WatchedElection:
    """An epoch that is in the master's log, was reported by a controller, or was seen to begin. Offsets are in bytes; the end
    is exclusive.

    `first_message_ms` is when the broker at `master` stored the epoch's first message; the election was then or before.
    `at_ms` is when the master first acted, as reported by the master or a controller, or as seen. `why` is the reported
    reason, or else the inferred one."""

    epoch: int
    start_offset: int | None = None
    end_offset: int | None = None
    first_message_ms: int | None = None
    master: str | None = None
    at_ms: int | None = None
    why: str | None = None
    reported: Election | None = None  # from the controller that knows most of it


@dataclass(frozen=True, slots=True)
class SetView:
    """One broker set. Master and epochs come from the leading controller. Without a leader they are None."""

    broker_name: str
    cluster: str | None
    master_id: int | None
    master_address: str | None
    master_epoch: int | None
    sync_state_set_epoch: int | None
    brokers: tuple[MemberView, ...]
    elections: tuple[WatchedElection, ...] = ()  # newest first
    elects_itself: bool = False
    """Whether the set is in Raft mode. Master, epoch (the term) and in-sync members (caught up) then come from the master."""

    @property
    def master(self) -> MemberView | None:
        """The master according to the controllers."""
        return master_of(self.brokers, self.master_id, self.master_address)


def master_of(brokers: Sequence[MemberView], broker_id: int | None, address: str | None) -> MemberView | None:
    """The member with this address. If earlier brokers at that address left several members, the member with the id."""
    at_address = [row for row in brokers if row.address == address]
    return next(
        (row for row in at_address if row.broker_id == broker_id), at_address[0] if at_address else None
    )


@dataclass(frozen=True, slots=True)
class View:
    """Everything that one look saw: controllers, broker sets, and the time."""

    at_ms: int
    controllers: tuple[ControllerView, ...]
    sets: tuple[SetView, ...]
    trouble: str | None = None  # why no controller answered
