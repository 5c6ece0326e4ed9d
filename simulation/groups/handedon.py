"""The most difficult cases in which a Raft-mode set's tables (topics, groups, offsets, locks) pass from one leader to the next.
A former leader's copy comes late. The member with the newest tables restarts while another member has older ones. A leader dies
when it has renewed a client's lock for long. Members lose their connections with each other again and again.

Invariant: no other fault happens meanwhile, so each scene comes to its end. Rules T1 and O1 are those of
simulation.workloads.tableclients."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable

from mqclient.client import Client
from mqclient.errors import LockFailed
from mqclient.queuelocks import RENEW_MS, QueueLocks
from mqclient.route import MessageQueue
from remoting.codes import ResponseCode
from remoting.errors import NotSent, RemotingError
from remoting.signing import Credentials
from simulation.checkers.factcheck import FactCheck
from simulation.cluster.looks import BrokerLook
from simulation.groups.clients import SINGLE
from simulation.groups.members import BROKER_PORT, BROKER_SET, NAMESRV, RAFT_PORT
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.workloads.administration import ANSWER_MS_MAX, VALUE_MAX, request
from simulation.workloads.facts import Fact, Facts
from simulation.workloads.lockingclients import GROUP, LEASE_MS, LockingClients

HOST = "10.0.3.4"
LATE_COPIES = 3
"""How many such scenes are played. In each the voter may be elected itself, and then copies no member's tables."""
ASK_GAP_MS = 5
ASKS_MAX = 10
LIMIT_MS = 40_000
SETTLED_MS = 1_000
BACK_SOON_MS, BACK_LATE_MS = 100, 6_000
QUEUE = MessageQueue(SINGLE, BROKER_SET, 0)
LOST_LINKS, LOST_EACH_MS = 5, 1_500


