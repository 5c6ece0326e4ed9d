"""Headers of requests between the brokers of one set: requests for tables, and for a planned switchover. Most of them are
extensions, which upstream does not have."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class ExchangeHAInfoHeader(Header):
    """EXCHANGE_BROKER_HA_INFO (906), request and reply. A request without `master_ha_address` asks for the master's
    addresses; a request with it announces the sender as master."""

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None


@dataclass(slots=True)
class CopyTablesHeader(Header):
    """COPY_TABLES: the broker `broker_id` has stored the tables of version `holds` (`epoch.revision`, named by the broker's
    master) and waits `wait_ms` for another version. Its tables are based on version `follows` (`epoch.revision@process`,
    named by a master), so only later changes are wanted; without `follows` all rows are wanted. If the rows come in slices,
    `place` and `named` repeat the place and version of the last slice, and the rows after that place are wanted. `answered`
    repeats the `moment` of the master's last answer: the request was sent after it, however long it was on its way.
    """

    broker_id: I64
    holds: str | None = None
    wait_ms: I64 = 0
    follows: str | None = None
    place: I64 | None = None
    named: str | None = None
    answered: str | None = None


@dataclass(slots=True)
class ReadTablesHeader(Header):
    """READ_TABLES: the leader of `term` has tables of version `holds`, and asks a member of its group for newer tables. The
    reply names the version of the member's tables, if it has any, and contains the tables if they are newer. A broker that
    is of another `group`, or is not `member`, rejects the request, because addresses are reused.
    """

    term: I64
    holds: str | None = None
    group: str | None = None
    member: str | None = None


@dataclass(slots=True)
class SlaveHeader(Header):
    """The sender of GET_ALL_DELAY_OFFSET (45): an extension, because Java brokers send the request without a header."""

    broker_id: I64 | None = None


@dataclass(slots=True)
class TablesVersionHeader(Header):
    """Reply to COPY_TABLES, GET_ALL_CONSUMER_OFFSET (43) and GET_ALL_DELAY_OFFSET (45): an extension. `tables_version` is
    the version of the master's topics, groups and deletions at the reply, or 0.0 if the sender is no master. Brokers of
    older versions omit it with 45, and if they are no master. With 43 and 45, the master's own offsets depend on its log
    below `rests_on`; brokers of older versions do not send `rests_on`."""

    tables_version: str | None = None
    rests_on: I64 | None = None
    named: str | None = None
    """With COPY_TABLES: the version with the process that named it."""
    since: str | None = None
    """With COPY_TABLES: the body has the changes since that version. Without `since` the body has all rows, or the first of
    all rows."""
    behind: I64 | None = None
    """With COPY_TABLES: the rows follow this place."""
    place: I64 | None = None
    """With COPY_TABLES: more rows follow this place."""
    is_sure: bool = False
    """With COPY_TABLES: no other broker can have become master a moment before."""
    moment: str | None = None
    """With COPY_TABLES: when the master answered, by its own clock. No other process reads it."""


@dataclass(slots=True)
class HandOverHeader(Header):
    """HAND_OVER: the master of `master_epoch` accepts no more messages for `hold_ms`. It answers within `wait_ms`, when all
    accepted messages are confirmed and stored by `successor_id`. `called_off` cancels the planned switchover.
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
    """AWAIT_MASTER: the broker answers when it accepts messages under `master_epoch` or a newer epoch, or after `wait_ms`.
    `broker_id` is the former master's; older versions do not send it."""

    master_epoch: I32
    wait_ms: I64 = 0
    broker_id: I64 | None = None


@dataclass(slots=True)
class ReadLogHeader(Header):
    """DLEDGER_READ_LOG asks for `size` bytes, from `offset` on, of a member's log that are committed and on its disk. The
    reply is shorter where a file ends. Without `size` the request asks which part of the log the member has before its
    ledger.
    """

    offset: I64 = 0
    size: I64 = 0
