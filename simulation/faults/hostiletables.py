"""Strangers that send the hostile bytes in the tables of simulation.hostile to every port, during real traffic.

Invariant: a server that gets them keeps serving others. The run fails if a server ends because of them, if its answer shows an
unexpected exception, or if it stores more names than the tables contain."""

from __future__ import annotations

import random
from functools import cache

from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from simulation.cluster.looks import broker_on
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, BROKER_SET, CONTROLLER_PORT, NAMESRV_PORT
from simulation.faults.fault import Fault
from simulation.faults.hostileframes import BETWEEN_MS, FIRST_MS, STAYS_MS, say
from simulation.faults.strangers import HA_PORT
from simulation.hostile import frames, links, members, requests
from simulation.kernel.node import Node

NAME = "hostile tables"
REAL = {"topic": "Strange", "b": "Strange"}
CODES = sorted({*map(int, RequestCode), -5, 999, 40_000} - requests.CHANGE_MUCH)
CLUSTER_NAME = "DefaultCluster"
NOBODY = 77
AT_ONCE = (1, 8)
NAMES = 3 * (len(requests.TEXTS) + len(requests.NUMBERS) + 2)
"""Topics and groups in the tables, and those that brokers derive from them."""


@cache
def headers() -> list[dict[str, str]]:
    return requests.headers(REAL)


class HostileTables(Fault):
    """An independent fault with its own random generator and a separate host."""

    name = NAME

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/hostile tables")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)

    def next_step(self) -> None:
        if self.due_ms is None or self.world.now_ms < self.due_ms:
            return
        self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
        target = self.random.choice([self.machines.namesrv, *self.machines.servers])
        for _ in range(self.random.randint(*AT_ONCE)):
            data, port = self.drawn(target)
            self.node.spawn(say(target.host, port, data, self.random.choice(STAYS_MS)))
            self.count()

    def heal(self) -> None:
        self.due_ms = None

    def drawn(self, target: Node) -> tuple[bytes, int]:
        """A message to send, and its port."""
        chance, machines = self.random, self.machines
        is_controller, is_broker = target in machines.controllers, target is not machines.namesrv
        port = CONTROLLER_PORT if is_controller else BROKER_PORT if is_broker else NAMESRV_PORT
        kind = chance.random()
        if kind < 0.3:
            return chance.choice(list(frames.not_frames().values())), port
        if kind < 0.6 and is_controller:
            return frames.whole(chance.choice(self.of_members(machines.controllers.index(target)))), port
        if kind < 0.6 and is_broker:
            look = broker_on(target)
            master = look.broker_id if look is not None and look.broker_id else 1
            return chance.choice(list(links.to_masters(NOBODY, master).values())), HA_PORT
        body = chance.choice(list(requests.BODIES.values())) if chance.random() < 0.5 else None
        request = RemotingCommand.request(chance.choice(CODES), chance.choice(headers()), body)
        return frames.whole(request), port

    def of_members(self, asked: int) -> list[RemotingCommand]:
        """Messages between members for the controller with this number."""
        if self.random.random() < 0.7:
            sender = self.random.choice([number for number in range(3) if number != asked])
            names = "group1", f"n{sender}", f"n{asked}"
            if self.random.random() < 0.5:
                return list(members.believable(*names, (members.TERM_NEAR, *members.TERMS_FAR)))
            return list(members.between_members(*names))
        ids = [look.broker_id or 1 for look in self.machines.broker_looks()] or [1]
        master, slave = self.random.choice(ids), self.random.choice(ids)
        return list(members.to_controllers(CLUSTER_NAME, BROKER_SET, master, slave))
