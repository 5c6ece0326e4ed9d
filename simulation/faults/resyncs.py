"""An operator resyncs replicas: a replica sets its store aside and copies the log again. It is killed meanwhile, or is asked
while its disk is full.

Invariant Z: a replica whose store is set aside is no longer in the SyncStateSet and not eligible, and as many other replicas as
a send needs hold the acknowledged records. A store is not set aside if its disk cannot hold a second copy of a log. Every file
of the old store stays until the new copy has been in the set, and the old store is removed in the end. One file may be missing
after a power cut: the log creates its next segment in advance, and makes the name durable only with the first bytes in it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.resync import storeaside
from broker.resync.storeaside import State
from messagestore.log.commitlog import FOLDER as LOG
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.admin import ResyncBrokerHeader
from simulation.cluster.looks import id_on_disk
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT
from simulation.faults.fault import Fault
from simulation.kernel.inode import Inode
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

FIRST_MS = (6_000, 15_000)
BETWEEN_MS = (4_000, 12_000)
KILL_MS = (1, 900)
FULL_MS = (500, 6_000)
ROOM_BYTES = 20_000
"""Room that is enough for small files, but for almost no log."""
ANSWER_MS_MAX = 4_000
NOTICED_MS = 500
"""A change of the set is noticed within this time."""
REMOVED_MS = 15_000
"""The interval at which a broker asks for the set, and a margin."""


@dataclass
class Kept:
    """The store that one broker has set aside."""

    aside: storeaside.Aside
    log: dict[str, Inode]
    durable: dict[str, Inode]
    """The part of the store that every power cut leaves."""
    boots: int
    """How many power cuts of the node `durable` has seen."""
    wipes: int
    since_ms: int


@dataclass
class Asked:
    """A broker that was asked to resync, and whether its disk has had too little room ever since."""

    node: Node
    no_room: bool


class Resyncs(Fault):
    """An independent actor with its own random generator, which sends from a host without faults."""

    name = "begins anew"

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/resync")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)
        self.kill_ms: dict[str, int] = {}
        self.kept: dict[str, Kept] = {}
        self.had_enough = False
        self.fills = random.Random(f"{machines.world.seed}/full when asked to begin anew")
        self.full_until_ms: dict[str, int] = {}
        """By node name."""
        self.asked: list[Asked] = []
        self.let_go: list[str] = []
        """Names of brokers that began a resync without the room for it."""

    def next_step(self) -> None:
        """Raises Violation."""
        for node in self.machines.brokers:
            self.look_at(node)
            if self.kill_ms.get(node.name, self.world.now_ms + 1) <= self.world.now_ms:
                del self.kill_ms[node.name]
                self.machines.kill(node)
            if self.full_until_ms.get(node.name, self.world.now_ms + 1) <= self.world.now_ms:
                self.make_room(node)
        self.look_at_holders()
        self.look_at_room()
        if self.due_ms is not None and self.world.now_ms >= self.due_ms:
            self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
            node = self.random.choice(self.machines.brokers)
            if self.may_go(node):
                if self.fills.random() < 0.3:
                    self.fill(node)
                self.node.spawn(self.ask(node, dry_run=self.random.random() < 0.1))
                if self.random.random() < 0.4:
                    self.kill_ms[node.name] = self.world.now_ms + self.random.randint(*KILL_MS)

    def may_go(self, node: Node) -> bool:
        """Whether the resync may be requested: not while other faults have begun to take something from this or another store,
        because these faults are judged by the store's old place."""
        on = self.machines
        damaged = on.losing or on.damaged.flipped or on.damaged.where or on.check.forked
        return node.running and not damaged and node.name not in on.doubtful_disks

    async def ask(self, node: Node, *, dry_run: bool) -> None:
        client = RemotingClient(clock=self.node.runtime().clock, signer=self.machines.signer)
        asked = Asked(node, self.is_short_of_room(node))
        self.asked.append(asked)
        command = RemotingCommand.request(RequestCode.RESYNC_BROKER, ResyncBrokerHeader(dry_run=dry_run))
        try:
            reply = await client.call(f"{node.host}:{BROKER_PORT}", command, ANSWER_MS_MAX)
        except RemotingError:
            self.machines.done["asked to begin anew, no answer"] += 1
        else:
            begins = reply.code == ResponseCode.SUCCESS and not dry_run
            self.machines.done[self.name if begins else "asked to begin anew, refused"] += 1
            if begins and asked.no_room and self.is_short_of_room(node):
                self.let_go.append(node.name)
        self.asked.remove(asked)
        await client.close()

    def fill(self, node: Node) -> None:
        node.disk.capacity_bytes = node.disk.used_bytes() + ROOM_BYTES
        self.full_until_ms[node.name] = self.world.now_ms + self.fills.randint(*FULL_MS)
        self.machines.done["asked to begin anew with a full disk"] += 1

    def make_room(self, node: Node) -> None:
        node.disk.capacity_bytes = None
        del self.full_until_ms[node.name]

    def heal(self) -> None:
        self.due_ms = None
        self.kill_ms.clear()
        for name in list(self.full_until_ms):
            self.make_room(self.world.nodes[name])

    # What it sees

    def look_at(self, node: Node) -> None:
        data, kept = node.disk.content(storeaside.FILE), self.kept.get(node.name)
        if kept is not None and kept.wipes != node.disk.wipes:
            del self.kept[node.name]
            return
        if kept is None and data is not None:
            aside = storeaside.decode(data)
            if aside.state is State.FILLING:
                log = logs(node, aside.folder)
                durable = {path: inode for path, inode in log.items() if node.disk.is_durable(path)}
                self.kept[node.name] = Kept(
                    aside, log, durable, node.boots, node.disk.wipes, self.world.now_ms
                )
        elif kept is not None:
            self.judge(node, kept)
            if data is None:
                del self.kept[node.name]

    def judge(self, node: Node, kept: Kept) -> None:
        check, former_id = self.machines.check, kept.aside.broker_id
        if former_id in check.electable and self.world.now_ms - kept.since_ms > NOTICED_MS:
            raise Violation(
                "Z", f"{node.name} set its store aside, and its former id {former_id} is electable"
            )
        if id_on_disk(node) not in check.grants.were_in:
            self.judge_log(node, kept)

    def judge_log(self, node: Node, kept: Kept) -> None:
        """Check that the old store stays until the new copy was in a set."""
        found, lost_power = logs(node, kept.aside.folder), node.boots != kept.boots
        stays = kept.durable if lost_power else kept.log
        if not stays.items() <= found.items() <= kept.log.items():
            what = f"{node.name} lost what it set aside and was not in the set since"
            raise Violation("Z", f"{what}: expected {sorted(stays)}, seen {sorted(found)}")
        if lost_power:
            kept.log, kept.durable, kept.boots = found, found, node.boots

    def look_at_holders(self) -> None:
        """Check that enough replicas hold the records, from the moment on at which there were enough."""
        check = self.machines.check
        enough = len(check.electable) >= check.members_min
        if self.had_enough and not enough and not check.forked:
            raise Violation(
                "Z",
                f"only {sorted(check.electable)} hold what was acknowledged, expected {check.members_min}",
            )
        self.had_enough |= enough

    def look_at_room(self) -> None:
        for asked in self.asked:
            asked.no_room &= self.is_short_of_room(asked.node)
        if self.let_go:
            raise Violation("Z", f"{self.let_go} set a store aside on a disk without room for a second copy")

    def is_short_of_room(self, node: Node) -> bool:
        """Whether the disk has less room than the smallest log of any other replica, because each may be the master to copy
        from."""
        if node.disk.capacity_bytes is None:
            return False
        others = [look.store for look in self.machines.broker_looks() if look.name != node.name]
        logs = [store.max_offset() - store.min_offset() for store in others]
        return node.disk.free_bytes(node.disk.used_bytes()) < min(logs, default=0)

    def at_the_end(self) -> None:
        """Raises Violation."""

        def removed() -> bool:
            return not any(storeaside.FILE in node.disk.entries for node in self.machines.brokers)

        deadline_ms = self.world.now_ms + REMOVED_MS
        while not removed():
            if self.world.now_ms > deadline_ms:
                raise Violation(
                    "Z", f"what was set aside is still there after {REMOVED_MS} ms, though all are in the set"
                )
            self.world.run_for_ms(NOTICED_MS)


def logs(node: Node, folder: str) -> dict[str, Inode]:
    """The segments that were set aside."""
    return {path: inode for path, inode in node.disk.entries.items() if path.startswith(f"{folder}/{LOG}/")}
