"""Replication of metadata: changes of topics and groups by administrators, and their copies to slaves (COPY_TABLES).

Invariant: a change is answered with success only when it is on this broker's disk and every member of the SyncStateSet, applied
or proposed, has reported it as stored. In Raft mode a majority of the voters must have reported it, in this leader's term. A
replica stores the change before it enters the set. While the set is too small to acknowledge messages, other brokers may be
elected, so no change succeeds. An answer without success reports how far the change got. A slave's request waits for a version
that the slave is missing. The request counts for the broker that it names only if a replication link of that broker would be
accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from broker.role.events import RoleTaken
from broker.role.membership import Membership, ReplicaRole
from broker.settings.broker import BrokerSettings
from broker.tables.holders import NO_MASTER, Holders, TablesVersion
from broker.tables.tables import Tables
from ha.master.gate import Asker
from ha.service.replication import Replication
from mqruntime.clock import Clock
from mqruntime.diskfull import cure
from mqruntime.waking import wait_event
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.group import CopyTablesHeader, SlaveHeader, TablesVersionHeader
from remoting.peer import Peer
from remoting.router import Router

ANSWER_MS_MAX = 2_000
"""Administrators wait 3 s or 5 s, and should get the known state by then."""
COPY_WAIT_MS_MAX = 10_000
PREPARE_MS_MAX = 1_000
"""The wait before a change of voters. The operator waits 3 s in all."""
LOOK_MS = 200
"""The interval at which the set is checked, because it may have shrunk."""
LEASE_MS = 800
"""So long after it followed a master with its tables a slave knows the present users and policies, and so long after all
possible successors followed it a master does."""
SURE_MS = 50
"""So long a master relies on what it found out."""


class MetadataReplication:
    """The replication. `settings.slave_timeout` limits every wait for slaves, and may change while the broker runs."""

    def __init__(
        self,
        tables: Tables,
        role: Membership,
        ha: Replication,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        self._tables = tables
        self._role = role
        self._ha = ha
        self._settings = settings
        self._clock = clock
        self._holders = Holders()
        self._life = clock.now_ms()
        """Names this process in the moments of answers."""
        self.on_followed: Callable[[], None] = lambda: None
        """Called when a slave has asked this master for its tables."""
        self._sure = (0, 0)
        """The epoch, and until when (monotonic ms), in which this master is sure to lead."""
        self._role_taken_ms = 0
        self._news = asyncio.Event()  # replaced by a new event when it was set
        tables.on_facts_changed(self._wake_all)

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.COPY_TABLES, self._copy)

    def role_taken(self, taken: RoleTaken) -> None:
        self._role_taken_ms, self._sure = self._clock.monotonic_ms(), (0, 0)

    @property
    def is_sure(self) -> bool:
        """Whether this broker is master, and no other broker led LEASE_MS ago: all members of the SyncStateSet, in Raft mode a
        majority, followed this master since. While the set is too small to acknowledge messages, other brokers may lead."""
        if self._role.role is not ReplicaRole.MASTER:
            return False
        now_ms, epoch = self._clock.monotonic_ms(), self._tables.version.epoch
        if self._sure[0] == epoch and now_ms < self._sure[1]:
            return True
        others = [member for member in self._ha.counted_members() if member != self._role.broker_id]
        silent = self._holders.silent(others, now_ms - LEASE_MS, self._hosts(), epoch)
        is_sure = self._ha.agreed_without(silent, epoch) and self._ha.may_confirm()
        if is_sure:
            self._sure = epoch, now_ms + SURE_MS
        return is_sure

    # -- administrators

    async def change_everywhere(
        self, command: RemotingCommand, what: str, make: Callable[[], None]
    ) -> RemotingCommand:
        """Like `change`, and answer only when no broker of the set acts on what was before: each slave has the change, or its
        lease is over, as is that of a former master and its slaves."""
        made_ms, taken_ms = self._clock.monotonic_ms(), self._role_taken_ms
        answer = await self.change(command, what, make)
        wanted = self._tables.version
        while answer.code == ResponseCode.SUCCESS:
            now_ms = self._clock.monotonic_ms()
            leads = self._role.accepts_sends and self._tables.version.epoch == wanted.epoch
            has_all = leads and not self._holders.behind(wanted, made_ms - LEASE_MS)
            until_ms = max(taken_ms + 2 * LEASE_MS, 0 if has_all else made_ms + LEASE_MS)
            if now_ms >= until_ms:
                break
            await wait_event(self._news, min(until_ms - now_ms, LOOK_MS))
        return answer

    async def change(self, command: RemotingCommand, what: str, make: Callable[[], None]) -> RemotingCommand:
        """Carry out a request by `make`, and answer once the replicas have the change. `what` names the change in remarks."""
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
        except TimeoutError:  # this is an OSError too
            why = f"{what} is not on this broker's disk after {wait_ms} ms; try again"
            return command.reply(ResponseCode.SYSTEM_ERROR, why)
        except OSError as error:
            why = f"{what} is not on this broker's disk: {error}{cure(error)}; then try again"
            return command.reply(ResponseCode.SYSTEM_ERROR, why)
        agreed, missing = await self._agreed_at_the_end(self._ha.counted_members, wanted, deadline_ms)
        if not role.accepts_sends or not (agreed or missing):
            why = f"this broker is not the master any more; the next one may not know the change: {what}"
            return command.reply(ResponseCode.SYSTEM_ERROR, why)
        if not agreed:
            ids = ", ".join(map(str, missing))
            why = f"{what} is stored here, not yet on broker {ids} after {wait_ms} ms; try again"
            return command.reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, why)
        while not self._ha.may_confirm():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or not role.accepts_sends:
                why = f"{what} is stored here; too few replicas are in sync, and one that is not may be elected; try again"
                return command.reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, why)
            await wait_event(self._news, min(left_ms, LOOK_MS))
        return command.reply()

    async def change_in_steps(
        self, command: RemotingCommand, what: str, steps: Sequence[Callable[[], None]]
    ) -> RemotingCommand:
        """Like `change`, for one or more `steps`; other tasks run between the steps."""
        for step in steps[:-1]:
            if not self._role.accepts_sends:
                break
            step()
            await asyncio.sleep(0)
        return await self.change(command, what, steps[-1])

    async def replicated_to(self, members: frozenset[int]) -> bool:
        """Whether these brokers hold all changes acknowledged until now. Waits for this for a limited time."""
        deadline_ms = self._clock.monotonic_ms() + self._wait_ms()
        wanted = self._tables.version
        return (await self._agreed_at_the_end(lambda: members, wanted, deadline_ms))[0]

    async def why_not_replicated(self) -> str | None:
        """The reason why no majority of the Raft group has all of this leader's tables; None if a majority has them."""
        deadline_ms = self._clock.monotonic_ms() + PREPARE_MS_MAX
        while not self._role.accepts_sends:
            if (left_ms := deadline_ms - self._clock.monotonic_ms()) <= 0:
                return "this leader has not read the tables of a majority yet; try again"
            await wait_event(self._news, min(left_ms, LOOK_MS))
        wanted = self._tables.version
        try:
            async with asyncio.timeout(PREPARE_MS_MAX / 1000):
                await self._tables.save_facts()
        except OSError as error:  # a TimeoutError is an OSError
            return (
                f"the tables of this leader are not on its disk: {str(error) or 'it takes long'}{cure(error)}"
            )
        agreed, missing = await self._agreed_at_the_end(self._ha.counted_members, wanted, deadline_ms)
        if agreed:
            return None
        ids = ", ".join(map(str, missing))
        return f"a majority must have the leader's tables first, broker {ids} is missing them; try again"

    async def _agreed_at_the_end(
        self, members: Callable[[], Iterable[int]], wanted: TablesVersion, deadline_ms: int
    ) -> tuple[bool, list[int]]:
        """Wait until enough of the present members have version `wanted`, or until the time is over or this broker is not
        master any more. Returns whether enough members have the version, and the members that do not have it."""
        while True:
            others = [member for member in members() if member != self._role.broker_id]
            epoch = self._tables.version.epoch
            missing = self._holders.missing(others, wanted, self._hosts(), epoch)
            agreed = self._ha.agreed_without(missing, wanted.epoch)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if agreed or left_ms <= 0 or not self._role.accepts_sends:
                return agreed, missing
            await wait_event(self._news, min(left_ms, LOOK_MS))

    def _wait_ms(self) -> int:
        return min(self._settings.slave_timeout, ANSWER_MS_MAX)

    def _hosts(self) -> dict[int, str]:
        """The hosts of connected slaves."""
        mastership = self._ha.mastership
        connections = mastership.connections if mastership is not None else []
        return {link.slave_broker_id: host_of(link.address) for link in connections}

    # -- slaves

    def asked_as_java(self, peer: Peer, command: RemotingCommand) -> None:
        """Record a slave that requests delay offsets without its id. Only a Java slave does this."""
        if SlaveHeader.from_ext(command.ext).broker_id is None:
            self._holders.polled_as_java(host_of(peer.remote_address), self._tables.version)

    def is_java(self, broker_id: int, host: str) -> bool:
        """See Holders.is_java."""
        return self._holders.is_java(broker_id, host)

    def version_header(self, rests_on: int | None = None, *, is_sure: bool = False) -> TablesVersionHeader:
        """The version that a slave gets with its master's tables; NO_MASTER if this broker is not the master."""
        leads = self._role.role is ReplicaRole.MASTER
        version = str(self._tables.version if leads else NO_MASTER)
        return TablesVersionHeader(version, rests_on, is_sure=is_sure)

    async def _copy(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = CopyTablesHeader.from_ext(command.ext)
        if self._role.accepts_sends:
            asker = Asker(peer.remote_address, host_of(peer.remote_address), peer.own_host, peer.certificate)
            why = await self._ha.why_not(asker, header.broker_id)
            if why is not None:
                return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why.value)
        held, tables = TablesVersion.parse(header.holds), self._tables
        deadline_ms = self._clock.monotonic_ms() + min(max(header.wait_ms, 0), COPY_WAIT_MS_MAX)
        if self._role.accepts_sends:
            now_ms, followed_ms = self._clock.monotonic_ms(), self._answered_ms(header.answered)
            self._holders.reported(header.broker_id, held, tables.version, now_ms, followed_ms)
            self.on_followed()
            self._wake_all()
        while self._role.accepts_sends and held == tables.version and header.place is None:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                said = self.version_header(is_sure=self.is_sure)
                said.moment = self._moment()
                return command.reply(header=said)
            await wait_event(self._news, left_ms)
        if not self._role.accepts_sends:
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is not the master")
        said, body = tables.slice_for(header)
        said.is_sure, said.moment = self.is_sure, self._moment()
        return command.reply(header=said, body=body)

    def _moment(self) -> str:
        return f"{self._life}.{self._clock.monotonic_ms()}"

    def _answered_ms(self, moment: str | None) -> int | None:
        """When this process sent the answer of that `moment`; None for an answer of another process."""
        life, _, sent_ms = (moment or "").partition(".")
        if life != str(self._life) or not (sent_ms.isascii() and sent_ms.isdigit()):
            return None
        return min(int(sent_ms[:20]), self._clock.monotonic_ms())

    def _wake_all(self) -> None:
        """Wake all waiting requests."""
        self._news.set()
        self._news = asyncio.Event()


def host_of(address: str) -> str:
    """The host of host:port."""
    return address.rpartition(":")[0]
