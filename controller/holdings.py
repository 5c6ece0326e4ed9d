"""The confirmed offset that each broker reported, and the brokers that came back with a shorter log.

Each broker sends its heartbeats to all controllers, and every controller keeps its own table.

Invariant: a broker is recorded as missing data only if it is a member of the SyncStateSet, or eligible, and its first report
over a connection is below the offset that it confirmed before. That report may come from a new process with another disk.
Within a connection a log loses no confirmed data, and the master ensures that a broker that joins the set later holds all of
it. Reports of other brokers count only against an empty log, because those reports may simply be newer. A newer epoch in a
broker's log clears the broker. A broker that sends its start number also sends the end of its last confirmed record; it is
missing data if it comes back with one byte less. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from controller.heartbeats import BrokerKey
from remoting.fastjson import FastJsonError, loads

RECORD_BYTES_MAX = (4 << 20) + (64 << 10)
"""The number of bytes that may be missing from an intact log of a broker without a start number (upstream's): its confirm
offset may lie within a record, and its start truncates a partial record."""

CheckCode = Callable[[BrokerKey], str | None]
"""Returns the check code with which an id was granted; None if the id is not granted. An id may be granted again after its set
was cleaned."""


class LogReport(NamedTuple):
    """A heartbeat's report on a log: the last epoch, the end and the confirm offset. If the heartbeat has a `start_number` (0:
    not sent), the confirm offset is the end of the last confirmed record."""

    epoch: int
    max_offset: int
    confirm_offset: int
    start_number: int = 0


class Held(NamedTuple):
    """The confirmed offset in an epoch. Later values of one broker are greater."""

    epoch: int
    confirm_offset: int


@dataclass(slots=True)
class _Holding:
    check_code: str
    held: Held
    connection: int = 0
    missing: Held | None = None
    start_number: int = 0
    """The greatest start number that was heard."""


class HoldingsDamaged(ValueError):
    """The data was not written by Holdings."""


class Holdings:
    """The table. Later connections have higher numbers. `on_change` is called when the result of `rows` changes."""

    def __init__(self, check_code: CheckCode, on_change: Callable[[], None]) -> None:
        self._check_code = check_code
        self._on_change = on_change
        self._of: dict[BrokerKey, _Holding] = {}
        self._of_set: dict[tuple[str, str], dict[BrokerKey, _Holding]] = {}
        self.incomplete: frozenset[BrokerKey] = frozenset()
        """The brokers whose logs are known to be missing data that their set confirmed."""

    def heard(self, key: BrokerKey, connection: int, report: LogReport, *, member: bool) -> Held | None:
        """Record a heartbeat of a registered broker. `member` is True if the broker is in its SyncStateSet, or eligible. If
        this heartbeat is the first to show that the broker is missing data, returns the confirmed offset that the broker's log
        does not reach; else None."""
        check_code = self._check_code(key)
        assert check_code is not None, f"{key} is not registered"
        holding = self._of.get(key)
        if holding is None or holding.check_code != check_code:
            holding = self._note(key, _Holding(check_code, Held(-1, 0)))
        if connection < holding.connection:
            return None
        begins, holding.connection = connection > holding.connection, connection
        before = holding.missing
        exact = holding.start_number > 0
        if not member or (before is not None and _makes_up_for(report, before)):
            holding.missing = None
        elif begins and before is None:
            holding.missing = self._shortfall(key, holding.held, report, exact=exact)
        if report.start_number > holding.start_number:
            holding.start_number = report.start_number
            self._on_change()
        if (key in self.incomplete) != (holding.missing is not None):
            self.incomplete ^= {key}
        if holding.missing is not None:
            return holding.missing if before is None else None
        held = Held(report.epoch, max(0, report.confirm_offset))
        if exact or not report.start_number:  # otherwise the earlier offset may lie within a record
            held = max(holding.held, held)
        if held != holding.held:
            holding.held = held
            self._on_change()
        return None

    def start_number(self, key: BrokerKey) -> int:
        """The greatest start number that the broker `key` has sent; 0 if it sent none."""
        holding = self._of.get(key)
        return holding.start_number if holding and holding.check_code == self._check_code(key) else 0

    def _shortfall(self, key: BrokerKey, own: Held, report: LogReport, *, exact: bool) -> Held | None:
        """The confirmed offset that this report does not reach; None if there is none. The broker's own confirmed offset always
        counts, the greatest of the set only against an empty log."""
        if report.max_offset < 0:
            return None  # not sent
        cut_off = (
            RECORD_BYTES_MAX if report.epoch == own.epoch and not exact else 0
        )  # a log from before the last epoch ends with a whole record
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
        """All brokers that were ever heard, sorted."""
        return sorted(self._of)

    def rows(self, keys: Iterable[BrokerKey]) -> Iterator[bytes]:
        """Encode the rows of those `keys` that have confirmed data or a start number, for `restore`."""
        for key in keys:
            holding = self._of[key]
            says = holding.held.confirm_offset or holding.start_number
            if says and holding.check_code == self._check_code(key):
                number = [holding.start_number] if holding.start_number else []
                yield json.dumps([*key, holding.check_code, *holding.held, *number]).encode()

    def restore(self, data: bytes) -> None:
        """Load the table of an earlier process of this controller: a JSON array of `rows`.

        Raises: HoldingsDamaged."""
        try:
            rows = loads(data)
            for cluster, broker, broker_id, check_code, epoch, confirm_offset, *number in rows:
                holding = _Holding(str(check_code), Held(int(epoch), int(confirm_offset)))
                if number:
                    (holding.start_number,) = map(int, number)
                self._note((str(cluster), str(broker), int(broker_id)), holding)
        except (FastJsonError, ValueError, TypeError) as error:
            raise HoldingsDamaged(str(error)) from error


def _makes_up_for(report: LogReport, missing: Held) -> bool:
    return report.epoch > missing.epoch or report.max_offset >= missing.confirm_offset
