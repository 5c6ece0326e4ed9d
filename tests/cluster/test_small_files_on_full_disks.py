"""Disks without room for small files: no process stops, problems are logged, and all resume with room."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable

import pytest

from broker.role.identity import IDENTITY_FILE
from broker.tables.topics import TOPICS_FILE
from controller.server import ControllerApp
from epochfile.file import DEFAULT_NAME as EPOCH_FILE
from mqclient.producer import SendStatus
from remoting.codes import RequestCode
from remoting.headers.admin import CreateTopicHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, Cluster

BODIES = [f"message {number}".encode() for number in range(20)]
FULL_MS = 40_000
"""Longer than the interval of reminders."""
REMINDERS = 2


def fill(*nodes: Node) -> None:
    for node in nodes:
        node.disk.capacity_bytes = node.disk.used_bytes()


def make_room(*nodes: Node) -> None:
    for node in nodes:
        node.disk.capacity_bytes = None


def assert_running(nodes: Iterable[Node]) -> None:
    assert {node.name: node.failure for node in nodes if not node.running} == {}


def test_a_broker_starts_on_a_disk_that_filled_up_after_a_stop_or_a_kill() -> None:
    with World(61) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES))
        slave = cluster.slaves[0]
        for end in ("stopped", "killed"):
            if end == "killed":
                slave.kill()
            else:
                world.run(slave.stop(), limit_ms=10_000)
            cluster.wait_in_sync(2)
            fill(slave)
            cluster.start(slave)
            cluster.wait_in_sync(3)
            assert_running([slave])


def count_of(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def controllers_of(cluster: Cluster) -> list[Node]:
    return [cluster.world.nodes[f"controller-{number}"] for number in range(len(CONTROLLERS))]


def leader_of(cluster: Cluster) -> Node | None:
    nodes = controllers_of(cluster)
    return next(
        (node for node in nodes if isinstance(node.app, ControllerApp) and node.app.node.is_active), None
    )


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_slave_copies_its_masters_tables_and_writes_them_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(51) as world:
        cluster = Cluster(world, 3, slaveSyncInterval=1_000)
        cluster.start_up()
        world.run_for_ms(2_000)
        slave = cluster.slaves[0]
        fill(slave)
        caplog.clear()
        header = CreateTopicHeader("invoices", "TBW102", 4, 4, 6)
        cluster.run(
            cluster.ask(cluster.app(cluster.master).address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        )
        world.run_for_ms(FULL_MS)
        assert_running([slave])
        assert cluster.app(slave).tables.topics.find("invoices") is not None
        assert b"invoices" not in (slave.disk.content(TOPICS_FILE) or b"")
        assert count_of(caplog, "tables cannot be written, retrying; make room") == REMINDERS
        make_room(slave)
        world.run_for_ms(7_000)
        assert b"invoices" in (slave.disk.content(TOPICS_FILE) or b"")
        assert count_of(caplog, "tables can be written again") == 1


def test_replicas_on_full_disks_follow_and_lead_a_new_epoch() -> None:
    """This holds while its segment has room: an elected slave with a full disk must become master."""
    with World(52) as world:
        cluster = Cluster(world, 2, minInSyncReplicas=1)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES))
        world.run_for_ms(2_000)
        former, slave = cluster.master, cluster.slaves[0]
        fill(*cluster.brokers)
        former.kill()
        world.run_until(lambda: bool(cluster.masters), 20_000)
        assert cluster.master is slave
        cluster.start(former)
        cluster.wait_in_sync(2, 20_000)
        assert_running(cluster.brokers)
        assert slave.disk.content(EPOCH_FILE) == former.disk.content(EPOCH_FILE)
        assert len(slave.disk.content(EPOCH_FILE) or b"") > len(b"1\n1\n1-0\n")


def test_a_replica_on_a_full_disk_leads_after_it_caught_up_from_a_memory_loss() -> None:
    with World(52) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES))
        world.run_for_ms(2_000)
        master, slave = cluster.master, cluster.slaves[0]
        slave.kill(power_cut=True)
        fill(slave)
        cluster.start(slave)
        cluster.wait_in_sync(2, 20_000)
        world.run_for_ms(2_000)
        master.kill()
        world.run_until(lambda: cluster.masters == [slave], 20_000)


def test_a_slave_without_room_for_a_new_epoch_copies_none_of_it_until_it_has_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a disk that cannot overwrite a file in place."""
    with World(52) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES))
        world.run_for_ms(2_000)
        former, slave = cluster.master, cluster.slaves_by_id()[-1]
        epochs, end = cluster.app(slave).ha.history, cluster.app(slave).store.max_offset()
        fill(slave)
        slave.disk.fail_next("overwrite", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), times=1_000)
        former.kill()
        cluster.start(former)
        caplog.clear()
        world.run_until(lambda: bool(cluster.masters), 30_000)
        assert cluster.master is not slave, "a broker that cannot write its epoch must not lead"
        world.run_for_ms(FULL_MS)
        assert_running([slave])
        assert cluster.app(slave).ha.history == epochs
        assert cluster.app(slave).store.max_offset() == end
        assert REMINDERS <= count_of(caplog, "make room on this broker's disk") <= 3 * REMINDERS
        make_room(slave)
        cluster.wait_in_sync(3, 20_000)
        assert slave.disk.content(EPOCH_FILE) == cluster.master.disk.content(EPOCH_FILE)


