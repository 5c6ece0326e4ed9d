"""Faults of a simulated cluster, drawn from a seed; each says what it did.

Invariant: a fault never takes what the contract lets the cluster lose: one machine at a time loses power, and it comes
back without its memory only when the SyncStateSet goes on without it."""

from __future__ import annotations

import random
from collections import Counter

from broker.role.membership import Role
from simulation.cluster.check import ClusterCheck
from simulation.cluster.damage import StoreDamage
from simulation.cluster.diskerrors import RESTART_MS, DiskErrors
from simulation.cluster.fulldisks import FullDisks
from simulation.cluster.looks import broker_on
from simulation.cluster.losses import EMPTIED, WITHOUT_LOG, MemberLosses
from simulation.cluster.members import ClientApp
from simulation.kernel.node import Node
from simulation.kernel.world import World

KINDS = (
    "kill", "kill master", "kill all brokers", "kill controller", "kill leading controller", "power cut",
    "partition", "one-way partition", "isolate master", "isolate", "delay", "reset", "pause", "disk stall",
    "power cut of a controller", "stop", "half-open", "master without controllers", "master with its client",
    "kill master and leading controller", "kill after truncation",
    "expansion without an answer", "clock jump", "disk error", "half-open slave while another lags",
    "deposed master at a new address", "burst of load", "wiped slave", "flipped bit", EMPTIED, WITHOUT_LOG,
)  # fmt: skip
CHANCES = {"burst of load": 0.4, "wiped slave": 0.3, "flipped bit": 0.4, EMPTIED: 0.25, WITHOUT_LOG: 0.2}
"""That a seed has a kind of fault, where it is not CHANCE."""
CHANCE = 0.5
BURSTS = (20, 60)
STOPPED_MS = 4000
CLOCK_JUMP_MS = 3_600_000
LAGGING_MS = (600, 2_500)
SLOW_SLAVE_MS = (400, 900)


