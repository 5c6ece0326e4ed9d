"""Three controllers and the brokers of one set, played by scripts, in one simulated world.

Invariant: after each step every applied entry has been judged by `ControllerChecker`, against the entries before
it; a violation names what broke."""

from __future__ import annotations

import asyncio
import copy
import random
from dataclasses import dataclass, field

from controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    decode,
)
from controller.server import ControllerApp
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from simulation.controllers.scriptedbroker import BROKER_NAME, ScriptedBroker, Told
from simulation.kernel.node import Node
from simulation.kernel.world import World

GROUP = "group1"
CONTROLLER_PORT = 9878
CONTROLLER_HOSTS = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
PEERS = {f"n{number}": f"{host}:{CONTROLLER_PORT}" for number, host in enumerate(CONTROLLER_HOSTS)}


class Violation(AssertionError):
    """An invariant of reliability does not hold; the first word is its name there."""


@dataclass
class ControllerChecker:
    """Replays the applied entries beside the controllers: R5, M1, M4, S1, S2, S6, B1."""

    unclean: bool = False
    bodies: list[bytes] = field(default_factory=list)
    state: ReplicasState = field(default_factory=ReplicasState)
    judged: dict[str, tuple[int, int]] = field(default_factory=dict)
    granted: dict[tuple[str, int], str] = field(default_factory=dict)
    masters: dict[tuple[str, int], int | None] = field(default_factory=dict)
    elections: int = 0

    def judge(self, node: Node) -> None:
        """Judge what `node` has applied since the last time."""
        app = node.app
        if not isinstance(app, ControllerApp) or app.node.core is None:
            return
        incarnation, done = self.judged.get(node.name, (0, 0))
        done = done if incarnation == node.incarnation else 0
        end = app.node.applied_index + 1
        for index in range(done, end):
            body = app.node.core.log.entry(index).body
            if index < len(self.bodies):
                expect("R5", self.bodies[index] == body, f"{node.name} applied another entry {index}")
            else:
                expect("R5", index == len(self.bodies), f"{node.name} skipped to entry {index}")
                self.bodies.append(body)
                self.take(body)
        if end == len(self.bodies) and done != end:
            expect("R5", app.state == self.state, f"{node.name} is in another state after {end} entries")
        self.judged[node.name] = (node.incarnation, end)

    def take(self, body: bytes) -> None:
        event = decode(body)
        if event is None:
            return
        before = copy.deepcopy(self.state)
        self.state.apply(event)
        known, was = self.state.known(event.broker_name), before.known(event.broker_name)
        match event:
            case ElectMaster():
                expect("M1", was is not None and known is not None, "elected in an unknown set")
                assert was is not None and known is not None
                self.elections += 1
                (_, old), (replicas, new) = was, known
                expect("M1", new.master_epoch == old.master_epoch + 1, "the epoch did not grow")
                key = (event.broker_name, new.master_epoch)
                expect("M1", key not in self.masters, f"two masters in {key}")
                self.masters[key] = event.master_id
                if event.master_id is not None:
                    in_set = event.master_id in old.members or old.master_epoch == 0 or self.unclean
                    expect("M4", in_set, f"{event.master_id} was not in {old.members}")
                    expect("S2", event.master_id in replicas.by_id, f"{event.master_id} is not registered")
                else:
                    expect("M4", old.master_id is not None, "an epoch was spent on a set without a master")
                    expect("M4", new.members == old.members, "a failed election changed the set")
            case AlterSyncStateSet():
                assert was is not None and known is not None
                (_, old), (replicas, new) = was, known
                expect("S1", new.set_epoch == old.set_epoch + 1, "the set's epoch did not grow by one")
                expect("S2", old.master_id in event.members, f"{old.master_id} is not in {event.members}")
                expect("S2", event.members <= replicas.by_id.keys(), f"strangers in {event.members}")
            case ApplyBrokerId():
                owner = self.granted.setdefault((event.broker_name, event.broker_id), event.check_code)
                expect("B1", owner == event.check_code, f"id {event.broker_id} was granted twice")
            case CleanBrokerData():
                for broker_name, broker_id in list(self.granted):
                    gone = event.broker_ids is None or broker_id in event.broker_ids
                    if broker_name == event.broker_name and gone:
                        del self.granted[broker_name, broker_id]
        if known is not None and known[1].master_epoch > 0:
            expect("S2", bool(known[1].members), "the set is empty")


def expect(name: str, holds: bool, what: str) -> None:
    if not holds:
        raise Violation(f"{name}: {what}")