def test_an_elected_broker_that_cannot_write_its_epoch_yields_to_one_that_can() -> None:
    with World(52) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES))
        world.run_for_ms(2_000)
        former, elected = cluster.master, cluster.slaves_by_id()[0]
        fill(elected)
        elected.disk.fail_next("overwrite", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), times=1_000)
        former.kill()
        world.run_until(lambda: bool(cluster.masters), 15_000)
        assert cluster.master not in (former, elected)
        assert cluster.app(cluster.master).membership.master_epoch == 3, (
            "the first candidate was elected before"
        )
        assert_running([elected])


def test_a_master_whose_disk_stays_full_yields_to_a_replica_that_has_room() -> None:
    with World(57) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES))
        world.run_for_ms(2_000)
        former = cluster.master
        fill(former)
        cluster.run(cluster.send_all([b"x" * 4_000] * 40))
        assert cluster.master is not former, "sends continue at another broker"
        assert_running(cluster.brokers)


def test_a_master_whose_disk_hangs_yields() -> None:
    with World(58) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        former = cluster.master
        former.disk.stall(60_000)
        cluster.run(cluster.send_all(BODIES))
        world.run_until(lambda: any(node is not former for node in cluster.masters), 20_000)
        cluster.run(cluster.send_all(BODIES))


def test_a_new_broker_on_a_full_disk_waits_for_room_to_save_its_id(caplog: pytest.LogCaptureFixture) -> None:
    with World(54) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        for node in controllers_of(cluster):
            node.pause(5_000)
        new = world.node("broker-2", "10.0.2.3")
        cluster.brokers.append(new)
        cluster.start(new)
        world.run_for_ms(2_000)
        fill(new)
        caplog.clear()
        world.run_for_ms(FULL_MS)
        assert_running([new])
        assert new.disk.content(IDENTITY_FILE) is None
        assert count_of(caplog, "broker id cannot be saved, retrying; make room") == REMINDERS
        make_room(new)
        cluster.wait_in_sync(3, 20_000)


def test_killed_brokers_restart_on_full_disks_and_lose_no_message() -> None:
    with World(55) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        results = cluster.run(cluster.send_all(BODIES))
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        world.run_for_ms(2_000)
        for node in cluster.brokers:
            node.kill()
            fill(node)
            cluster.start(node)
        world.run_for_ms(FULL_MS)
        assert_running(cluster.brokers)
        make_room(*cluster.brokers)
        world.run_until(lambda: bool(cluster.masters), 20_000)
        cluster.wait_in_sync(3, 20_000)
        found = cluster.run(cluster.read_all())
        assert sorted(message.plain_body() for message in found) == sorted(BODIES)


def test_a_stop_on_a_full_disk_leaves_a_store_that_starts_again() -> None:
    with World(56) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        slave = cluster.slaves[0]
        cluster.run(cluster.send_all(BODIES))
        fill(slave)
        world.run(slave.stop(), limit_ms=10_000)
        assert slave.failure is None
        make_room(slave)
        cluster.start(slave)
        cluster.wait_in_sync(3, 20_000)


def test_controllers_on_full_disks_keep_their_leader_and_elect_one_once_they_have_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(57) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        controllers = controllers_of(cluster)
        fill(*controllers)
        former = cluster.master
        former.kill()
        world.run_until(lambda: bool(cluster.masters), 10_000)
        cluster.start(former)
        cluster.wait_in_sync(3, 20_000)
        leader = leader_of(cluster)
        assert leader is not None
        leader.kill()
        others = [node for node in controllers if node is not leader]
        world.run_for_ms(FULL_MS)
        assert leader_of(cluster) is None, "a vote was sent that is not on disk"
        assert_running(others)
        line = "cannot be written and this member takes no part until it is; make room"
        assert count_of(caplog, line) == REMINDERS, (
            "logged by one candidate; the other one stops at its pre-vote"
        )
        assert cluster.masters, "the last master still serves"
        make_room(*others)
        world.run_until(lambda: leader_of(cluster) is not None, 10_000)
        assert count_of(caplog, "is written, this member takes part again") == 1