class Faults:
    """Chooses and performs faults, and later undoes them."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        controllers: list[Node],
        brokers: list[Node],
        others: list[Node],
        client: Node,
        check: ClusterCheck,
    ) -> None:
        self.world = world
        self.random = chance
        self.controllers = controllers
        self.brokers = brokers
        self.others = others
        self.client = client
        self.check = check
        check.on_truncated = self.truncated
        check.on_expanded = self.expanded
        self.truncations_to_kill = self.expansions_to_cut = 0
        kinds = [kind for kind in KINDS if chance.random() < CHANCES.get(kind, CHANCE)]
        self.kinds = sorted(
            {*kinds, "kill master", chance.choice(KINDS), chance.choice(KINDS), chance.choice(KINDS)}
        )
        self.restart_at_ms: dict[str, int] = {}
        self.without_power: dict[str, int] = {}
        """Node name -> broker id that must have left the set before the node comes back: its power or its store is lost."""
        self.done: Counter[str] = Counter()
        self.half_open: tuple[int, Node, Node] | None = None
        """When a slave (the second) is to forget its connections with the master (the first)."""
        self.deposed: Node | None = None
        """A master that is cut off, until another one is there."""
        self.disk_errors = DiskErrors(world, chance, self.done, self.restart_at_ms)
        self.full_disks = FullDisks(world, [*controllers, *brokers], self.done, self.restart_at_ms)
        self.damage = StoreDamage(chance, brokers, self.done)
        self.losses = MemberLosses(
            world, chance, controllers, brokers, self.done, self.restart_at_ms, self.damage.must_be_refused
        )
        self.skews_ms = [node.skew_ms for node in brokers]

    @property
    def spread_ms(self) -> int:
        """How far any two wall clocks of brokers were ever apart."""
        return max(self.skews_ms) - min(self.skews_ms)

    def strike(self, kind: str, master: Node | None, leader: Node | None) -> None:
        """One fault of `kind`; what cannot be done at the moment is left out."""
        broker, controller = self.random.choice(self.brokers), self.random.choice(self.controllers)
        match kind:
            case "kill":
                self.kill(broker)
            case "kill master" if master is not None:
                self.kill(master)
            case "kill all brokers":
                for node in self.brokers:
                    self.kill(node)
            case "kill master and leading controller" if master is not None and leader is not None:
                self.kill(master)
                self.kill(leader)
            case "kill after truncation":
                self.truncations_to_kill += 1
            case "stop" if broker.running:
                self.stop(broker)
            case "kill controller":
                self.kill(controller)
            case "kill leading controller" if leader is not None:
                self.kill(leader)
            case "power cut of a controller":
                self.kill(controller, power_cut=True)
            case "power cut":
                self.cut_power(master if master is not None and self.random.random() < 0.5 else broker)
                return  # counted once it is certain
            case "partition" | "one-way partition":
                one, other = self.random.sample(self.everyone, 2)
                self.world.network.cut(one.host, other.host, both=kind == "partition")
            case "isolate" | "isolate master":
                node = (
                    master
                    if kind == "isolate master" and master is not None
                    else self.random.choice(self.everyone)
                )
                friend = self.random.choice(self.everyone) if self.random.random() < 0.5 else node
                for other in self.everyone:
                    if other is not node and other is not friend:
                        self.world.network.cut(node.host, other.host)
            case "master with its client" if master is not None:
                for other in self.everyone:
                    if other is not master and other is not self.client:
                        self.world.network.cut(master.host, other.host)
            case "master without controllers" if master is not None:
                for other in self.controllers:
                    self.world.network.cut(master.host, other.host)
                slave = self.random.choice([node for node in self.brokers if node is not master])
                if self.random.random() < 0.5:
                    self.world.network.cut(master.host, slave.host)
                else:  # it hears of the next master before it has what this one sent
                    self.world.network.delay(master.host, slave.host, *SLOW_SLAVE_MS)
            case "expansion without an answer" if master is not None:
                for other in self.controllers:
                    self.world.network.delay(master.host, other.host, 300, 900)
                self.kill(self.random.choice([node for node in self.brokers if node is not master]))
                self.expansions_to_cut += 1
            case "half-open":
                one, other = self.random.sample(self.everyone, 2)
                self.world.network.half_open(one.host, other.host)
            case "delay":
                one, other = self.random.sample(self.everyone, 2)
                self.world.network.delay(one.host, other.host, 1, self.random.choice((20, 200, 900)))
            case "reset":
                one, other = self.random.sample(self.everyone, 2)
                self.world.network.reset(one.host, other.host)
            case "pause" if broker.running:
                broker.pause(self.random.choice((100, 1500, 8000)))
            case "clock jump":
                self.jump_clock(self.random.choice(self.everyone))
            case "disk error":
                if broker.name not in self.without_power:
                    self.disk_errors.set(broker)
                return  # counted once it has struck
            case "half-open slave while another lags" if master is not None:
                lagging, forgetful = self.random.sample(
                    [node for node in self.brokers if node is not master], 2
                )
                self.world.network.cut(master.host, lagging.host)
                at_ms = self.world.now_ms + self.random.randint(*LAGGING_MS)
                self.half_open = (at_ms, master, forgetful)
            case "deposed master at a new address" if master is not None:
                for other in self.everyone:
                    if other is not master:
                        self.world.network.cut(master.host, other.host)
                self.deposed = master
                return  # counted once it is done
            case "burst of load" if isinstance(self.client.app, ClientApp):
                self.client.spawn(self.client.app.burst(self.random.choice(BURSTS)))
            case "wiped slave" | "flipped bit" if broker is not master:
                self.damage_store(kind, broker)
                return  # counted once it is done
            case "emptied member" | "member without its log" if leader is not None:
                self.lose_member(kind, broker, leader)
                return  # counted once it is done
            case "disk stall":
                self.random.choice((broker, controller)).disk.stall(self.random.choice((100, 2000)))
            case _:
                return
        self.done[kind] += 1

    @property
    def everyone(self) -> list[Node]:
        return [*self.controllers, *self.brokers, *self.others]

    def kill(self, node: Node, *, power_cut: bool = False) -> None:
        if node.running:
            node.kill(power_cut=power_cut)
            self.restart_at_ms[node.name] = self.world.now_ms + self.random.choice(RESTART_MS)

    def stop(self, node: Node) -> None:
        """SIGTERM: the app stops by itself, unless something kills it first."""
        app = node.app
        if app is None:
            return

        async def leave() -> None:
            try:
                await app.stop()
            except OSError as error:  # the last sync failed: the process ends all the same
                node.failure = error
            node.kill()

        node.spawn(leave())
        self.restart_at_ms[node.name] = self.world.now_ms + STOPPED_MS

    def truncated(self, name: str) -> None:
        """A broker has just cut its log: a planned fault kills it before it writes there again."""
        if self.truncations_to_kill:
            self.truncations_to_kill -= 1
            self.kill(next(node for node in self.brokers if node.name == name))

    def expanded(self, added: frozenset[int], master_id: int) -> None:
        """The controllers have just let brokers into the set. A planned fault keeps that from the master, and the new
        ones from its log."""
        ids = {look.broker_id: node for node in self.brokers if (look := broker_on(node)) is not None}
        master = ids.get(master_id)
        if self.expansions_to_cut and master is not None:
            self.expansions_to_cut -= 1
            for controller in self.controllers:
                self.world.network.cut(controller.host, master.host, both=False)
            for broker_id in sorted(added & ids.keys()):
                self.world.network.cut(ids[broker_id].host, master.host)

    def cut_power(self, node: Node) -> None:
        """Loses what was not synced. Not while another is down: the contract counts on the others' memory."""
        broker_id = self.can_lose(node)
        if broker_id is None:
            return
        if self.random.random() < 0.5:  # its kernel says goodbye to nobody
            for other in self.everyone:
                if other is not node:
                    self.world.network.cut(node.host, other.host)
        self.kill(node)
        self.without_power[node.name] = broker_id

    def can_lose(self, node: Node) -> int | None:
        """The id of the broker on `node` if its store or memory may be lost now: one at a time, and not the last."""
        look = broker_on(node)
        broker_id = look.broker_id if look is not None else None
        others_run = all(other.running for other in self.brokers if other is not node)
        lost_already = self.without_power or self.losses.lost_ids & self.check.members
        if broker_id is None or lost_already or not others_run:
            return None
        # its kernel takes pages for written that are not: power loss leaves a store to be wiped
        if node.name in self.disk_errors.failing or node.disk.failures["sync"]:
            return None
        if len(self.check.members) < 2 and broker_id in self.check.members:
            return None
        return broker_id

    def damage_store(self, kind: str, node: Node) -> None:
        """Down now; its store suffers when that is no longer the last one."""
        broker_id = self.can_lose(node)
        if broker_id is not None:
            self.kill(node)
            if self.damage.plan(kind, node):
                self.without_power[node.name] = broker_id

    def lose_member(self, kind: str, node: Node, leader: Node) -> None:
        """All brokers die at once, with the controller that might yet elect one of them; one loses its store."""
        broker_id = self.can_lose(node)
        if broker_id in self.check.members and broker_id is not None:
            for victim in (leader, *self.brokers):
                self.kill(victim)
            self.losses.plan(kind, node, broker_id)

    def jump_clock(self, node: Node) -> None:
        node.skew_ms += self.random.choice((-CLOCK_JUMP_MS, CLOCK_JUMP_MS))
        if node in self.brokers:
            self.skews_ms.append(node.skew_ms)

    def misdirect(self, former: Node, master: Node) -> None:
        """The slave of `master` finds `former`, which still takes itself for the master, at its address."""
        slave = next(node for node in self.brokers if node is not former and node is not master)
        old, new, follower = (broker_on(node) for node in (former, master, slave))
        if old is None or new is None or follower is None:
            return
        if Role.NONE in (old.role, new.role, follower.role):
            return
        if old.role is not Role.MASTER:
            self.deposed = None  # it has heard of its successor
        elif (
            follower.history.last_epoch() == new.history.last_epoch()
            and follower.broker_id in self.check.members
        ):
            start = new.history.entries[-1].start_offset
            if follower.store.confirm_offset() > start:
                self.deposed = None
                self.world.network.heal(former.host, slave.host)
                self.world.network.misdirect(slave.host, master.host, former.host)
                self.world.network.reset(slave.host, master.host)
                self.done["deposed master at a new address"] += 1

    def next_steps(self, master: Node | None) -> None:
        """What earlier faults have set in motion. Raises Violation."""
        if self.half_open is not None and self.world.now_ms >= self.half_open[0]:
            _, former, slave = self.half_open
            self.half_open = None
            self.world.network.half_open(slave.host, former.host)
        self.damage.next_steps()
        self.losses.next_step()
        if self.deposed is not None and master is not None and master is not self.deposed:
            self.misdirect(self.deposed, master)
        for node in self.brokers:
            self.disk_errors.next_step(node)
        self.full_disks.next_step()

    def due_for_restart(self, node: Node) -> bool:
        """Whether it comes back now. Only what left the set meanwhile has really lost its memory: had it been
        elected alone, that would be the loss of the last replica, and so it had but hung."""
        if node.running or self.world.now_ms < self.restart_at_ms.get(node.name, 0):
            return False
        if self.losses.holds_back(node):
            return False
        broker_id = self.without_power.get(node.name)
        if broker_id is None:
            return True
        if broker_id in self.check.members and len(self.check.members) > 1:
            return False
        del self.without_power[node.name]
        if broker_id in self.check.members:
            self.damage.planned.pop(node.name, None)
        elif node.name in self.damage.planned:
            self.damage.perform(node)
        else:
            node.kill(power_cut=True)
            self.done["power cut"] += 1
        return True

    def heal(self) -> None:
        """The network as at the beginning; nodes that are down come back when they may."""
        self.world.network.heal()
        for node in self.everyone:
            for other in self.everyone:
                if node is not other:
                    self.world.network.delay(node.host, other.host, 0.1, 0.5)
        self.restart_at_ms.clear()
        self.truncations_to_kill = self.expansions_to_cut = 0
        self.half_open = self.deposed = self.losses.planned = None
        self.disk_errors.take_back(self.brokers)
        self.full_disks.end()
