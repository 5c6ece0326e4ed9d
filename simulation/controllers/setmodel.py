"""A model of one broker set. Its states are computed from the entries that controllers applied, by the rules of this package
and not by the product's code.

Invariant: `history` holds the state of the set after each entry that changed it, with that entry's place among all entries. It
only grows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from simulation.controllers import entries
from simulation.controllers.entries import ControllerEntry


@dataclass(frozen=True, slots=True)
class SetState:
    """The state that controllers keep. `codes` and `addresses` are those of each registered broker, by id. `eligible` are
    brokers outside the set that may be elected."""

    codes: dict[int, str] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)
    master_id: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    eligible: frozenset[int] = frozenset()
    forgotten: frozenset[str] = frozenset()
    """Codes of brokers that were registered since the set began and are no longer."""

    @property
    def known(self) -> bool:
        return bool(self.codes)


NOTHING = SetState()


@dataclass
class SetModel:
    """`elections` maps an epoch to (place of the entry, elected broker). `holders` are the brokers that hold everything that
    masters have acknowledged."""

    now: SetState = NOTHING
    places: list[int] = field(default_factory=list)
    history: list[SetState] = field(default_factory=list)
    elections: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    holders: frozenset[int] = frozenset()

    def after(self, entry: ControllerEntry) -> SetState:
        """The set after `entry` is applied to it."""
        now = self.now
        if not now.known and entry.kind != entries.APPLY_ID:
            return now
        match entry.kind:
            case entries.ALTER:
                assert entry.ids is not None
                return replace(now, members=entry.ids, set_epoch=now.set_epoch + 1, eligible=entry.eligible)
            case entries.APPLY_ID:
                assert entry.broker_id is not None
                if entry.broker_id in now.codes:
                    return now
                codes = now.codes | {entry.broker_id: entry.check_code}
                return replace(now, codes=codes, addresses=now.addresses | {entry.broker_id: entry.address})
            case entries.ELECT if entry.broker_id is None:
                return replace(now, master_id=None, master_epoch=now.master_epoch + 1)
            case entries.ELECT:
                assert entry.broker_id is not None
                return replace(
                    now,
                    master_id=entry.broker_id,
                    master_epoch=now.master_epoch + 1,
                    members=frozenset({entry.broker_id}),
                    set_epoch=now.set_epoch + 1,
                    eligible=entry.eligible,
                )
            case entries.CLEAN:
                if entry.ids is None or entry.ids >= now.codes.keys():
                    return NOTHING
                return replace(
                    now,
                    codes={id_: code for id_, code in now.codes.items() if id_ not in entry.ids},
                    addresses={id_: at for id_, at in now.addresses.items() if id_ not in entry.ids},
                    members=now.members - entry.ids,
                    eligible=now.eligible - entry.ids,
                    forgotten=now.forgotten | {code for id_, code in now.codes.items() if id_ in entry.ids},
                )
            case entries.ADDRESS:
                assert entry.broker_id is not None
                return replace(now, addresses=now.addresses | {entry.broker_id: entry.address})
        return now

    def become(self, state: SetState, place: int) -> None:
        if not state.known:
            self.elections.clear()
        self.holders = (self.holders | state.members) & state.codes.keys()  # new members have caught up
        if state.master_epoch != self.now.master_epoch:
            self.elections[state.master_epoch] = place, state.master_id
        self.now = state
        self.places.append(place)
        self.history.append(state)

    def between(self, first: int, end: int) -> Iterator[SetState]:
        """The states of the set from the moment when `first` entries were applied to the moment when `end` were, newest
        first."""
        at = bisect_left(self.places, end)
        while at > 0:
            yield self.history[at - 1]
            if self.places[at - 1] < first:
                return
            at -= 1
        yield NOTHING
