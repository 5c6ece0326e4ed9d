"""What administrators are told about a change of topics and groups, and how slaves get it (COPY_TABLES).

Invariant: a change is answered with success only when it is on this broker's disk and every member of the SyncStateSet,
applied or proposed, has said that it stored it; who enters the set later stores it before, and while the set is too small to
acknowledge a message, so that others may be elected, nothing is. In Raft mode it is a majority of those that vote, in this
leader's term. Otherwise the answer says what is known. A slave's request waits until there is something that it lacks; it
counts for the broker that it names only where a replication link of that broker would be let in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from broker.role.membership import Membership, Role
from broker.settings.broker import BrokerSettings
from broker.tables.holders import NO_MASTER, Holders, TablesVersion
from broker.tables.tables import Tables
from ha.master.gate import Asker
from ha.replication import Replication
from mqruntime.clock import Clock
from mqruntime.diskfull import cure
from mqruntime.waking import woken
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.group import CopyTablesHeader, SlaveHeader, TablesVersionHeader
from remoting.peer import Peer
from remoting.router import Router

ANSWER_MS_MAX = 2_000
"""Administrators wait 3 s or 5 s, and shall hear what is known."""
COPY_WAIT_MS_MAX = 10_000
PREPARE_MS_MAX = 1_000
"""Of a change of who votes, whose operator waits 3 s in all."""
LOOK_MS = 200
"""The set may have shrunk meanwhile."""


class Agreement:
    """`settings.slave_timeout` bounds every wait for slaves; it may change while the broker runs."""

    def __init__(
        self, tables: Tables, role: Membership, ha: Replication, settings: BrokerSettings, clock: Clock
    ) -> None:
        self._tables = tables
        self._role = role
        self._ha = ha
        self._settings = settings
        self._clock = clock
        self._holders = Holders()
        self._news = asyncio.Event()  # a new one each time that it was set
        tables.on_facts_changed(self._tell)

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.COPY_TABLES, self._copy)

    # -- administrators

    async def change(self, command: RemotingCommand, what: str, make: Callable[[], None]) -> RemotingCommand:
        """The answer to a request that `make` carries out; `what` names it in sentences."""
        role = self._role
        if not role.accepts_sends:
            master = f": ask {role.master_address}" if role.master_address else ""
            why = f"this broker is not the master of its set{master}"
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        make()
        wanted, wait_ms = self._tables.version, self._wait_ms()
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._tables.save_facts()
        except TimeoutError:  # an OSError, too
            why = f"{what} is not on this broker's disk after {wait_ms} ms; ask again"
            return command.reply(ResponseCode.SYSTEM_ERROR, why)
        except OSError as error:
            why = f"{what} is not on this broker's disk: {error}{cure(error)}; then ask again"
            return command.reply(ResponseCode.SYSTEM_ERROR, why)
        agreed, lacking = await self._agreed_at_the_end(self._ha.counted_members, wanted, deadline_ms)
        if not role.accepts_sends or not (agreed or lacking):
            why = f"this broker is not the master any more; whether the next one knows of it is open: {what}"
            return command.reply(ResponseCode.SYSTEM_ERROR, why)
        if not agreed:
            ids = ", ".join(map(str, lacking))
            why = f"{what} is stored here, not yet on broker {ids} after {wait_ms} ms; ask again"
            return command.reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, why)
        while not self._ha.may_confirm():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or not role.accepts_sends:
                why = f"{what} is stored here; too few replicas are in sync, and one that is not may be elected; ask again"
                return command.reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, why)
            await woken(self._news, min(left_ms, LOOK_MS))
        return command.reply()

    async def change_in_steps(
        self, command: RemotingCommand, what: str, steps: Sequence[Callable[[], None]]
    ) -> RemotingCommand:
        """As `change` of all `steps`, one at least; others have their turns between two of them."""
        for step in steps[:-1]:
            if not self._role.accepts_sends:
                break
            step()
            await asyncio.sleep(0)
        return await self.change(command, what, steps[-1])

    async def held_by(self, members: frozenset[int]) -> bool:
        """Whether these brokers hold all that administrators were answered until now, or do within the time."""
        deadline_ms = self._clock.monotonic_ms() + self._wait_ms()
        wanted = self._tables.version
        return (await self._agreed_at_the_end(lambda: members, wanted, deadline_ms))[0]

    async def why_not_held(self) -> str | None:
        """None once a Raft group's majority has all that this leader has; else what is to be told."""
        deadline_ms = self._clock.monotonic_ms() + PREPARE_MS_MAX
        while not self._role.accepts_sends:
            if (left_ms := deadline_ms - self._clock.monotonic_ms()) <= 0:
                return "this leader has not read the tables of a majority yet; try again"
            await woken(self._news, min(left_ms, LOOK_MS))
        wanted = self._tables.version
        try:
            async with asyncio.timeout(PREPARE_MS_MAX / 1000):
                await self._tables.save_facts()
        except OSError as error:  # TimeoutError, too
            return (
                f"the tables of this leader are not on its disk: {str(error) or 'it takes long'}{cure(error)}"
            )
        agreed, lacking = await self._agreed_at_the_end(self._ha.counted_members, wanted, deadline_ms)
        if agreed:
            return None
        ids = ", ".join(map(str, lacking))
        return f"a majority must have the leader's tables first, broker {ids} lacks them; try again"

    async def _agreed_at_the_end(
        self, members: Callable[[], Iterable[int]], wanted: TablesVersion, deadline_ms: int
    ) -> tuple[bool, list[int]]:
        """Whether enough of the members, as they are then, have version `wanted`, and which do not, when enough do, the time is
        over or this broker is no master any more."""
        while True:
            others = [member for member in members() if member != self._role.broker_id]
            epoch = self._tables.version.epoch
            lacking = self._holders.lacking(others, wanted, self._hosts(), epoch)
            agreed = self._ha.agreed_without(lacking, wanted.epoch)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if agreed or left_ms <= 0 or not self._role.accepts_sends:
                return agreed, lacking
            await woken(self._news, min(left_ms, LOOK_MS))

    def _wait_ms(self) -> int:
        return min(self._settings.slave_timeout, ANSWER_MS_MAX)

    def _hosts(self) -> dict[int, str]:
        """Where connected slaves are."""
        mastership = self._ha.mastership
        connections = mastership.connections if mastership is not None else []
        return {link.slave_broker_id: host_of(link.address) for link in connections}

    # -- slaves

    def asked_as_java(self, peer: Peer, command: RemotingCommand) -> None:
        """A slave asks for delay offsets, which nobody else does: without its id, it is none of ours."""
        if SlaveHeader.from_ext(command.ext).broker_id is None:
            self._holders.polled_as_java(host_of(peer.remote_address), self._tables.version)

    def is_java(self, broker_id: int, host: str) -> bool:
        """As Holders has it."""
        return self._holders.is_java(broker_id, host)

    def version_header(self, rests_on: int | None = None) -> TablesVersionHeader:
        """What a slave is told with its master's tables, or that this is none."""
        leads = self._role.role is Role.MASTER
        return TablesVersionHeader(str(self._tables.version if leads else NO_MASTER), rests_on)

    async def _copy(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = CopyTablesHeader.from_ext(command.ext)
        if self._role.accepts_sends:
            asker = Asker(peer.remote_address, host_of(peer.remote_address), peer.own_host)
            why = await self._ha.why_not(asker, header.broker_id)
            if why is not None:
                return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why.value)
        held, tables = TablesVersion.parse(header.holds), self._tables
        deadline_ms = self._clock.monotonic_ms() + min(max(header.wait_ms, 0), COPY_WAIT_MS_MAX)
        if self._role.accepts_sends:
            self._holders.reported(header.broker_id, held, tables.version)
            self._tell()
        while self._role.accepts_sends and held == tables.version and header.place is None:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return command.reply(header=self.version_header())
            await woken(self._news, left_ms)
        if not self._role.accepts_sends:
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is not the master")
        said, body = tables.slice_for(header)
        return command.reply(header=said, body=body)

    def _tell(self) -> None:
        """Whoever waits looks again."""
        self._news.set()
        self._news = asyncio.Event()


def host_of(address: str) -> str:
    """Of host:port."""
    return address.rpartition(":")[0]
