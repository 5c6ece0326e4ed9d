"""A set of controller mode, or a pair, whose stores are started in Raft mode in the same simulated world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.groupset import GroupSet


class MixedSet(GroupSet):
    """Uses the nodes of another set, whose brokers have stopped. No broker is started automatically."""

    def __init__(self, world: World, nodes: list[Node], client_node: Node, **settings: Any) -> None:
        self.world = world
        self._settings = settings
        self._ports, self._credentials = {}, None
        self.brokers = nodes
        self._client_node = client_node

    def start_all(self, **changed: Any) -> None:
        for node in self.brokers:
            self.start(node, **changed)


def controlled_with(world: World, sent: list[bytes], **settings: Any) -> Cluster:
    """Three running brokers under controllers; all hold the sent messages."""
    cluster = Cluster(world, 3, **settings)
    cluster.start_up()
    cluster.run(cluster.send_all(sent))
    world.run_until(
        lambda: len({cluster.app(node).store.confirm_offset() for node in cluster.brokers}) == 1, 10_000
    )
    return cluster


def stop_all(world: World, nodes: list[Node]) -> None:
    for node in nodes:
        world.run(node.stop())


def moved(world: World, sent: list[bytes], **settings: Any) -> MixedSet:
    """The same set, stopped, to be started in Raft mode."""
    cluster = controlled_with(world, sent)
    slaves = cluster.slaves
    stop_all(world, [*slaves, cluster.master])
    return MixedSet(world, cluster.brokers, cluster._client_node, **settings)


def old_files(node: Node) -> dict[str, bytes]:
    """The files of the plain log, by path."""
    return {
        path: bytes(inode.data)
        for path, inode in sorted(node.disk.entries.items())
        if path.startswith("commitlog/")
    }


def laid_out(node: Node, root: Path) -> Path:
    """The node's disk below `root`, as folders and files."""
    for name, inode in node.disk.entries.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(inode.data))
    return root
