"""Headers between the brokers of one group: 906, and this project's about tables and planned switchover."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class ExchangeHAInfoHeader(Header):
    """906, request and reply. A request without `master_ha_address` asks; one with it announces the sender as master."""

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None


@dataclass(slots=True)
class CopyTablesHeader(Header):
    """COPY_TABLES: broker `broker_id` has stored the tables of version `holds` (`epoch.revision`, named by its master) and
    waits `wait_ms` for another. Its tables are based on version `follows` (`epoch.revision@process`, named by a master), so
    later changes are enough; absent: all rows are wanted. Of many rows those after `place`, as the last slice, of version
    `named`, said.
    """

    broker_id: I64
    holds: str | None = None
    wait_ms: I64 = 0
    follows: str | None = None
    place: I64 | None = None
    named: str | None = None


@dataclass(slots=True)
class ReadTablesHeader(Header):
    """READ_TABLES: the leader of `term` has tables of version `holds`, and asks a member of its group for newer ones. The
    reply names the member's version, if there is any, and has its tables if they are newer. A broker of another `group`, or
    not `member`, rejects it: addresses are reused.
    """

    term: I64
    holds: str | None = None
    group: str | None = None
    member: str | None = None


@dataclass(slots=True)
class SlaveHeader(Header):
    """An extension of 45, which Java brokers send without a header: the sender."""

    broker_id: I64 | None = None


@dataclass(slots=True)
class TablesVersionHeader(Header):
    """An extension, reply to COPY_TABLES, 43 and 45: the version of the master's topics, groups and deletions at the reply;
    0.0 if the sender is no master. Older versions omit it with 45 and if they are no master. With 43 and 45 the master's own
    offsets depend on its log below `rests_on`; older versions do not send it."""

    tables_version: str | None = None
    rests_on: I64 | None = None
    named: str | None = None
    """With COPY_TABLES: the version with the process that named it."""
    since: str | None = None
    """With COPY_TABLES: the body has the changes since that version; absent: it has all rows, or the first of all."""
    behind: I64 | None = None
    """With COPY_TABLES: the rows follow this place."""
    place: I64 | None = None
    """With COPY_TABLES: more rows follow this place."""


@dataclass(slots=True)
class HandOverHeader(Header):
    """HAND_OVER: the master of `master_epoch` accepts no more messages for `hold_ms`, and answers within `wait_ms`, once all
    accepted ones are confirmed and held by `successor_id`. With `called_off` the planned switchover is cancelled.
    """

    broker_name: str
    master_epoch: I32
    successor_id: I64
    wait_ms: I64 = 0
    hold_ms: I64 = 0
    called_off: bool = False


@dataclass(slots=True)
class HandOverResponseHeader(Header):
    """The end of the log of the master that hands over."""

    log_end: I64


@dataclass(slots=True)
class AwaitMasterHeader(Header):
    """AWAIT_MASTER: answer when the broker accepts messages under `master_epoch` or a newer one, in at most `wait_ms`.
    `broker_id` is the former master's; absent from older versions."""

    master_epoch: I32
    wait_ms: I64 = 0
    broker_id: I64 | None = None


@dataclass(slots=True)
class ReadLogHeader(Header):
    """DLEDGER_READ_LOG: `size` bytes from `offset` on of a member's log, committed and on its disk; the reply may be shorter,
    where a file ends. Without a `size`: the part of the log that the member has before its ledger.
    """

    offset: I64 = 0
    size: I64 = 0
