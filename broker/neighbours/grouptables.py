"""The tables of a Raft group. A new leader reads the members' tables before it becomes their master.

The tables are a register next to the log [as in ABD]. Each version has the term of the leader that made it, and every member
keeps the newest version that it received. A new leader asks a majority (READ_TABLES) and uses the newest version. A leader
acknowledges a change once a majority has stored it with the leader's term. So every other majority has a member with this
change or a later one.

Invariant: a member answers the leader of a term only once this term is on its own disk. From then on it rejects copies of older
leaders, even after a restart. A recovering member, which may have forgotten the term and the tables, does not count. A member
without tables, or with tables of a disk that was set back, counts only if all voters have answered."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from broker.tables.holders import TablesVersion
from broker.tables.rowchanges import Named
from broker.tables.stamp import OLDEST, CopyStamp
from broker.tables.tables import Tables
from ha.errors import EpochFenced
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.waking import wait_event
from raftstore.member import Member
from remoting.bodies.tables import TablesCopy
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.headers.group import ReadTablesHeader, TablesVersionHeader
from remoting.peer import Peer

logger = logging.getLogger("broker.grouptables")

TIMEOUT_MS = 5_000
"""Timeout of one request; large tables take long. Once a majority has answered, the leader does not wait for the others."""
AGAIN_MS = 50
LOOK_MS = 50
WARN_MS = 3_000
"""After this time without a majority the leader logs a warning."""


@dataclass
class Answers:
    """The answers of members to the leader of one term."""

    versions: dict[str, TablesVersion | None] = field(default_factory=dict)
    newest: tuple[TablesVersion, TablesCopy, int] | None = None
    """The newest version, its tables, and the process of the leader that made the version (0 if the member does not know)."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(
        self, member: str, version: TablesVersion | None, copy: TablesCopy | None, named: str | None = None
    ) -> None:
        self.versions[member] = version
        if version is not None and copy is not None and (self.newest is None or version > self.newest[0]):
            by = Named.parse(named)
            self.newest = version, copy, by.life if by is not None and by.version == version else 0
        self.news.set()


class GroupTables:
    """The tables of the broker whose Raft member is `member`."""

    def __init__(self, member: Member, tables: Tables, clock: Clock) -> None:
        self._member = member
        self._tables = tables
        self._clock = clock
        member.router.add(RequestCode.READ_TABLES, self._read_tables)
        member.on_forgetful(tables.stamp.lost)

    @property
    def _stamp(self) -> CopyStamp:
        """The version of the tables. A version with a term above this group's term came with another group's files and is
        dropped."""
        stamp = self._tables.stamp
        if stamp.version is not None and stamp.version.epoch > self._member.term and self._member.counts:
            logger.warning(
                "tables of another group", extra=fields(version=stamp.version, term=self._member.term)
            )
            stamp.disown()
        return stamp

    # -- copies of a member, and its answers

    def may_take(self, version: TablesVersion) -> bool:
        """Whether this member may accept a copy of this version: it has not given an older version to the leader of a later
        term."""
        return self._member.term <= version.epoch and self._stamp.may_take(version)

    def may_report(self, version: TablesVersion) -> bool:
        """Whether the leader that made this version may count this member."""
        return self._member.is_bound_to(version.epoch)

    def _read_tables(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = ReadTablesHeader.from_ext(command.ext)
        if header.group is not None and (header.group, header.member) != (
            self._member.group,
            self._member.self_id,
        ):
            why = f"this is {self._member.self_id} of group {self._member.group}"
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        if not self._member.is_bound_to(header.term):
            why = f"this member is not, or not durably, in term {header.term}"
            return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        version, known = self._stamp.version, TablesVersion.parse(header.holds)
        is_news = version is not None and (known is None or version > known)
        exact = self._tables.changes.exact
        answer = TablesVersionHeader(
            None if version is None else str(version), named=None if exact is None else str(exact)
        )
        return command.reply(header=answer, body=self._tables.copy().encode() if is_news else None)

    # -- requests of a leader

    async def read_majority(self, term: int) -> None:
        """Copy the newest tables of a majority. Raises EpochFenced if this member does not lead `term` any more."""
        answers = Answers()
        asking: dict[str, asyncio.Task[None]] = {}
        warn_ms = self._clock.monotonic_ms() + WARN_MS
        try:
            while not self._is_enough(answers):
                if not self._leads(term):
                    raise EpochFenced(term, max(self._member.term, term + 1))
                for member in sorted(self._others() - asking.keys()):
                    asking[member] = asyncio.create_task(
                        self._ask(member, term, answers), name=f"read tables of {member}"
                    )
                answers.news.clear()
                await wait_event(answers.news, LOOK_MS)
                if warn_ms <= self._clock.monotonic_ms():
                    warn_ms = self._clock.monotonic_ms() + 10 * WARN_MS
                    self._warn(term, answers)
        finally:
            for task in asking.values():
                task.cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)
        if not self._leads(term):
            raise EpochFenced(term, max(self._member.term, term + 1))
        if answers.newest is not None:
            version, copy, life = answers.newest
            if version != self._stamp.version and self._stamp.may_take(version):
                self._tables.adopt(copy, version, life)
                logger.info("tables of a member are newer", extra=fields(version=version, term=term))

    def _leads(self, term: int) -> bool:
        return self._member.leads and self._member.term == term

    def _others(self) -> set[str]:
        return set(self._member.voters() - {self._member.self_id})

    def _is_enough(self, answers: Answers) -> bool:
        own = {self._member.self_id: self._stamp.version} | answers.versions
        with_tables = [member for member, version in own.items() if version is not None]
        return self._member.is_majority(with_tables) or self._member.voters() <= own.keys()

    async def _ask(self, member: str, term: int, answers: Answers) -> None:
        """Ask one member for its tables until it answers."""
        while True:
            own = self._stamp.version
            header = ReadTablesHeader(term, None if own is None else str(own), self._member.group, member)
            try:
                reply = await self._member.ask(
                    member, RemotingCommand.request(RequestCode.READ_TABLES, header), TIMEOUT_MS
                )
                if reply.code == ResponseCode.SUCCESS:
                    said = TablesVersionHeader.from_ext(reply.ext)
                    copy = TablesCopy.decode(reply.body) if reply.body else None
                    answers.take(member, TablesVersion.parse(said.tables_version), copy, said.named)
                    return
                if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # a release without versions
                    answers.take(member, OLDEST, None)
                    return
            except (RemotingError, HeaderError, BodyError) as error:
                logger.debug("a member does not send its tables: %s", error)
            await asyncio.sleep(AGAIN_MS / 1000)

    def _warn(self, term: int, answers: Answers) -> None:
        said = {member: str(version) for member, version in sorted(answers.versions.items())}
        logger.warning(
            "leads, but is not master yet: a majority of the members that have tables, or all members, must answer",
            extra=fields(term=term, own=self._tables.stamp.version, answered=said),
        )
