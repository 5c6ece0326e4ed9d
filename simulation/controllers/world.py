"""Controllers, the brokers of one or many sets, and an operator in one world. Scripts play the brokers and the operator.

Invariant: a run follows from its seed alone. `simulation.controllers.check` judges all requests, answers, proposals and
applied entries. Faults stop in the end. Then every set must become whole.

    python -m simulation.controllers.world --seeds 300 --first 1
    python -m simulation.controllers.world --seeds 300 --bug stale-set-epoch    (succeeds when a seed finds it)
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from functools import partial

from controller.server import ControllerApp
from controller.settings import ControllerSettings
from simulation.controllers.bounds import ControllerBounds
from simulation.controllers.check import ControllerCheck
from simulation.controllers.faults import Faults
from simulation.controllers.operator import Manners, Operator
from simulation.controllers.scriptedbroker import (
    BROKER_NAME,
    BROKER_PORT,
    BrokerPart,
    ScriptedBroker,
    Surroundings,
)
from simulation.controllers.taps import Taps
from simulation.kernel import seeds
from simulation.kernel.features import NOTHING_ASKED, Asked, Feature, Features, named
from simulation.kernel.garbage import seldom_collected
from simulation.kernel.node import Node
from simulation.kernel.totals import Totals
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.mutants.controllers import BUGS, planted

GROUP = "group1"
CONTROLLER_PORT = 9878
CONTROLLER_HOSTS = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
PEERS = {f"n{number}": f"{host}:{CONTROLLER_PORT}" for number, host in enumerate(CONTROLLER_HOSTS)}
RUN_MS = 60_000
FORM_LIMIT_MS = 120_000
"""Enough time for fifty sets of slow brokers, while an operator elects other masters."""
HEAL_LIMIT_MS = 90_000
LOOK_EVERY_MS = 50


@dataclass(frozen=True)
class Shape:
    """The size of a world, and its speeds. `sync_ms` is the shortest and longest time of a sync on the controllers' disks, or
    None for fast disks. `raft_slowness` multiplies the controllers' timers."""

    controllers: int = 3
    sets: int = 1
    brokers: int = 3
    learner: bool = False
    unclean: bool = False
    sync_ms: tuple[float, float] | None = None
    raft_slowness: int = 1
    step_ms: int = 500
    beat_ms: int = 1000
    members_min: tuple[int, ...] = (0,)
    """The minimum of the first broker of each set, of the second, and so on."""
    operator: Manners | None = None

    @staticmethod
    def drawn(played: frozenset[str], draw: random.Random) -> Shape:
        """A shape with the features `played`, and further draws."""
        many = "fifty sets" in played
        sets = 50 if many else draw.choice((*(1,) * 10, *(2,) * 5, 3, 4, 4, 8))
        sync_ms = draw.choice((None, None, None, (5, 15), (30, 80), (100, 350)))
        if many and sync_ms is not None:
            sync_ms = (5, 15)
        return Shape(
            controllers=draw.choice((1, 3, 3, 3, 3, 3, 5)),
            sets=sets,
            learner="learner" in played,
            unclean="unclean" in played,
            sync_ms=sync_ms,
            raft_slowness=draw.choice((1, 2, 4)) if sync_ms is None or sync_ms[1] < 100 else 4,
            step_ms=6_000 if many else draw.choice((300, 500, 900)) * (1 + sets // 2),
            beat_ms=3_000 if sets > 2 else draw.choice((1_000, 1_000, 3_000)),
            members_min=draw.choice(((0,), (1,), (2,), (2,), (2, 2, 0))),
            operator=Manners(draw.choice((150, 300, 500)), elects="elections" in played),
        )


FEATURES = Features(
    Feature("fifty sets", 1 / 20, "Fifty sets of slow brokers; meanwhile an operator elects other masters."),
    Feature(
        "unclean",
        0.15,
        "Unclean elections are allowed.",
        "M4, except that the master may come from outside the set.",
    ),
    Feature(
        "learner",
        0.3,
        "A replica of the first set is a learner.",
        "M4: it is never elected.",
        excludes=frozenset({"unclean", "fifty sets"}),
    ),
    Feature("elections", 0.6, "The operator elects masters, in addition to forgetting brokers."),
)


class ControllerWorld:
    """Controllers n0.., brokers b0.. of the first set, and brokers b1-0.. of the other sets. Every broker is new at first."""

    def __init__(self, world: World, shape: Shape | None = None, **settings: object) -> None:
        self.world = world
        self.shape = shape or Shape()
        self.random = random.Random(f"{world.seed}/faults")
        self.checker = ControllerCheck(unclean=self.shape.unclean, union_of=self.union_of)
        self.settings = {"enableElectUncleanMaster": self.shape.unclean, **settings}
        self.around = Surroundings(self.checker)
        self.peers = {
            f"n{number}": f"10.0.1.{number + 1}:{CONTROLLER_PORT}" for number in range(self.shape.controllers)
        }
        self.controllers = [
            world.node(name, address.partition(":")[0]) for name, address in self.peers.items()
        ]
        self.sets: dict[str, list[Node]] = {}
        self.parts: dict[str, BrokerPart] = {}
        for number in range(self.shape.sets):
            self._place(number)
        self.brokers = [node for nodes in self.sets.values() for node in nodes]
        self.checker.learners = frozenset(
            f"{node.host}:{BROKER_PORT}" for node in self.brokers if self.parts[node.name].learner
        )
        self.operator = world.node("operator", "10.0.3.1")
        self.faults = Faults(self)
        self.checker.on_found = lambda: world.after_each_step(self.checker.raise_found)
        self.bounds = ControllerBounds(world, self.checker, self.controllers, self.sets)
        world.after_each_step(self.bounds.look)

    def _place(self, number: int) -> None:
        """Place the brokers of one set. A learner is the first of them."""
        name = BROKER_NAME if number == 0 else f"{BROKER_NAME}{number}"
        prefix = "b" if number == 0 else f"b{number}-"
        nodes = self.sets[name] = []
        for index in range(self.shape.brokers + self.shape.learner):
            node = self.world.node(f"{prefix}{index}", f"10.{number + 1}.2.{index + 1}")
            nodes.append(node)
            self.parts[node.name] = BrokerPart(
                name,
                learner=self.shape.learner and index == 0,
                step_ms=self.shape.step_ms,
                beat_ms=self.shape.beat_ms,
                members_min=self.shape.members_min[index % len(self.shape.members_min)],
                fellows=partial(self.fellows, name),
                followers=partial(self.followers, name),
            )

    # Members

    def start_all(self) -> None:
        """Start all brokers. A learner starts first, and the other brokers only once the set exists."""
        for node in self.controllers:
            if self.shape.sync_ms is not None:
                node.disk.slow_down(*self.shape.sync_ms)
            self.start_controller(node)
        learners = [node for node in self.brokers if self.parts[node.name].learner]
        for node in learners:
            self.start_broker(node)
        if learners:
            self.world.run_until(
                lambda: all(self.broker(node).registered for node in learners if node.app), FORM_LIMIT_MS
            )
        for node in self.brokers:
            if node not in learners:
                self.start_broker(node)
        if self.shape.operator is not None:
            self.operator.start(
                partial(
                    Operator,
                    list(self.peers.values()),
                    self.around,
                    self.shape.operator,
                    self.leader_address,
                )
            )

    def start_controller(self, node: Node) -> None:
        settings = ControllerSettings.model_validate(
            {
                "controllerDLegerGroup": GROUP,
                "controllerDLegerPeers": ";".join(
                    f"{name}-{address}" for name, address in self.peers.items()
                ),
                "controllerDLegerSelfId": node.name,
                "mappedFileSize": 1 << 20,
                "snapshotEntries": random.Random(f"{self.world.seed}/snapshots").choice((8, 25)),
                **self.settings,
            }
        )

        def tapped(runtime: object) -> ControllerApp:
            app = ControllerApp(settings, runtime)  # type: ignore[arg-type]
            raft, slowness = app.node.settings, self.shape.raft_slowness
            app.node.settings = replace(
                raft,
                heartbeat_interval_ms=raft.heartbeat_interval_ms * slowness,
                election_timeout_min_ms=raft.election_timeout_min_ms * slowness,
                election_timeout_max_ms=raft.election_timeout_max_ms * slowness,
            )
            Taps(node, app, self.checker)
            return app

        node.start(tapped)

    def start_broker(self, node: Node) -> None:
        controllers, part = list(self.peers.values()), self.parts[node.name]
        node.start(partial(ScriptedBroker, node.host, controllers, part, self.around))

    def start_again(self, node: Node) -> None:
        (self.start_controller if node in self.controllers else self.start_broker)(node)

    # Who is what

    def leader(self) -> Node | None:
        """The controller that serves. If two believe to serve, the one with the highest term."""
        active = [node for node in self.controllers if self.app(node) and self.app(node).node.is_active]
        return max(active, key=lambda node: self.app(node).node.term, default=None)

    def leader_address(self) -> str | None:
        leader = self.leader()
        return None if leader is None else self.peers[leader.name]

    def app(self, node: Node) -> ControllerApp:
        app = node.app
        assert app is None or isinstance(app, ControllerApp)
        return app  # type: ignore[return-value]

    def broker(self, node: Node) -> ScriptedBroker:
        assert isinstance(node.app, ScriptedBroker)
        return node.app

    def living(self, broker_name: str) -> list[tuple[Node, ScriptedBroker]]:
        return [
            (node, node.app)
            for node in self.sets[broker_name]
            if node.running and isinstance(node.app, ScriptedBroker)
        ]

    def fellows(self, broker_name: str) -> frozenset[int]:
        """The brokers that could be in the set."""
        return frozenset(
            broker.broker_id
            for _, broker in self.living(broker_name)
            if broker.broker_id is not None and not broker.part.learner
        )

    def followers(self, broker_name: str, epoch: int) -> frozenset[int]:
        """The brokers that take part in that mastership."""
        return frozenset(
            broker.broker_id
            for _, broker in self.living(broker_name)
            if broker.broker_id is not None and broker.epoch == epoch and not broker.part.learner
        )

    def union_of(self, broker_name: str, master_id: int, epoch: int) -> frozenset[int] | None:
        """The brokers for which this master waits, if it acts."""
        for _, broker in self.living(broker_name):
            if broker.broker_id == master_id and broker.is_master and broker.epoch == epoch:
                return broker.union()
        return None

    def master(self, broker_name: str = BROKER_NAME) -> Node | None:
        """The running broker that is master in the newest state and knows it."""
        state = self.checker.state(broker_name)
        for node, broker in self.living(broker_name):
            if broker.broker_id == state.master_id is not None and broker.epoch == state.master_epoch:
                return node
        return None

    def whole(self) -> bool:
        """Whether each set has a master whom everyone follows, and holds all brokers but learners."""
        if self.leader() is None:
            return False
        for broker_name, nodes in self.sets.items():
            state, living = self.checker.state(broker_name), self.living(broker_name)
            if len(living) < len(nodes) or self.master(broker_name) is None:
                return False
            if any(broker.epoch != state.master_epoch for _, broker in living):
                return False
            if state.members != self.fellows(broker_name) or len(state.members) != self.shape.brokers:
                return False
        return True

    def read_at(self, controller: Node, broker_name: str) -> None:
        """The operator, if there is one, reads from this controller."""
        operator = self.operator.app
        if isinstance(operator, Operator):
            self.operator.spawn(operator.read(self.peers[controller.name], broker_name))

    def become_whole(self, limit_ms: int) -> None:
        """Wait until the world is whole. Raises Violation V2 if that does not happen."""
        end_ms = self.world.now_ms + limit_ms
        while not self.whole():
            if self.world.now_ms > end_ms:
                states = {name: self.checker.state(name) for name in self.sets}
                raise Violation("V2", f"expected whole sets after {limit_ms} ms, seen {states}")
            self.world.run_for_ms(LOOK_EVERY_MS)

    async def misbehave(self, for_ms: int) -> None:
        """Random faults, healed at the end."""
        self.around.restless = True
        await self.faults.strike_for(for_ms)
        self.around.restless = False


def features() -> frozenset[str]:
    """The names of all features that a seed may play."""
    return frozenset(FEATURES)


def run_seed(
    seed: int,
    bug: str | None = None,
    totals: Totals | None = None,
    asked: Asked = NOTHING_ASKED,
    run_ms: int = RUN_MS,
) -> None:
    """Raises FeatureError, Violation, or what the world raises for a bug."""
    asked.check(FEATURES)
    totals, played = totals or Totals(), FEATURES.of(seed, asked)
    with named(played), seldom_collected(), planted(bug), World(seed) as world:
        shape = Shape.drawn(played, random.Random(f"{seed}/controllers"))
        cluster = ControllerWorld(world, shape)
        cluster.start_all()
        cluster.become_whole(FORM_LIMIT_MS)
        world.run(cluster.misbehave(run_ms), limit_ms=3 * run_ms)
        cluster.operator.kill()
        cluster.become_whole(HEAL_LIMIT_MS)
        cluster.bounds.at_the_end()
        totals.counts.update(cluster.checker.counts)
        totals.counts["seeds"] += 1
        totals.faults.update(cluster.faults.done)
        totals.simulated_ms += world.now_ms


def main() -> int:
    return seeds.main(__doc__, BUGS, 50, run_seed)


if __name__ == "__main__":
    sys.exit(main())
