"""An operator who elects a master for a set that waits for brokers that are lost for ever.

A failed sync counts as lost memory, and the newer disk of a member whose disk was set back is gone. If the last intact members
lose their stores, and syncs of the other members fail, more is lost than any contract tolerates. Controllers then elect nobody
by themselves, because a lost store might come back.

Invariant: the operator acts only if a controller has logged that the set waits and which broker may be elected, every broker
of the set runs, each electable broker reports that it may be missing data, and no fault holds a broker back. Acknowledged data
is there nevertheless, because a process that ends takes nothing from its log. So all checks stay as strict."""

from __future__ import annotations

from collections.abc import Callable

from controller.elections import WaitingReason
from controller.masterless import Unelected
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.controller import ElectMasterHeader
from simulation.cluster.looks import CLUSTER
from simulation.cluster.members import BROKER_SET, CONTROLLER_PORT, LOST_FOR_GOOD_HOST
from simulation.faults.fault import Fault

AGAIN_MS = 3_000
ANSWER_MS_MAX = 3_000

Tell = Callable[[Unelected, str, WaitingReason], None]
log = Unelected.log


class LostForGood(Fault):
    """Acts when needed, and sends from a host without faults."""

    name = "elected by an operator, for who is missing is lost"
    waiting: WaitingReason | None = None
    """The last report of a controller."""
    again_ms = 0

    def noting(self) -> Tell:
        """Make Unelected.log record its calls here."""

        def noted(unelected: Unelected, broker_name: str, waiting: WaitingReason) -> None:
            self.waiting = waiting
            log(unelected, broker_name, waiting)

        return noted

    def next_step(self) -> None:
        waiting = self.waiting
        if waiting is None or self.world.now_ms < self.again_ms:
            return
        if self.machines.master() is not None:
            self.waiting = None
        elif waiting.best is not None and self.are_lost(waiting.missing, waiting.set_back):
            self.again_ms = self.world.now_ms + AGAIN_MS
            self.elect(waiting.best)

    def are_lost(self, missing: frozenset[int], set_back: frozenset[int]) -> bool:
        machines = self.machines
        looks = {look.broker_id: look for look in machines.broker_looks() if not look.is_learner}
        everybody = len(looks) == len(machines.brokers) and None not in looks
        electable = machines.check.electable
        return (
            everybody
            and bool(missing or set_back)
            and not missing & looks.keys()
            and all(look.may_miss for broker_id, look in looks.items() if broker_id in electable)
        )

    def elect(self, broker_id: int) -> None:
        leader = self.machines.leader()
        if leader is None:
            return
        nodes = self.world.nodes
        node = nodes.get(self.name) or self.world.node(self.name, LOST_FOR_GOOD_HOST)
        header = ElectMasterHeader(BROKER_SET, CLUSTER, broker_id, True)
        command = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)

        async def ask() -> None:
            client = RemotingClient(clock=node.runtime().clock, signer=self.machines.signer)
            try:
                await client.call(f"{leader.host}:{CONTROLLER_PORT}", command, ANSWER_MS_MAX)
                self.count()
            except RemotingError:
                self.machines.done["operator not answered"] += 1
            await client.close()

        node.spawn(ask())
