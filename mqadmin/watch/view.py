"""One look at a broker set, as the servers themselves told it.

Invariant: None means that nobody told; nothing here is guessed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remoting.bodies.elections import Election as Told


@dataclass(frozen=True, slots=True)
class ControllerView:
    """What one controller says of its group; `trouble` is why it did not answer."""

    address: str
    is_leader: bool = False
    leader_id: str | None = None
    leader_address: str | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One member: `broker_id`, `alive` and `in_sync` are the controllers' word, the rest is its own."""

    address: str
    broker_id: int | None = None
    alive: bool | None = None
    in_sync: bool | None = None
    role: str | None = None  # master, slave or none
    epoch: int | None = None  # the last in its epoch file
    max_offset: int | None = None
    confirm_offset: int | None = None
    role_since_ms: int | None = None
    lag_bytes: int | None = None  # what its master has and it has not
    lag_ms: int | None = None  # how long ago the first message that it lacks was stored
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Election:
    """An epoch in the master's log, or that a controller told, or that was seen to begin; offsets in bytes, the end
    exclusive.

    `first_message_ms` is when its first message was stored, by the broker at `master`: the election was then or
    before. `at_ms` is when the master acted first, as it says itself, as `told` or as was seen; `why` is what was
    told, else what was seen.
    """

    epoch: int
    start_offset: int | None = None
    end_offset: int | None = None
    first_message_ms: int | None = None
    master: str | None = None
    at_ms: int | None = None
    why: str | None = None
    told: Told | None = None  # by the controller that knows most of it


@dataclass(frozen=True, slots=True)
class SetView:
    """One broker set. Master and epochs are the leading controller's word; without one they are None."""

    broker_name: str
    cluster: str | None
    master_id: int | None
    master_address: str | None
    master_epoch: int | None
    sync_state_set_epoch: int | None
    brokers: tuple[BrokerView, ...]
    elections: tuple[Election, ...] = ()  # newest first
    elects_itself: bool = False
    """In Raft mode: master, epoch (the term) and who is in sync (level) are the master's own word."""

    @property
    def master(self) -> BrokerView | None:
        """The member that the controllers call master."""
        return master_of(self.brokers, self.master_id, self.master_address)


def master_of(brokers: Sequence[BrokerView], broker_id: int | None, address: str | None) -> BrokerView | None:
    """The one with this address; of several, which earlier brokers of that address leave behind, the one with the id."""
    at_address = [row for row in brokers if row.address == address]
    return next(
        (row for row in at_address if row.broker_id == broker_id), at_address[0] if at_address else None
    )


@dataclass(frozen=True, slots=True)
class View:
    """Everything at one moment."""

    at_ms: int
    controllers: tuple[ControllerView, ...]
    sets: tuple[SetView, ...]
    trouble: str | None = None  # why the controllers' word is missing
