"""A Raft group without random faults. Scenario tests control its members, by name.

Invariant: every member's messages and entries pass the same checker as in `simulation.raft.world`."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.node.node import DLedgerNode
from dledger.node.transport import PeerTransport
from dledger.raft.entries import NO_INDEX
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings
from dledger.storage.entry import INDEX_UNIT, read_index_unit
from dledger.storage.keyvalues import parse_key_values
from mqruntime.runtime import Runtime
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.check import RaftCheck
from simulation.raft.member import PORT, MemberApp, watched
from simulation.raft.oldversion import OldConversation

SETTINGS = DLedgerSettings(data_file_bytes=65536, index_file_bytes=32 * 64, entry_bytes_max=1024)


class RaftGroup:
    """Members n0, n1, ... on hosts 10.0.0.1, 10.0.0.2, ... of `world`."""

    def __init__(self, world: World, size: int, *, settings: DLedgerSettings = SETTINGS) -> None:
        self.world = world
        self.settings = settings
        self.check = RaftCheck()
        self.check.positions.holds = self.holds
        self.old: set[str] = set()
        """Members that run the version without frames at their next start."""
        self.batches = False
        """Whether state machines take several entries in one call."""
        self.overtaking_ms = 0
        """How long each call of a member may wait before it is sent."""
        self.checkpoints: dict[str, bytes] = {}
        """For each member: the core that was looked at last."""
        self.peers = {f"n{number}": f"10.0.0.{number + 1}:{PORT}" for number in range(size)}
        self.nodes = [world.node(name, address.partition(":")[0]) for name, address in self.peers.items()]
        world.after_each_step(self.look)

    def start(self, node: Node, *, peers: Mapping[str, str] | None = None) -> None:
        """Start a member with the group's list of members, or with another list."""

        def make_app(runtime: Runtime) -> MemberApp:
            core_class = watched(DLedgerNode.core_class, self.check)
            spoken = OldConversation if node.name in self.old else PeerTransport
            listed = peers or self.peers
            given = runtime, node.name, listed, self.settings, core_class, self.check, spoken
            app = MemberApp(*given, batches=self.batches)
            app.client.overtaking_ms = self.overtaking_ms
            return app

        node.start(make_app)

    def empty(self, node: Node) -> None:
        """Cut the power, and replace the disk."""
        node.kill(power_cut=True)
        node.disk.wipe()
        self.check.emptied(node.name)

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node)

    def look(self) -> None:
        if self.check.violation is not None:
            raise self.check.violation
        for node in self.nodes:
            app = node.app
            if node.is_stirred and isinstance(app, MemberApp) and app.core_number is not None:
                self.check.look(app.core_number, app.node)
                if app.machine is not None:
                    self.check.look_at_state(app.node, app.machine.last_index)
                else:
                    self.check.positions.look(app.node, len(self.check.committed_log))
                self.look_at_checkpoint(node, app.node)
        self.check.positions.answers(self.check.answer)

    def holds(self, member: str, data: bytes) -> bool:
        return self.world.nodes[member].disk.durably_holds(f"dledger-{member}/data/", data)

    def look_at_checkpoint(self, node: Node, member: DLedgerNode) -> None:
        """Check that the index units of the entries that a new checkpoint covers survive every power cut (R15)."""
        name, log = f"dledger-{node.name}", member.store.log
        data = node.disk.content(f"{name}/checkpoint")
        if data is None or log is None or data == self.checkpoints.get(node.name):
            return
        self.checkpoints[node.name] = data
        index = int(parse_key_values(name, data).get("syncedIndex", NO_INDEX))
        there = index > log.begin.index
        unit = log.index.rest_of_file(index * INDEX_UNIT.size)[: INDEX_UNIT.size] if there else None
        if unit is None:
            return
        held = node.disk.durably_holds(f"{name}/index/", bytes(unit))
        if read_index_unit(unit, index) is None or not held:
            raise self.check.found(
                "R15", f"{name} has a checkpoint up to entry {index}, whose index unit is not durable"
            )

    def member(self, node: Node) -> DLedgerNode | None:
        """The running DLedgerNode of `node`, after its start."""
        app = node.app
        return app.node if isinstance(app, MemberApp) and app.core_number is not None else None

    def members(self) -> list[DLedgerNode]:
        return [member for node in self.nodes if (member := self.member(node)) is not None]

    def running_cores(self) -> list[Raft]:
        return [member.core for member in self.members() if member.core is not None]

    def active(self) -> list[Node]:
        """The nodes that believe they lead and may serve."""
        return [node for node in self.nodes if (member := self.member(node)) is not None and member.is_active]

    def agreed(self) -> bool:
        """Whether all members run, one leads, and all have applied the same."""
        ends = {(member.applied_index, member.last_index) for member in self.members()}
        return len(self.members()) == len(self.nodes) and len(ends) == 1 and bool(self.active())