class ControllerWorld:
    """Controllers n0..n2, brokers b0.. ; every broker is an unregistered newcomer at first."""

    def __init__(self, world: World, brokers: int = 3, **settings: object) -> None:
        self.world = world
        self.random = random.Random(f"{world.seed}/faults")
        self.checker = ControllerChecker(unclean=bool(settings.get("enableElectUncleanMaster")))
        self.settings = settings
        self.told = Told()
        self.controllers = [
            world.node(name, host) for name, host in zip(PEERS, CONTROLLER_HOSTS, strict=True)
        ]
        self.brokers = [world.node(f"b{number}", f"10.0.2.{number + 1}") for number in range(brokers)]
        world.after_each_step(self.check)

    def check(self) -> None:
        for node in self.controllers:
            self.checker.judge(node)

    def start_all(self) -> None:
        for node in self.controllers:
            self.start_controller(node)
        for node in self.brokers:
            self.start_broker(node)

    def start_controller(self, node: Node) -> None:
        settings = ControllerSettings.model_validate(
            {
                "controllerDLegerGroup": GROUP,
                "controllerDLegerPeers": ";".join(f"{name}-{address}" for name, address in PEERS.items()),
                "controllerDLegerSelfId": node.name,
                "mappedFileSize": 1 << 20,
                **self.settings,
            }
        )
        node.start(lambda runtime: ControllerApp(settings, runtime))

    def start_broker(self, node: Node) -> None:
        node.start(lambda runtime: ScriptedBroker(node.host, list(PEERS.values()), self.told, runtime))

    def leader(self) -> Node | None:
        """The controller that serves, with the highest term if there are two of that opinion."""
        active = [node for node in self.controllers if self.app(node) and self.app(node).node.is_active]
        return max(active, key=lambda node: self.app(node).node.term, default=None)

    def app(self, node: Node) -> ControllerApp:
        app = node.app
        assert app is None or isinstance(app, ControllerApp)
        return app  # type: ignore[return-value]

    def broker(self, node: Node) -> ScriptedBroker:
        assert isinstance(node.app, ScriptedBroker)
        return node.app

    def master(self) -> Node | None:
        """The running broker that the newest state names master and that knows it."""
        known = self.checker.state.known(BROKER_NAME)
        for node in self.brokers:
            if known and node.running and isinstance(node.app, ScriptedBroker):
                broker = node.app
                if (
                    broker.broker_id == known[1].master_id is not None
                    and broker.epoch == known[1].master_epoch
                ):
                    return node
        return None

    def whole(self) -> bool:
        """A master leads, everyone follows it, and the set holds all brokers."""
        known = self.checker.state.known(BROKER_NAME)
        if known is None or self.master() is None or self.leader() is None:
            return False
        followers = all(
            isinstance(node.app, ScriptedBroker) and node.app.epoch == known[1].master_epoch
            for node in self.brokers
        )
        return followers and len(known[1].members) == len(self.brokers)

    async def misbehave(self, for_ms: int) -> None:
        """Random faults, at most one controller and one broker down at a time, healed at the end."""
        end_ms = self.world.now_ms + for_ms
        while self.world.now_ms < end_ms:
            await asyncio.sleep(self.random.uniform(0.2, 4))
            node = self.random.choice(self.controllers + self.brokers)
            match self.random.randrange(4):
                case 0 if node.running:
                    await self.bounce(node, power_cut=self.random.random() < 0.3)
                case 1 if node.running:
                    node.pause(self.random.randint(100, 15_000))
                case 2:
                    await self.partition(node)
                case 3:
                    master, leader = self.master(), self.leader()
                    for victim in (master, leader):
                        if victim is not None and victim.running and self.random.random() < 0.7:
                            await self.bounce(victim, power_cut=False)
        self.world.network.heal()

    async def bounce(self, node: Node, *, power_cut: bool) -> None:
        node.kill(power_cut=power_cut)
        await asyncio.sleep(self.random.uniform(0.01, 8))
        if not node.running:
            self.start_again(node)

    def start_again(self, node: Node) -> None:
        (self.start_controller if node in self.controllers else self.start_broker)(node)

    async def partition(self, node: Node) -> None:
        others = [other for other in self.controllers + self.brokers if other is not node]
        some = self.random.sample(others, self.random.randint(1, len(others)))
        both = self.random.random() < 0.7
        for other in some:
            self.world.network.cut(node.host, other.host, both=both)
        await asyncio.sleep(self.random.uniform(0.1, 14))
        self.world.network.heal()
