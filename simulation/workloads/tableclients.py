"""For a set without controllers: an administrator and clients that consume in order, on a host without faults.

Invariant: T1 the master of the newest term has all changes, including deletions, that were confirmed to administrators; T2 at
the end every checked broker has them; O1 two clients never both trust that they hold one queue; O2 a lock that nobody renews
is free after a lease. Expectations come only from requests and answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from broker.app import BrokerApp
from epochfile.history import EpochHistory
from mqadmin.admin import AdminClient
from mqclient.client import Client
from mqclient.route import MessageQueue
from remoting.signing import Credentials
from simulation.checkers.factcheck import FactCheck
from simulation.cluster.looks import BrokerLook
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.workloads.accounts import signer_of
from simulation.workloads.administration import Administration
from simulation.workloads.facts import Facts
from simulation.workloads.lockingclients import LockingClients

HOST = "10.0.3.2"
ANSWERS_MIN = 3
NAMES_EACH = 2
"""Names for each request: a topic or a group of an administrator, and the group's retry topic."""


class TableClients:
    """The clients, which lock `queues`, all of one topic. `master()` is the node that leads and serves at `master_address()`.
    `kill` kills it."""

    def __init__(
        self,
        world: World,
        queues: Sequence[MessageQueue],
        name_server: str,
        *,
        master: Callable[[], Node | None],
        master_address: Callable[[], str | None],
        kill: Callable[[Node], object],
        done: Counter[str],
        credentials: Credentials | None = None,
    ) -> None:
        self.node = world.node("table clients", HOST)
        self.facts = Facts()
        self.check = FactCheck(self.facts)
        self.locks = LockingClients(
            world,
            self.node,
            queues,
            name_server,
            master=master,
            kill=kill,
            done=done,
            credentials=credentials,
        )
        self._topic = queues[0].topic
        self._name_server = name_server
        self._credentials = credentials
        self._master_address = master_address
        self._administration: Administration | None = None
        self._random = random.Random(f"{world.seed}/table clients")

    @property
    def names(self) -> int:
        """The greatest number of names that were requested."""
        return NAMES_EACH * len(self.facts.all)

    def look(self, looks: Iterable[BrokerLook]) -> None:
        """Check the master. The clients begin with the first look. Raises Violation T1, O1."""
        if self._administration is None:
            self._administration = self._begun()
        self.locks.next_step()
        self.check.look(looks)

    def forget(self) -> None:
        """Drop all answers, because what they confirmed may be lost with a store."""
        self.locks.forget()
        for fact in self.facts.all:
            fact.give_up()

    def heal(self) -> None:
        """End all faults."""
        self.locks.heal()

    def at_the_end(self, looks: Callable[[], Iterable[BrokerLook]]) -> None:
        """Check a whole set to which nobody sends any more. Raises Violation T1, T2, O1, O2."""
        assert self._administration is not None
        self.node.spawn(self._administration.stop())
        self.locks.at_the_end()
        self.check.at_the_end(looks())
        if self.facts.answers < ANSWERS_MIN or not self.locks.answered:
            answered = f"{self.facts.answers} facts and {self.locks.answered} locks were answered"
            raise Violation("T1", f"{answered}, expected {ANSWERS_MIN} and one")

    def _begun(self) -> Administration:
        chance = random.Random(self._random.getrandbits(32))
        client = Client(
            self._name_server, clock=SimulatedClock(self.node), random=chance, credentials=self._credentials
        )

        async def found(admin: AdminClient) -> str | None:
            return self._master_address()

        administration = Administration(
            client,
            self.facts,
            self._random,
            find_master=found,
            topic=self._topic,
            signer=signer_of(self._credentials),
        )

        async def begin() -> None:
            administration.start()

        self.node.spawn(begin())
        return administration


NOT_JUDGED = EpochHistory()
"""In place of the broker's history. In Raft mode it is read from the log, where it may be corrupt."""


def look_at(name: str, incarnation: int, app: BrokerApp) -> BrokerLook:
    """The state of a serving broker that is judged."""
    us = app.membership
    return BrokerLook(
        name=name, incarnation=incarnation, broker_id=us.broker_id, role=us.role, master_epoch=us.master_epoch,
        epoch=app.ha.epoch, history=NOT_JUDGED, counted=frozenset(), acked_end=0, store=app.store,
        delays=app.tables.delays, tables=app.tables, accepts_sends=us.accepts_sends,
    )  # fmt: skip
