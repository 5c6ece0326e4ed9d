"""Invariant Z finds its violations, and allows losses by a power cut in a store that was set aside."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from broker.resync import storeaside
from broker.resync.storeaside import Aside, State
from broker.role.identity import IDENTITY_FILE, Identity
from controller.events import AlterSyncStateSet, ApplyBrokerId, Event, encode
from controller.statemachine import ReplicasStateMachine
from simulation.checkers.check import ClusterCheck
from simulation.cluster.looks import CLUSTER
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_SET
from simulation.faults.resyncs import Resyncs
from simulation.kernel.inode import Inode
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World

FOLDER = "aside-x"
FULL, MADE_AHEAD = f"{FOLDER}/commitlog/0", f"{FOLDER}/commitlog/1"
FORMER_ID, NEW_ID = 3, 4


class Scene:
    """A stopped broker with a log of two segments set aside; the name of the second is not yet durable."""

    def __init__(self, world: World) -> None:
        self.node: Node = world.node("broker-0", "10.0.2.1")
        self.disk = self.node.disk
        self.disk.share_kept = 0.0
        self.check = ClusterCheck()
        machines = SimpleNamespace(
            world=world, random=random.Random(0), check=self.check, brokers=[self.node]
        )
        self.resyncs = Resyncs(cast(Machines, machines), world.node("resyncs", "10.0.5.2"))
        self.disk.put(storeaside.FILE, Aside(State.FILLING, FOLDER, FORMER_ID, keeps=False).encode())
        self.disk.put(FULL, b"log")
        self.disk.entries[MADE_AHEAD] = Inode(3)
        self.look()

    def look(self) -> None:
        """Raises Violation."""
        self.resyncs.look_at(self.node)

    def remove(self, path: str) -> None:
        """Removes the file durably, as a process does."""
        self.disk.drop(path)

    def named(self) -> None:
        """Gives the new copy its broker id."""
        self.disk.put(IDENTITY_FILE, Identity(CLUSTER, BROKER_SET, NEW_ID).encode())

    def is_in_the_set(self, *members: int) -> None:
        """One SyncStateSet of each of these members, between two looks."""
        machine, apply = ReplicasStateMachine(), self.check.grants.noting()
        events: list[Event] = [ApplyBrokerId(CLUSTER, BROKER_SET, NEW_ID, "10.0.2.1:10911", "code")]
        events += [AlterSyncStateSet(BROKER_SET, frozenset({member}), frozenset()) for member in members]
        for index, event in enumerate(events):
            apply(machine, index, encode(event))


@pytest.fixture
def scene() -> Iterator[Scene]:
    with World(1) as world:
        yield Scene(world)


def test_a_power_cut_may_lose_a_segment_with_an_unsynced_name(scene: Scene) -> None:
    scene.node.kill(power_cut=True)
    assert MADE_AHEAD not in scene.disk.entries
    scene.look()


def test_without_a_power_cut_no_segment_may_disappear(scene: Scene) -> None:
    scene.remove(MADE_AHEAD)
    with pytest.raises(Violation, match="lost what it set aside"):
        scene.look()


def test_a_durable_segment_must_survive_a_power_cut(scene: Scene) -> None:
    scene.node.kill(power_cut=True)
    scene.remove(FULL)
    with pytest.raises(Violation, match="lost what it set aside"):
        scene.look()


def test_a_segment_that_survived_a_power_cut_may_not_disappear_later(scene: Scene) -> None:
    scene.disk.share_kept = 1.0
    scene.node.kill(power_cut=True)
    scene.look()
    assert MADE_AHEAD in scene.disk.entries
    scene.disk.share_kept = 0.0
    scene.node.kill(power_cut=True)
    scene.look()
    scene.remove(MADE_AHEAD)
    with pytest.raises(Violation, match="lost what it set aside"):
        scene.look()


def test_a_segment_that_was_not_set_aside_may_not_appear(scene: Scene) -> None:
    scene.disk.put(f"{FOLDER}/commitlog/2", b"new")
    with pytest.raises(Violation, match="lost what it set aside"):
        scene.look()


def test_the_old_store_may_be_deleted_if_the_new_copy_was_in_the_set_unobserved(scene: Scene) -> None:
    scene.named()
    scene.is_in_the_set(NEW_ID, 1)
    scene.remove(FOLDER)
    scene.look()


@pytest.mark.parametrize("member", [1, FORMER_ID])
def test_other_members_of_the_set_are_not_the_new_copy(scene: Scene, member: int) -> None:
    scene.named()
    scene.is_in_the_set(member)
    scene.remove(FOLDER)
    with pytest.raises(Violation, match="lost what it set aside"):
        scene.look()


def test_a_copy_without_an_id_was_never_in_the_set(scene: Scene) -> None:
    scene.is_in_the_set(NEW_ID)
    scene.remove(FOLDER)
    with pytest.raises(Violation, match="lost what it set aside"):
        scene.look()