class HandedOn:
    """Plays the scenes. `master()` is the node that leads, and serves at `master_address()`. `end(node, back_ms)` ends a node
    for so long. `caught_up()` says whether all nodes run and show the same."""

    def __init__(
        self,
        world: World,
        nodes: list[Node],
        *,
        master: Callable[[], Node | None],
        master_address: Callable[[], str | None],
        end: Callable[[Node, int], object],
        caught_up: Callable[[], bool],
        done: Counter[str],
        credentials: Credentials | None = None,
    ) -> None:
        self.facts = Facts()
        self._check = FactCheck(self.facts)
        self._world = world
        self._nodes = nodes
        self._node = world.node("witness", HOST)
        self._master = master
        self._master_address = master_address
        self._end = end
        self._caught_up = caught_up
        self._done = done
        self._random = random.Random(f"{world.seed}/handed on")
        self._clients = LockingClients(
            world, self._node, [QUEUE], NAMESRV,
            master=master, kill=lambda node: None, done=done, credentials=credentials,
        )  # fmt: skip

    def look(self, looks: Iterable[BrokerLook]) -> None:
        """Raises Violation T1, O1."""
        self._check.look(looks)
        if self._clients.violation is not None:
            raise self._clients.violation

    def play(self) -> None:
        """Play all scenes, while messages are sent."""
        for _ in range(LATE_COPIES):
            self._copies_come_late()
        self._newest_starts_again()

    def _copies_come_late(self) -> None:
        """A leader gets no more Raft messages, but still acts for a while, and one change after the other is requested from
        it. One of the electors of the next leader still copies its tables."""
        leader, (votes, other) = self._settled()
        self._world.network.cut(leader.host, other.host)
        self._world.network.stall(leader.host, votes.host, RAFT_PORT)
        asking = self._begin(self._ask_on(f"{leader.host}:{BROKER_PORT}"))
        self._until(lambda: self._master() not in (None, leader), "no other leads")
        self._world.run_for_ms(SETTLED_MS)
        self._world.network.heal()
        self._until(asking.is_set, "a request has no end")
        self._done["copies of a former leader"] += 1

    async def _ask_on(self, address: str) -> None:
        """Request changes of two names in turn until one is not answered. The outcome of the last change is then unknown, and
        the other name stays."""
        two = self.facts.add("topic"), self.facts.add("topic")
        async with self._clients.client() as client:
            asked = 0
            while await self._changed(client, two[asked % 2], address, 1 + asked % VALUE_MAX):
                asked += 1
                await asyncio.sleep(ASK_GAP_MS / 1000)

    async def _changed(self, client: Client, fact: Fact, address: str, value: int) -> bool:
        """Whether the change was answered."""
        fact.asked(value)
        try:
            reply = await client.remoting.call(address, request(fact, value), ANSWER_MS_MAX)
        except NotSent:
            fact.refused()
            return False
        except RemotingError:
            return False
        if reply.code == ResponseCode.SUCCESS:
            fact.answered()
        elif reply.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            fact.refused()
        return reply.code == ResponseCode.SUCCESS

    def _newest_starts_again(self) -> None:
        """One elector of the next leader has the newest tables and has just restarted. The other elector got no copy of these
        tables."""
        leader, (newest, outdated) = self._settled()
        self._world.network.stall(leader.host, outdated.host, BROKER_PORT)
        self._until(self._begin(self._ask_once()).is_set, "a request has no end")
        self._end(leader, BACK_LATE_MS)
        self._end(newest, BACK_SOON_MS)
        self._until(lambda: self._master() not in (None, leader), "no other leads")
        self._world.network.heal()
        self._world.run_for_ms(SETTLED_MS)
        self._done["newest tables restarted"] += 1

    async def _ask_once(self) -> None:
        fact = self.facts.add("topic")
        async with self._clients.client() as client:
            await self._changed(client, fact, self._master_address() or "", 1)

    def lease(self) -> None:
        """A client renews its lock for longer than a lease. Then the leader dies, and another client requests the lock from
        the next leader."""
        self._until(self._caught_up, "the set has not caught up")
        leader = self._master()
        assert leader is not None
        end_ms = self._world.now_ms + LEASE_MS + 2 * RENEW_MS
        self._until(self._begin(self._hold(end_ms)).is_set, "the holder has no end", 2 * LEASE_MS)
        self._end(leader, BACK_LATE_MS)
        self._until(lambda: self._master() not in (None, leader), "no other leads")
        self._until(self._begin(self._want()).is_set, "a reader has no end")
        self._done["lease of a former leader"] += 1

    async def _hold(self, end_ms: int) -> None:
        async with self._clients.client() as client:
            holder = self._locks(client)
            while self._world.now_ms < end_ms:
                await self._ask_for_it(holder)
                await asyncio.sleep(RENEW_MS / 1000)
            await self._ask_for_it(holder)

    async def _want(self) -> None:
        async with self._clients.client() as client:
            await self._ask_for_it(self._locks(client))

    async def _ask_for_it(self, locks: QueueLocks) -> None:
        """Request the lock until a master has answered."""
        for _ in range(ASKS_MAX):
            try:
                await self._clients.ask(locks, [QUEUE])
                return
            except LockFailed:
                await asyncio.sleep(0.2)
        raise Violation("O1", f"no master answers a request for {QUEUE}")

    def _locks(self, client: Client) -> QueueLocks:
        return client.locks(GROUP, self._clients.new_name())

    def lose_links(self) -> None:
        """The leader forgets its connections with a follower, which does not notice it, and makes new connections."""
        leader, (follower, _) = self._settled()
        for _ in range(LOST_LINKS):
            self._world.network.half_open(leader.host, follower.host)
            self._world.run_for_ms(LOST_EACH_MS)
        self._done["connections lost in a row"] += 1

    def _settled(self) -> tuple[Node, list[Node]]:
        """The leader, and the other members in any order."""
        self._until(self._caught_up, "the set has not caught up")
        self._world.run_for_ms(SETTLED_MS)
        leader = self._master()
        assert leader is not None, "nothing breaks"
        return leader, self._random.sample([node for node in self._nodes if node is not leader], 2)

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Event:
        """Start `work`. The returned event is set when `work` has ended."""
        ended = asyncio.Event()

        async def run() -> None:
            await work
            ended.set()

        self._node.spawn(run())
        return ended

    def _until(self, holds: Callable[[], bool], why_not: str, limit_ms: int = LIMIT_MS) -> None:
        end_ms = self._world.now_ms + limit_ms
        while not holds():
            if self._world.now_ms > end_ms:
                raise Violation("G6", f"{why_not} after {limit_ms} ms")
            self._world.run_for_ms(20)
