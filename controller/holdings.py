"""What each broker said that it holds of what its set confirmed, and who came back with less.

Every controller keeps its own table, from the heartbeats that each broker sends to all of them. Invariant: a broker lacks
something only if it was in the SyncStateSet, or eligible beside it, when its first report over a connection, so perhaps that
of a new process with another disk, fell short of what was confirmed before. Within a connection a log loses nothing that was
confirmed, and who enters the set later holds all of it, by its master's word. What others say counts against an empty log
alone: theirs may simply be newer. A newer epoch in its log clears a broker, for its set was made anew with it. A broker that
says the number of its start also says where its last confirmed record ends, and is missing something if it comes back with a
byte less. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from controller.heartbeats import BrokerKey
from remoting.fastjson import FastJsonError, loads

RECORD_BYTES_MAX = (4 << 20) + (64 << 10)
"""A confirm offset may lie within a record, whose beginning a start cuts off: so much may be missing from a whole log of a
broker that says no start number, as upstream's do not."""

CheckCode = Callable[[BrokerKey], str | None]
"""Who was granted an id; None when nobody holds it. An id may be granted again after its set was cleaned."""


class Report(NamedTuple):
    """What a heartbeat says of a log: its last epoch, its end, and up to where the set confirmed it; with a `start_number`
    (0: not said) that is where the last confirmed record ends."""

    epoch: int
    max_offset: int
    confirm_offset: int
    start_number: int = 0


class Held(NamedTuple):
    """Confirmed up to here in this epoch: later entries of one broker are greater."""

    epoch: int
    confirm_offset: int


@dataclass(slots=True)
class _Holding:
    check_code: str
    held: Held
    connection: int = 0
    lacks: Held | None = None
    start_number: int = 0
    """The greatest that was heard."""


class HoldingsDamaged(ValueError):
    """Bytes that no Holdings wrote."""


class Holdings:
    """A connection is known by its number; later connections have higher ones. `on_change` hears that `rows` would say
    something new."""

    def __init__(self, check_code: CheckCode, on_change: Callable[[], None]) -> None:
        self._check_code = check_code
        self._on_change = on_change
        self._of: dict[BrokerKey, _Holding] = {}
        self._of_set: dict[tuple[str, str], dict[BrokerKey, _Holding]] = {}
        self.lacking: frozenset[BrokerKey] = frozenset()
        """The brokers whose logs are known to lack what their sets confirmed."""

    def heard(self, key: BrokerKey, connection: int, report: Report, *, member: bool) -> Held | None:
        """Take in a heartbeat of a registered broker, a `member` of its SyncStateSet or eligible beside it, or neither. What it
        has just been found to lack, or None."""
        check_code = self._check_code(key)
        assert check_code is not None, f"{key} is not registered"
        holding = self._of.get(key)
        if holding is None or holding.check_code != check_code:
            holding = self._note(key, _Holding(check_code, Held(-1, 0)))
        if connection < holding.connection:
            return None
        begins, holding.connection = connection > holding.connection, connection
        before = holding.lacks
        exact = holding.start_number > 0
        if not member or (before is not None and _makes_up_for(report, before)):
            holding.lacks = None
        elif begins and before is None:
            holding.lacks = self._shortfall(key, holding.held, report, exact=exact)
        if report.start_number > holding.start_number:
            holding.start_number = report.start_number
            self._on_change()
        if (key in self.lacking) != (holding.lacks is not None):
            self.lacking ^= {key}
        if holding.lacks is not None:
            return holding.lacks if before is None else None
        held = Held(report.epoch, max(0, report.confirm_offset))
        if exact or not report.start_number:  # else what was heard before may end within a record
            held = max(holding.held, held)
        if held != holding.held:
            holding.held = held
            self._on_change()
        return None

    def start_number(self, key: BrokerKey) -> int:
        """The greatest that the broker with this key has said; 0 where it has said none."""
        holding = self._of.get(key)
        return holding.start_number if holding and holding.check_code == self._check_code(key) else 0

    def _shortfall(self, key: BrokerKey, own: Held, report: Report, *, exact: bool) -> Held | None:
        """What it held itself counts in full; of the set it is only asked whether it holds anything at all."""
        if report.max_offset < 0:
            return None  # it was not said
        cut_off = (
            RECORD_BYTES_MAX if report.epoch == own.epoch and not exact else 0
        )  # a copy of before the last epoch lost no record's part
        if report.epoch <= own.epoch and report.max_offset < own.confirm_offset - cut_off:
            return own
        newest = max(
            holding.held
            for other, holding in self._of_set[key[:2]].items()
            if holding.check_code == self._check_code(other)
        )
        if report.epoch <= newest.epoch and newest.confirm_offset > 0 and report.max_offset == 0:
            return Held(newest.epoch, 1)
        return None

    def _note(self, key: BrokerKey, holding: _Holding) -> _Holding:
        self._of[key] = self._of_set.setdefault(key[:2], {})[key] = holding
        return holding

    # The file

    def keys(self) -> list[BrokerKey]:
        """Of the brokers that were ever heard, sorted."""
        return sorted(self._of)

    def rows(self, keys: Iterable[BrokerKey]) -> Iterator[bytes]:
        """Those of `keys` that held something, for `restore`."""
        for key in keys:
            holding = self._of[key]
            says = holding.held.confirm_offset or holding.start_number
            if says and holding.check_code == self._check_code(key):
                number = [holding.start_number] if holding.start_number else []
                yield json.dumps([*key, holding.check_code, *holding.held, *number]).encode()

    def restore(self, data: bytes) -> None:
        """What an earlier process of this controller was told: a JSON array of `rows`. HoldingsDamaged."""
        try:
            rows = loads(data)
            for cluster, broker, broker_id, check_code, epoch, confirm_offset, *number in rows:
                holding = _Holding(str(check_code), Held(int(epoch), int(confirm_offset)))
                if number:
                    (holding.start_number,) = map(int, number)
                self._note((str(cluster), str(broker), int(broker_id)), holding)
        except (FastJsonError, ValueError, TypeError) as error:
            raise HoldingsDamaged(str(error)) from error


def _makes_up_for(report: Report, lacks: Held) -> bool:
    return report.epoch > lacks.epoch or report.max_offset >= lacks.confirm_offset
