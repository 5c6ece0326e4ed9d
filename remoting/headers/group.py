"""Headers between the brokers of one group: 906, and those of ours about tables and about hand-over."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.headers.header import Header
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class ExchangeHAInfoHeader(Header):
    """906, request and reply. A request without `master_ha_address` asks; one with it says "I am your
    master".
    """

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None


@dataclass(slots=True)
class CopyTablesHeader(Header):
    """COPY_TABLES: broker `broker_id` has stored the tables of version `holds` (`epoch.revision`, as its master named
    it) and waits `wait_ms` for another. Its tables are those of version `follows` (`epoch.revision@process`, as a master
    named it), so what changed since is enough; absent: all is wanted. Of many rows those behind `place`, as the last slice
    said, whose version was `named`.
    """

    broker_id: I64
    holds: str | None = None
    wait_ms: I64 = 0
    follows: str | None = None
    place: I64 | None = None
    named: str | None = None


@dataclass(slots=True)
class ReadTablesHeader(Header):
    """READ_TABLES: the leader of `term` has tables of version `holds`, and asks a member of its group what that one has. The
    reply names the version of these, if there is any, and has them where they are newer. Whoever is none of that `group`, or
    not `member`, refuses: addresses are given to others.
    """

    term: I64
    holds: str | None = None
    group: str | None = None
    member: str | None = None


@dataclass(slots=True)
class SlaveHeader(Header):
    """Ours on 45, which Java brokers send without: who asks."""

    broker_id: I64 | None = None


@dataclass(slots=True)
class TablesVersionHeader(Header):
    """Ours, reply to COPY_TABLES, 43 and 45: the version of the master's topics, groups and deletions as it replied; 0.0
    from who is no master, absent from older versions: from who is none, and with 45. With 43 and 45 what the master's own
    offsets tell of stands in its log below `rests_on`; older versions do not say where."""

    tables_version: str | None = None
    rests_on: I64 | None = None
    named: str | None = None
    """With COPY_TABLES: the version with the process that named it."""
    since: str | None = None
    """With COPY_TABLES: the body has what changed since that version; absent: it has all, or the first of all."""
    behind: I64 | None = None
    """With COPY_TABLES: the rows are those behind this place."""
    place: I64 | None = None
    """With COPY_TABLES: and more are behind this one."""


@dataclass(slots=True)
class HandOverHeader(Header):
    """HAND_OVER: the master of `master_epoch` takes no more messages for `hold_ms`, and answers within `wait_ms`, when all that
    it took is confirmed and held by `successor_id`. With `called_off` there is no hand-over any more.
    """

    broker_name: str
    master_epoch: I32
    successor_id: I64
    wait_ms: I64 = 0
    hold_ms: I64 = 0
    called_off: bool = False


@dataclass(slots=True)
class HandOverResponseHeader(Header):
    """Where the log of the master that hands over ends."""

    log_end: I64


@dataclass(slots=True)
class AwaitMasterHeader(Header):
    """AWAIT_MASTER: to be answered when the broker takes messages under `master_epoch` or a newer one, in `wait_ms` at most.
    `broker_id` is the former master's; absent from older versions."""

    master_epoch: I32
    wait_ms: I64 = 0
    broker_id: I64 | None = None


@dataclass(slots=True)
class ReadLogHeader(Header):
    """DLEDGER_READ_LOG: `size` bytes from `offset` on of a member's log, which are decided and on its disk; the answer may be
    shorter, where a file ends. Without a `size`: what the member has before its ledger.
    """

    offset: I64 = 0
    size: I64 = 0
