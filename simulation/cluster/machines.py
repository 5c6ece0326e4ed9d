"""The machines of one run: which are down, when they come back, and what they lose meanwhile.

Invariant: no more data is lost than the contract allows. Only one broker at a time loses its store or memory, never the last
intact one, and only after the broker has left the SyncStateSet, so that it cannot be elected."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from remoting.signing import Credentials, Signer
from simulation.checkers.check import ClusterCheck
from simulation.checkers.damagedstores import DamagedStores
from simulation.cluster.looks import (
    BrokerLook,
    ControllerLook,
    broker_on,
    controller_app,
    controller_on,
    epoch_led_on,
    id_on_disk,
)
from simulation.cluster.members import (
    BROKER_HOSTS,
    CLIENT_HOST,
    CONTROLLER_HOSTS,
    LEARNER_HOST,
    NAMESRV_HOST,
    STRANGER_HOST,
)
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.workloads.accounts import signer_of
from simulation.workloads.facts import Facts

RESTART_MS = (1, 300, 2000, 6000)
ASKED_FOR_MS = 10_000
"""An operator's request is carried out within this time, or never."""


class Machines:
    """`servers` are the nodes that faults start again, and `everyone` is all nodes. `done` counts faults by kind."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        check: ClusterCheck,
        *,
        has_learner: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        self.world = world
        self.random = chance
        self.check = check
        self.credentials = credentials
        """Those of all clients and operators, if there is access control."""
        self.facts = Facts()
        self.namesrv = world.node("namesrv", NAMESRV_HOST)
        self.controllers = [world.node(f"controller-{i}", host) for i, host in enumerate(CONTROLLER_HOSTS)]
        self.brokers = [world.node(f"broker-{i}", host) for i, host in enumerate(BROKER_HOSTS)]
        self.learners = [world.node("learner", LEARNER_HOST)] if has_learner else []
        """Learners, which never count. All other replicas are in `brokers`."""
        self.client = world.node("client", CLIENT_HOST)
        self.stranger = world.node("stranger", STRANGER_HOST)
        self.servers = [*self.controllers, *self.brokers, *self.learners]
        self.everyone = [*self.servers, self.namesrv, self.client]
        self.done: Counter[str] = Counter()
        self.damaged = DamagedStores(self.brokers, self.done)
        check.flipped_at = self.damaged.flipped_at
        self.restart_at_ms: dict[str, int] = {}
        """By node name."""
        self.losing: dict[str, tuple[int, Callable[[], None]]] = {}
        """Node name -> (broker id, what the node loses). The broker must not be electable any more before the node comes back
        with that loss. If it stays electable, the node has only hung and loses nothing, because it could have been elected as
        the last replica."""
        self.lost_ids: set[int] = set()
        """Brokers that lost their stores while they were members."""
        self.lost_power: set[str] = set()
        """Names of nodes that ever lost power."""
        self.doubtful_disks: set[str] = set()
        """Nodes whose kernels may believe that unwritten pages are written."""
        self.asked_for_ms: dict[int, int] = {}
        """Broker id -> when an operator last requested its election."""
        self.skews_ms = [node.skew_ms for node in self.brokers]
        """Each skew that a broker's wall clock ever had."""

    @property
    def signer(self) -> Signer | None:
        return signer_of(self.credentials)

    @property
    def spread_ms(self) -> int:
        """The largest distance of any two wall clocks of brokers so far."""
        return max(self.skews_ms) - min(self.skews_ms)

    def broker_looks(self) -> list[BrokerLook]:
        """Looks at the brokers and learners that run."""
        replicas = [*self.brokers, *self.learners]
        return [look for node in replicas if (look := broker_on(node)) is not None]

    def controller_looks(self) -> list[ControllerLook]:
        return [look for node in self.controllers if (look := controller_on(node)) is not None]

    def master(self) -> Node | None:
        """The broker that acts as master in the newest epoch, if one does."""
        replicas = [*self.brokers, *self.learners]
        masters = [(epoch, node) for node in replicas if (epoch := epoch_led_on(node)) is not None]
        return max(masters, key=lambda led: led[0])[1] if masters else None

    def leader(self) -> Node | None:
        for node in self.controllers:
            app = controller_app(node)
            if app is not None and app.node.is_active:
                return node
        return None

    def slaves(self, master: Node) -> list[Node]:
        return [node for node in self.brokers if node is not master]

    def cut_off(self, node: Node, *friends: Node) -> None:
        """Cut the node off from everyone else."""
        for other in self.everyone:
            if other is not node and other not in friends:
                self.world.network.cut(node.host, other.host)

    def kill(self, node: Node, *, power_cut: bool = False) -> None:
        if node.running:
            node.kill(power_cut=power_cut)
            self.back_soon(node)
            if power_cut:
                self.lost_power.add(node.name)

    def back_soon(self, node: Node) -> None:
        self.restart_at_ms[node.name] = self.world.now_ms + self.random.choice(RESTART_MS)

    def can_lose(self, node: Node) -> int | None:
        """The id of the broker on `node` if its store or memory may be lost now, else None. Only one broker at a time may lose
        something, and not the last intact one."""
        look = broker_on(node)
        others_run = all(other.running for other in self.slaves(node))
        lost_already = self.losing or self.damaged.flipped or self.lost_ids & self.check.electable
        if look is None or look.broker_id is None or lost_already or not others_run or self.check.forgetful:
            return None
        # its kernel believes that unwritten pages are written, so after a power loss the store must be wiped
        if node.name in self.doubtful_disks or node.disk.failures["sync"]:
            return None
        if len(self.check.electable) < 2 and look.broker_id in self.check.electable:
            return None
        return look.broker_id

    def can_forget(self, node: Node) -> bool:
        """Whether the broker may lose its memory at once, whatever else is down. That is so if every other broker that lost
        something has caught up since, and enough brokers hold the acknowledged records. The broker's disk keeps what it
        synced."""
        damaged = self.losing or self.damaged.flipped or self.damaged.where or self.check.forgetful
        doubtful = any(broker.disk.failures["sync"] for broker in self.brokers) or self.doubtful_disks
        return (
            node.running
            and self.check.members_min > 1
            and not (damaged or doubtful or self.lost_ids & self.check.electable)
        )

    def another_can_lead(self, node: Node) -> bool:
        """Whether another electable broker is not known to be missing data. A broker whose sync failed counts as one that lost
        memory."""
        looks = [broker_on(other) for other in self.slaves(node)]
        return len(self.check.electable) > 1 and any(
            look is None or (look.broker_id in self.check.electable and not look.may_miss) for look in looks
        )

    def elected_though_incomplete(self, broker_id: int, electable: frozenset[int]) -> bool:
        """Whether this broker lost memory and has not caught up, but may be elected: an operator has just requested its
        election, or the leading controller gets heartbeats from no other of these brokers that is complete."""
        lost = {id_on_disk(self.world.nodes[name]) for name in self.check.forgetful}
        incomplete = {look.broker_id for look in self.broker_looks() if look.may_miss}
        leading = [look for look in self.controller_looks() if look.raft.is_active]
        alive = {other for look in leading for other in electable if look.takes_for_alive(other)}
        asked_for = self.world.now_ms - self.asked_for_ms.get(broker_id, -ASKED_FOR_MS) < ASKED_FOR_MS
        return broker_id in lost and (asked_for or not alive - lost - incomplete)

    def may_have_lost_memory(self, broker_id: int) -> bool:
        """Whether the broker's machine ever lost power."""
        return broker_id in {id_on_disk(self.world.nodes[name]) for name in self.lost_power}

    def may_be_back(self, node: Node) -> bool:
        """Whether the node is down and the time for which it is to be down is over."""
        return not node.running and self.world.now_ms >= self.restart_at_ms.get(node.name, 0)

    def due_for_restart(self, node: Node) -> bool:
        """Whether the node comes back now, if it may."""
        if node.name not in self.losing:
            return True
        broker_id, loss = self.losing[node.name]
        if broker_id in self.check.electable and self.another_can_lead(node):
            return False
        del self.losing[node.name]
        if broker_id not in self.check.electable:
            loss()
        return True
