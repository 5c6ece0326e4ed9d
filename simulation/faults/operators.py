"""An operator who works during faults. It moves the master, forgets replaced brokers, and tries to forget living brokers. After
an unclean election it permits a replica to truncate confirmed records, which no replica does by itself.

Invariant: the operator gives up only data that the contract allows the cluster to lose. Controllers never carry out a request
that they must reject."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from broker.role.membership import ReplicaRole
from mqruntime.clock import Clock
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.controller import CleanBrokerDataHeader, ElectMasterHeader
from simulation.cluster.looks import CLUSTER, BrokerLook, broker_on, id_on_disk
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, BROKER_SET, CONTROLLER_PORT
from simulation.faults.fault import Fault
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

FIRST_MS = (5_000, 12_000)
BETWEEN_MS = (1_000, 6_000)
WORD_MS = 3_000
ANSWER_MS_MAX = 3_000
ATTEMPTS = 8
NOBODY = -1


class Operator(Fault):
    """An independent actor with its own random generator, which sends from a host without faults."""

    name = "operator"

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/operator")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)
        self.word_due_ms = 0
        self.words = 0
        self.forgotten: set[int] = set()
        """Broker ids that a controller reported as forgotten."""
        self.violation: Violation | None = None

    def next_step(self) -> None:
        """Raises Violation."""
        if self.violation is not None:
            raise self.violation
        now_ms = self.world.now_ms
        if self.machines.check.forked and now_ms >= self.word_due_ms:
            self.word_due_ms = now_ms + WORD_MS
            self.give_word()
            self.empty_what_has_nothing_in_common()
        if self.due_ms is not None and now_ms >= self.due_ms:
            self.due_ms = now_ms + self.random.randint(*BETWEEN_MS)
            draw = self.random.random()
            if draw < 0.4:
                self.elect(self.random.choice(self.known_ids()), designate=True)
            elif draw < 0.6:
                self.elect(NOBODY, designate=False)
            elif draw < 0.85:
                self.clean_living()
            else:
                self.replace()

    def heal(self) -> None:
        self.due_ms = None

    def at_the_end(self) -> None:
        """Check that a forgotten broker stays forgotten. Raises Violation."""
        for look in self.machines.controller_looks():
            if look.raft.is_active and (known := self.forgotten & look.known_ids):
                raise Violation(
                    "B2", f"brokers {sorted(known)} were forgotten, and {look.raft.self_id} knows them"
                )

    # What the operator requests

    def elect(self, broker_id: int, *, designate: bool) -> None:
        if designate:
            if self.knows_it_incomplete(broker_id):
                return
            self.machines.asked_for_ms[broker_id] = self.world.now_ms
        header = ElectMasterHeader(BROKER_SET, CLUSTER, broker_id, designate)
        self.begin(
            self.ask_leader(RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)),
            "master moved" if designate else "master asked for",
        )

    def knows_it_incomplete(self, broker_id: int) -> bool:
        """Whether controllers have logged that the broker's memory or disk lost something. An operator who elects such a broker
        accepts the loss if no better broker is alive."""
        forgetful = {id_on_disk(self.world.nodes[name]) for name in self.machines.check.forgetful}
        return broker_id in forgetful and not self.machines.check.grants.unclean_allowed

    def clean_living(self) -> None:
        """Try to forget a broker whose heartbeats every controller receives."""
        look = broker_on(self.random.choice(self.machines.brokers))
        if look is not None and look.broker_id is not None and self.is_known_alive(look):
            self.begin(self.try_to_clean(look), "living broker to be forgotten")

    def replace(self) -> None:
        """A slave loses its store, and its id is forgotten once it has left the set."""
        node = self.random.choice(self.machines.brokers)
        if node is not self.machines.master() and (broker_id := self.machines.can_lose(node)) is not None:
            self.machines.kill(node)
            self.machines.losing[node.name] = broker_id, lambda: self.wipe(node, broker_id)

    def wipe(self, node: Node, broker_id: int) -> None:
        node.disk.wipe()
        self.begin(self.clean(broker_id), "broker replaced")

    def give_word(self) -> None:
        """Permit all slaves to truncate records that were confirmed once. A permission can be used only once, so each call
        writes a new one."""
        self.words += 1
        body = f"allowTruncationTo={self.words}\n".encode()
        for look in self.machines.broker_looks():
            host = self.world.nodes[look.name].host
            command = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, None, body)
            if look.broker_id != self.newest_master():
                self.begin(self.ask(f"{host}:{BROKER_PORT}", command), "operator's word")

    def empty_what_has_nothing_in_common(self) -> None:
        """Empty a replica that reports that its log shares no epoch with the master's, and asks to be emptied."""
        looks = self.machines.broker_looks()
        master = next((look for look in looks if look.broker_id == self.newest_master()), None)
        if master is None or master.role is not ReplicaRole.MASTER or not len(master.history):
            return
        for look in looks:
            follows = look.role is ReplicaRole.SLAVE and look.master_epoch == master.master_epoch
            if follows and len(look.history) and not {*look.history} & {*master.history}:
                node = self.world.nodes[look.name]
                self.machines.kill(node)
                node.disk.wipe()
                self.machines.done["store emptied after an unclean election"] += 1

    # How it sends requests

    def begin(self, asking: Coroutine[Any, Any, object], what: str) -> None:
        async def run() -> None:
            await asking

        self.machines.done[what] += 1
        self.node.spawn(run())

    async def try_to_clean(self, look: BrokerLook) -> None:
        reply = await self.ask_leader(clean_request(str(look.broker_id)))
        if reply is not None and reply.code == ResponseCode.SUCCESS and self.is_known_alive(look):
            self.violation = Violation("B2", f"{look.name} was forgotten, though it lives")

    async def clean(self, broker_id: int) -> None:
        """Repeat the request until a controller has answered."""
        for _ in range(ATTEMPTS):
            reply = await self.ask_leader(clean_request(str(broker_id)))
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.forgotten.add(broker_id)
                return

    async def ask_leader(self, command: RemotingCommand) -> RemotingCommand | None:
        leader = self.machines.leader() or self.random.choice(self.machines.controllers)
        return await self.ask(f"{leader.host}:{CONTROLLER_PORT}", command)

    async def ask(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        """Send a request; None if no answer came."""
        client = RemotingClient(clock=self.clock, signer=self.machines.signer)
        reply = None
        with suppress(RemotingError):
            reply = await client.call(address, command, ANSWER_MS_MAX)
        await client.close()
        return reply

    @property
    def clock(self) -> Clock:
        return self.node.runtime().clock

    # What it sees

    def known_ids(self) -> list[int]:
        ids = {broker_id for look in self.machines.controller_looks() for broker_id in look.known_ids}
        return sorted(ids) or [NOBODY]

    def is_known_alive(self, look: BrokerLook) -> bool:
        """Whether this process runs and each controller gets its heartbeats."""
        node, controllers = self.world.nodes[look.name], self.machines.controller_looks()
        return (
            node.running
            and node.incarnation == look.incarnation
            and look.broker_id is not None
            and len(controllers) == len(self.machines.controllers)
            and all(controller.takes_for_alive(look.broker_id) for controller in controllers)
        )

    def newest_master(self) -> int | None:
        master_of = self.machines.check.grants.master_of
        return master_of[max(master_of)] if master_of else None


def clean_request(ids: str) -> RemotingCommand:
    return RemotingCommand.request(
        RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataHeader(BROKER_SET, CLUSTER, ids)
    )
