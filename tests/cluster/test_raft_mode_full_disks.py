"""A Raft-mode set with full disks: no member stops, no message is lost, and it resumes with room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqclient.errors import SendOutcomeUnknown, SendRefused
from remoting.codes import ResponseCode
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.groupset import GroupSet

BODIES = [b"%d " % number + b"x" * 3_000 for number in range(60)]
"""Several files of the log."""
FILE_BYTES = 64 * 1024
SMALL_FILES_BYTES = 20_000
FULL_MS = 30_000


@pytest.fixture
def world() -> Iterator[World]:
    with World(23) as world:
        yield world


def started(world: World, **settings: object) -> GroupSet:
    kept_whole = {"cleanFileForciblyEnable": False, "diskSpaceWarningLevelRatio": 100}
    group = GroupSet(world, **kept_whole | settings)
    group.start_up()
    group.run(group.send_all(BODIES[:5]))
    world.run_until(group.caught_up, 20_000)
    return group


def fill(*nodes: Node) -> None:
    for node in nodes:
        node.disk.capacity_bytes = node.disk.used_bytes() + SMALL_FILES_BYTES


def make_room(*nodes: Node) -> None:
    for node in nodes:
        node.disk.capacity_bytes = None


def all_serve(group: GroupSet) -> bool:
    return all(node.serving and node.incarnation == 1 for node in group.brokers)


def test_a_follower_with_a_full_disk_delays_no_send_and_catches_up_once_it_has_room(world: World) -> None:
    group = started(world)
    full = group.slaves[0]
    fill(full)
    group.run(group.send_all(BODIES))
    world.run_for_ms(FULL_MS)
    store = group.app(full).store
    assert store.confirm_offset() < group.app(group.master).store.confirm_offset()
    assert all_serve(group)
    make_room(full)
    world.run_until(group.caught_up, 20_000)
    assert {*group.bodies()} == set(BODIES)


def test_a_leader_whose_disk_fills_up_transfers_leadership(world: World) -> None:
    group = started(world)
    full = group.master
    fill(full)
    group.run(group.send_all(BODIES))
    assert group.master is not full
    assert {*group.bodies()} == set(BODIES)
    make_room(full)
    world.run_until(group.caught_up, 30_000)
    assert all_serve(group)


def test_a_set_with_full_disks_refuses_sends_serves_reads_and_resumes_with_room(world: World) -> None:
    group = started(world)
    fill(*group.brokers)
    acknowledged: list[bytes] = []

    async def send() -> SendRefused:
        async with group.client() as client:
            producer = client.producer("producers")
            while True:
                try:
                    for body in BODIES[5:]:
                        await producer.send("orders", body)
                        acknowledged.append(body)
                except SendOutcomeUnknown:
                    continue  # no majority has room for it
                except SendRefused as refused:
                    return refused

    refused = group.run(send())
    world.run_for_ms(FULL_MS)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert all_serve(group)
    assert set(BODIES[:5] + acknowledged) <= {*group.bodies()}
    make_room(*group.brokers)
    group.wait_for_master()
    group.run(group.send_all(BODIES))
    world.run_until(group.caught_up, 30_000)
    assert {*group.bodies()} == set(BODIES) and all_serve(group)


def test_retention_makes_room_for_new_messages_on_full_disks(world: World) -> None:
    group = started(
        world,
        fileReservedSeconds=5,
        deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
        cleanResourceInterval=500,
    )
    for node in group.brokers:
        node.disk.capacity_bytes = node.disk.used_bytes() + 5 * FILE_BYTES + FILE_BYTES // 2
    for _ in range(6):
        group.run(group.send_all(BODIES))
    assert group.app(group.master).store.min_offset() > 0
    world.run_until(group.caught_up, 30_000)
    assert all_serve(group)
