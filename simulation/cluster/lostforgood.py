"""An operator who answers for brokers that are lost for good, where their set waits for them.

A failed sync counts as memory lost, and the newer disk of a member that was set back is gone. Where the last members that are
whole lose their stores and those that are left their syncs, more was lost than any contract bears, and nobody is elected by
himself: the store might come back.

Invariant: the operator speaks only when a controller has told that the set waits and whom it may elect, every broker of the
set runs, each of those that may be elected says that it may lack something, and those that are waited for are none of them.
What was acknowledged is there all the same, for a process that ends takes nothing from its log: so nothing is judged less."""

from __future__ import annotations

from collections.abc import Callable

from controller.elections import Waiting
from controller.unelected import Unelected
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.controller import ElectMasterHeader
from simulation.cluster.fault import Fault
from simulation.cluster.looks import CLUSTER
from simulation.cluster.members import BROKER_SET, CONTROLLER_PORT, LOST_FOR_GOOD_HOST

AGAIN_MS = 3_000
ANSWER_MS_MAX = 3_000

Tell = Callable[[Unelected, str, Waiting], None]
log = Unelected.log


class LostForGood(Fault):
    """Comes where it is needed, and asks from a host that nothing befalls."""

    name = "elected by an operator, for who is missing is lost"
    waiting: Waiting | None = None
    """What a controller has told last."""
    again_ms = 0

    def noting(self) -> Tell:
        """Unelected.log, with its calls recorded."""

        def told(unelected: Unelected, broker_name: str, waiting: Waiting) -> None:
            self.waiting = waiting
            log(unelected, broker_name, waiting)

        return told

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
            and all(look.may_lack for broker_id, look in looks.items() if broker_id in electable)
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
            client = RemotingClient(clock=node.runtime().clock)
            try:
                await client.call(f"{leader.host}:{CONTROLLER_PORT}", command, ANSWER_MS_MAX)
                self.count()
            except RemotingError:
                self.machines.done["operator not answered"] += 1
            await client.close()

        node.spawn(ask())
