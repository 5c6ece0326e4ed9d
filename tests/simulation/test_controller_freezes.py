"""A frozen controller, alone or with its brokers: a pause of its own does not make brokers inactive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import pytest

from simulation.controllers.world import CONTROLLER_HOSTS, CONTROLLER_PORT, ControllerWorld
from simulation.kernel.world import World
from tests.simulation.controllerscene import leader_of, master_of, recorded, whole_cluster
from tests.support.longtests import long

FREEZES_MS = (1_000, 12_000, 60_000, 600_000)
HEARTBEAT_TIMEOUT_MS = 10_000


@contextmanager
def one_controller(seed: int) -> Iterator[ControllerWorld]:
    """One controller as in `conf/quick-start`; all brokers are in sync."""
    with World(seed) as world:
        cluster = ControllerWorld(world, controllerDLegerPeers=f"n0-{CONTROLLER_HOSTS[0]}:{CONTROLLER_PORT}")
        cluster.start_controller(cluster.controllers[0])
        for node in cluster.brokers:
            cluster.start_broker(node)
        world.run_until(cluster.whole, limit_ms=30_000)
        yield cluster


@pytest.mark.parametrize("seed", [0, 1, *long(range(2, 5))])
@pytest.mark.parametrize("frozen_ms", FREEZES_MS)
def test_a_frozen_host_deposes_no_master(frozen_ms: int, seed: int) -> None:
    with one_controller(crc32(b"host") + seed) as cluster:
        epoch = recorded(cluster).master_epoch
        for node in [*cluster.controllers[:1], *cluster.brokers]:
            node.pause(frozen_ms)
        cluster.world.run_for_ms(frozen_ms + 30_000)
        cluster.world.run_until(cluster.whole, limit_ms=30_000)
        assert recorded(cluster).master_epoch == epoch


@pytest.mark.parametrize("seed", [0, 1, *long(range(2, 5))])
@pytest.mark.parametrize("frozen_ms", FREEZES_MS)
def test_a_frozen_controller_deposes_no_master(frozen_ms: int, seed: int) -> None:
    with one_controller(crc32(b"controller") + seed) as cluster:
        epoch = recorded(cluster).master_epoch
        cluster.controllers[0].pause(frozen_ms)
        cluster.world.run_for_ms(frozen_ms + 30_000)
        cluster.world.run_until(cluster.whole, limit_ms=30_000)
        assert recorded(cluster).master_epoch == epoch


@pytest.mark.parametrize("seed", [0, 1, *long(range(2, 5))])
def test_three_controllers_frozen_with_their_brokers_depose_no_master(seed: int) -> None:
    with whole_cluster(crc32(b"all") + seed) as cluster:
        epoch = recorded(cluster).master_epoch
        for node in [*cluster.controllers, *cluster.brokers]:
            node.pause(12_000)
        cluster.world.run_for_ms(42_000)
        cluster.world.run_until(cluster.whole, limit_ms=30_000)
        assert recorded(cluster).master_epoch == epoch


def test_a_silent_master_is_replaced_though_its_controller_freezes_repeatedly() -> None:
    with one_controller(crc32(b"again")) as cluster:
        epoch = recorded(cluster).master_epoch
        master_of(cluster).pause(600_000)
        began_ms = cluster.world.now_ms
        while recorded(cluster).master_epoch == epoch:
            cluster.controllers[0].pause(3_000)
            cluster.world.run_for_ms(6_000)
            assert cluster.world.now_ms - began_ms < 5 * HEARTBEAT_TIMEOUT_MS
        assert cluster.world.now_ms - began_ms > HEARTBEAT_TIMEOUT_MS


def test_a_master_that_dies_while_its_controller_is_frozen_is_replaced() -> None:
    with one_controller(crc32(b"dies")) as cluster:
        epoch = recorded(cluster).master_epoch
        master = master_of(cluster)
        leader_of(cluster).pause(12_000)
        cluster.world.run_for_ms(1_000)
        master.kill()
        cluster.world.run_until(lambda: recorded(cluster).master_epoch == epoch + 1, limit_ms=13_000)
