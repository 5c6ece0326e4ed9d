"""A slave's copy of its master's topics, groups and deletions (COPY_TABLES).

Invariant: an answer is used only if it comes from the master of the present role. A version is reported to the master only once
it is on this disk. The request waits at the master, so a change is copied at once. If a master does not know the request, its
tables are copied as upstream's slaves do, see slavesync."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from broker.role.membership import Membership
from broker.tables.holders import TablesVersion
from broker.tables.rowchanges import Named
from broker.tables.tablerows import as_tables, merged
from broker.tables.tables import Tables
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.waking import wait_event
from remoting.bodies.tables import TableChanges
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.headers.group import CopyTablesHeader, TablesVersionHeader

logger = logging.getLogger("broker.tablecopy")

TIMEOUT_MS = 3_000
WAIT_MS = 2_000
AGAIN_SOON_MS, AGAIN_MS = 10, 200
"""The first and the longest interval. An elected master usually leads at once, and does not count slaves that are missing its
tables. If it does not lead, the interval grows."""


class Fence(Protocol):
    """The versions that a Raft group's member may accept, and for which it may be counted; see
    broker.neighbours.grouptables."""

    def may_take(self, version: TablesVersion) -> bool: ...

    def may_report(self, version: TablesVersion) -> bool: ...


class Slices:
    """The slices of one answer: the changes since the version of these tables, or all rows."""

    def __init__(self) -> None:
        self._parts: list[TableChanges] = []
        self._since: str | None = None
        self._named: Named | None = None
        self._place: int | None = None

    def begin_again(self) -> None:
        self._parts, self._since, self._named, self._place = [], None, None, None

    def ask(self, header: CopyTablesHeader, exact: Named | None) -> None:
        """Add the wanted part to a request: the next slice, or the changes since the version of the present tables."""
        if self._place is None:
            self.begin_again()
            header.follows = None if exact is None else str(exact)
        else:
            header.follows, header.place, header.named = self._since, self._place, str(self._named)

    def take(self, said: TablesVersionHeader, changes: TableChanges) -> bool:
        """Add a slice. Returns whether it was the last slice."""
        if self._place is None or said.behind != self._place or said.since != self._since:
            self._parts, self._since = [], said.since
        self._parts.append(changes)
        self._named, self._place = Named.parse(said.named), said.place
        return said.place is None

    def adopt(self, tables: Tables) -> None:
        """Apply the complete answer to `tables`."""
        assert self._named is not None and self._parts, "the last slice was taken"
        changes = merged(self._parts)
        if self._since is None:
            tables.adopt(as_tables(changes), *self._named)
        else:
            tables.adopt_changes(changes, self._named)
        self.begin_again()


class TableCopy:
    """The copy from the master that `membership` names. `on_known()` is called when the master's first tables are here, or when
    the master does not know the request. From then on the master's offsets can be copied."""

    def __init__(
        self,
        membership: Membership,
        *,
        client: RemotingClient,
        clock: Clock,
        tables: Tables,
        interval_ms: int,
        on_known: Callable[[], None],
        in_pair: bool = False,
        fence: Fence | None = None,
        wait_ms: int = WAIT_MS,
    ) -> None:
        """With `in_pair` every master is polled like upstream's, because one process of a master looks like the next. A
        request waits `wait_ms` at the master."""
        self._membership = membership
        self._client = client
        self._clock = clock
        self._tables = tables
        self._interval_ms = interval_ms
        self._on_known = on_known
        self._wake = asyncio.Event()
        self._failure = RepeatedFailure()
        self._source: tuple[str, int] | None = None  # the master that the next two are from
        self._adopted: TablesVersion | None = None
        self._held: TablesVersion | None = None  # adopted and on disk
        self._slices = Slices()
        self._answered: str | None = None
        """The moment of the last answer of this master."""
        self._old: tuple[str, int] | None = None
        self._in_pair = in_pair
        self._fence = fence
        self._wait_ms = wait_ms
        self._sure_of: tuple[tuple[str, int], int] | None = None
        """A master that was sure to lead, and when (monotonic ms) it was asked for its tables, which are here."""
        self._again_ms = AGAIN_SOON_MS
        tables.on_facts_changed(self._differs)

    def soon(self) -> None:
        """Copy soon, because there may be a new master."""
        if self._master() != self._source:
            self._wake.set()

    @property
    def master_is_old(self) -> bool:
        """Whether the present master must be polled like upstream's."""
        return self._in_pair or (self._old is not None and self._old == self._master())

    @property
    def is_copied(self) -> bool:
        """Whether the present master's tables are on this disk; True for upstream's master, for which it is not known."""
        return self.master_is_old or (self._held is not None and self._source == self._master())

    def is_sure(self, lease_ms: int) -> bool:
        """Whether the tables here were the present master's `lease_ms` ago."""
        if self._sure_of is None or self._sure_of[0] != self._master():
            return False
        return self._clock.monotonic_ms() < self._sure_of[1] + lease_ms

    def counts(self, version: str | None) -> bool:
        """Whether an answer with this `version` comes from the present master while it led, and is not older than the tables
        copied here. A master that is polled like upstream's sends no version."""
        if self.master_is_old:
            return True
        said, master = TablesVersion.parse(version), self._master()
        if said is None or master is None or said.epoch != master[1]:
            return False
        return self._adopted is None or self._source != master or said >= self._adopted

    async def run(self) -> None:
        while True:
            self._wake.clear()
            master, wait_ms = self._master(), self._interval_ms
            if master is not None and not self.master_is_old:
                wait_ms = await self._unless_woken(master)
            if wait_ms:
                await wait_event(self._wake, wait_ms)

    def _master(self) -> tuple[str, int] | None:
        address = self._membership.master_address
        return None if address is None else (address, self._membership.master_epoch)

    async def _unless_woken(self, master: tuple[str, int]) -> int:
        """Send one request; it is abandoned when another master must be asked. Returns the ms until the next request."""
        asked = asyncio.create_task(self._copy(master), name="copy tables")
        waking = asyncio.create_task(self._wake.wait(), name="copy tables wake-up")
        try:
            await asyncio.wait({asked, waking}, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else 0
        finally:
            asked.cancel()
            waking.cancel()
            await asyncio.gather(asked, waking, return_exceptions=True)

    async def _copy(self, master: tuple[str, int]) -> int:
        if self._source != master:
            self._source, self._adopted, self._held, self._answered = master, None, None, None
            self._slices.begin_again()
            self._again_ms = AGAIN_SOON_MS
        broker_id = self._membership.broker_id
        assert broker_id is not None, "a slave has an id"
        held = (
            self._held
            if self._fence is None or self._held is None or self._fence.may_report(self._held)
            else None
        )
        header = CopyTablesHeader(
            broker_id, str(held) if held else None, self._wait_ms, answered=self._answered
        )
        self._slices.ask(header, self._tables.changes.exact)
        request = RemotingCommand.request(RequestCode.COPY_TABLES, header)
        asked_ms = self._clock.monotonic_ms()
        try:
            reply = await self._client.call(master[0], request, TIMEOUT_MS)
            came_ms = self._clock.monotonic_ms()
            said = TablesVersionHeader.from_ext(reply.ext)
            version = TablesVersion.parse(said.tables_version)
            changes = TableChanges.decode(reply.body) if reply.body else None
            if changes is not None and Named.parse(said.named) is None:
                raise HeaderError("named", said.named, "a version and its process are to be named")
        except (RemotingError, HeaderError, BodyError) as error:
            if self._failure.failed(master, self._clock.monotonic_ms()):
                logger.warning("tables not copied from master", extra=fields(master=master[0], why=error))
            return AGAIN_MS
        self._failure.recovered(self._clock.monotonic_ms())
        if self._master() != master:
            return 0
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._old = master
            self._on_known()
            return self._interval_ms
        is_ours = version is not None and version.epoch == master[1]
        if reply.code != ResponseCode.SUCCESS or version is None or not (is_ours and self._may_take(version)):
            # the master does not lead yet or any more, or a former master is at this address
            again_ms, self._again_ms = self._again_ms, min(2 * self._again_ms, AGAIN_MS)
            return again_ms
        self._answered = said.moment
        read_ms = self._clock.monotonic_ms() - came_ms
        is_whole = changes is None or self._slices.take(said, changes)
        if changes is None or not is_whole or await self._store(version):
            if is_whole and said.is_sure and self._master() == master:
                self._sure_of = master, asked_ms
            return read_ms  # if large tables change all the time, this leaves time for the log
        return self._interval_ms

    async def _store(self, version: TablesVersion) -> bool:
        """Save the complete answer. Returns whether it is on disk."""
        self._slices.adopt(self._tables)
        is_first, self._adopted, self._held = self._adopted is None, version, None
        if is_first:
            self._on_known()
        source, before = self._source, self._tables.version
        try:
            await self._tables.save_facts()
        except OSError:  # the tables stay changed: broker.tables.tables retries, and logs
            return False
        if (self._source, self._tables.version) == (source, before):
            self._held = version
        return True

    def _may_take(self, version: TablesVersion) -> bool:
        return self._fence is None or self._fence.may_take(version)

    def _differs(self) -> None:
        """Called when these tables differ from the master's, because a group was created here or a role was taken. The next
        request asks for all tables."""
        self._held = None
