"""The shell of Admittance: reads the controllers' table of replicas, and admits or rejects the links of slaves.

Invariant: a rejected link leaves nothing in memory but a count, and the time of the last log line for at most
`HOSTS_LOGGED_MAX` hosts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ha.counters import HACounters
from ha.errors import ReplicasUnread
from ha.frames import Handshake
from ha.master.admittance import Action, Admit, Admittance, Newcomer, Read, Refuse, Table, Why, newcomer_of
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.peercertificate import PeerCertificate
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks

HOSTS_LOGGED_MAX = 64

logger = logging.getLogger("ha.master")


class ReplicaReader(Protocol):
    """Reads the brokers of this set and the brokers' hosts."""

    async def read(self) -> Table:
        """Read the table from the controllers. Raises ReplicasUnread."""
        ...


class WaitingLink(Protocol):
    """A link that has sent its identity."""

    address: str
    own_host: str
    peer_host: str
    certificate: PeerCertificate

    def admitted(self, broker_id: int) -> None: ...
    def refused(self, why: Why) -> None: ...


@dataclass(eq=False)
class Asker:
    """A caller that claims a broker id over its own connection. The claim is checked like that of a link."""

    address: str
    peer_host: str
    own_host: str
    certificate: PeerCertificate
    answer: asyncio.Future[Why | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def admitted(self, broker_id: int) -> None:
        self.answer.set_result(None)

    def refused(self, why: Why) -> None:
        self.answer.set_result(why)


class Gate:
    """The gate; a process has one gate for all of its masterships. `tasks` runs the reads."""

    def __init__(
        self,
        replicas: ReplicaReader,
        *,
        checks_hosts: bool,
        role: str,
        clock: Clock,
        tasks: Tasks,
        counters: HACounters,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._tasks = tasks
        self._counters = counters
        self._admittance = Admittance(checks_hosts=checks_hosts, role=role)
        self._links: dict[Newcomer, WaitingLink] = {}
        self._newcomers: dict[WaitingLink, Newcomer] = {}
        self._refusals_logged: dict[str, RepeatedFailure] = {}  # by host, the newest last

    def begin(self, own_id: int) -> None:
        """Begin a mastership of this broker."""
        self._perform(self._admittance.begin(own_id, self._now_ms()))

    def come(self, link: WaitingLink, handshake: Handshake) -> None:
        """Check `link`, which has sent its handshake. Its method `admitted` or `refused` is called later."""
        newcomer = newcomer_of(
            handshake.slave_broker_id,
            link.peer_host,
            link.own_host,
            handshake.address,
            link.certificate,
        )
        self._links[newcomer], self._newcomers[link] = link, newcomer
        self._perform(self._admittance.come(newcomer, self._now_ms()))

    async def why_not(self, asker: Asker, broker_id: int) -> Why | None:
        """The reason why `asker` may not act for `broker_id`; None if it may."""
        self.come(asker, Handshake(broker_id))
        try:
            return await asker.answer
        finally:
            self.left(asker)

    def left(self, link: WaitingLink) -> None:
        """Forget a link that has ended; harmless if it never came."""
        newcomer = self._newcomers.pop(link, None)
        if newcomer is not None:
            self._links.pop(newcomer, None)
            self._admittance.left(newcomer)

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Admit(newcomer, broker_id):
                    self._checked(newcomer).admitted(broker_id)
                case Refuse():
                    self._refuse(action)
                case Read(after_ms):
                    self._tasks.start(self._read(after_ms), name="read replica table")

    def _checked(self, newcomer: Newcomer) -> WaitingLink:
        link = self._links.pop(newcomer)
        del self._newcomers[link]
        return link

    def _refuse(self, refusal: Refuse) -> None:
        newcomer, why = refusal.newcomer, refusal.why
        link = self._checked(newcomer)
        self._counters.refused_links += 1
        failure = self._refusals_logged.pop(newcomer.host, None) or RepeatedFailure()
        self._refusals_logged[newcomer.host] = failure
        if len(self._refusals_logged) > HOSTS_LOGGED_MAX:
            del self._refusals_logged[next(iter(self._refusals_logged))]
        if failure.failed(why, self._now_ms()):
            logger.warning(
                "replication link refused",
                extra=fields(
                    why=why.value,
                    slave=newcomer.address or newcomer.broker_id,
                    address=link.address,
                    registered=sorted(refusal.registered),
                ),
            )
        link.refused(why)

    async def _read(self, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1000)
        self._admittance.read_begins()
        try:
            table = await self._replicas.read()
        except ReplicasUnread as error:
            logger.debug("replica table not read", extra=fields(why=error))
            self._perform(self._admittance.table_unread(self._now_ms()))
        else:
            self._perform(self._admittance.table_read(table, self._now_ms()))

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()
