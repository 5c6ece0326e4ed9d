"""Elections that controllers report: in operation, after restarts, after a change of leader, on bad disks."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from zlib import crc32

import pytest

from controller.electionhistory import ELECTIONS_MAX
from controller.electionrecorder import FILE, SAVE_AFTER_MS
from remoting.bodies.elections import Election, Elections
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from simulation.controllers.scriptedbroker import BROKER_NAME, CLUSTER_NAME
from simulation.controllers.world import ControllerWorld
from simulation.kernel.node import EPOCH_MS, SKEW_MS_MAX, Node
from tests.simulation.controllerscene import (
    asked,
    elect,
    leader_of,
    master_of,
    recorded,
    survive_faults,
    whole_cluster,
)

NAMED = f'["{BROKER_NAME}"]'.encode()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[ControllerWorld]:
    """Three controllers, three brokers, all in the SyncStateSet."""
    with whole_cluster(crc32(request.node.name.encode())) as cluster:
        yield cluster


def ask(cluster: ControllerWorld, node: Node, body: bytes | None) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO, None, body)
    return asked(cluster, node, request)


def reported(cluster: ControllerWorld, node: Node) -> list[Election]:
    return Elections.decode(ask(cluster, node, NAMED).body).elections_table.get(BROKER_NAME, [])


def after_the_master_is_killed(cluster: ControllerWorld) -> int:
    """Kills the master and waits until epoch 2 is in sync; returns the time of the kill."""
    master, killed_ms = master_of(cluster), cluster.world.now_ms
    old_id = cluster.broker(master).broker_id
    master.kill()
    cluster.world.run_until(lambda: recorded(cluster).master_epoch == 2, limit_ms=1_000)
    cluster.start_broker(master)
    cluster.world.run_until(cluster.whole, limit_ms=30_000)
    assert recorded(cluster).master_id != old_id
    return killed_ms


def followers(cluster: ControllerWorld) -> list[Node]:
    return [node for node in cluster.controllers if node is not leader_of(cluster)]


def test_every_controller_reports_an_election_and_the_leader_all_its_times(cluster: ControllerWorld) -> None:
    killed_ms = EPOCH_MS + after_the_master_is_killed(cluster)
    first, second = reported(cluster, leader_of(cluster))
    assert (first.epoch, first.old_master_id, first.reason) == (1, None, "first election")
    assert (second.epoch, second.old_master_id, second.new_master_id) == (
        2,
        first.new_master_id,
        recorded(cluster).master_id,
    )
    assert second.reason == "connection lost"
    moments = [
        second.heard_ms,
        second.noticed_ms,
        second.proposed_ms,
        second.elected_ms,
        second.notified_ms,
        second.writable_ms,
    ]
    assert None not in moments
    assert moments == sorted(moments, key=lambda moment: moment or 0)
    assert abs((second.noticed_ms or 0) - killed_ms) <= SKEW_MS_MAX + 100
    assert (second.elected_ms or 0) - (second.noticed_ms or 0) < 100
    assert (second.writable_ms or 0) - (second.noticed_ms or 0) < 5_000
    for node in followers(cluster):
        seen = reported(cluster, node)[-1]
        assert (seen.epoch, seen.new_master_id, seen.reason) == (2, second.new_master_id, second.reason)
        assert None not in (seen.heard_ms, seen.noticed_ms, seen.elected_ms, seen.writable_ms)
        assert (seen.proposed_ms, seen.notified_ms) == (None, None)


def test_an_operators_election_is_reported_as_one(cluster: ControllerWorld) -> None:
    chosen = next(iter(recorded(cluster).members - {recorded(cluster).master_id}))
    assert elect(cluster, chosen, designate=True).code == ResponseCode.SUCCESS
    seen = reported(cluster, leader_of(cluster))[-1]
    assert (seen.new_master_id, seen.reason) == (chosen, "operator asked")
    assert (seen.heard_ms, seen.noticed_ms) == (None, None), "no broker was lost"


def test_reported_elections_survive_restarts_and_a_change_of_leader(cluster: ControllerWorld) -> None:
    after_the_master_is_killed(cluster)
    leader = leader_of(cluster)
    story = reported(cluster, leader)
    cluster.world.run_for_ms(2 * SAVE_AFTER_MS)
    leader.kill(power_cut=True)
    cluster.world.run_until(lambda: cluster.leader() not in (None, leader), limit_ms=10_000)
    assert [one.epoch for one in reported(cluster, leader_of(cluster))] == [1, 2]
    cluster.start_controller(leader)
    cluster.world.run_for_ms(5_000)
    assert reported(cluster, leader) == story


def test_elections_during_a_controllers_absence_are_reported_without_times(cluster: ControllerWorld) -> None:
    away = followers(cluster)[0]
    away.kill()
    after_the_master_is_killed(cluster)
    cluster.start_controller(away)
    cluster.world.run_for_ms(5_000)
    assert reported(cluster, away)[-1] == Election(
        2, reported(cluster, away)[0].new_master_id, recorded(cluster).master_id
    )


def test_a_partitioned_controller_gives_no_times_for_missed_elections(cluster: ControllerWorld) -> None:
    away = followers(cluster)[0]
    for node in (*cluster.controllers, *cluster.brokers):
        if node is not away:
            cluster.world.network.cut(away.host, node.host)
    after_the_master_is_killed(cluster)
    cluster.world.network.heal()
    cluster.world.run_for_ms(5_000)
    assert [one.epoch for one in reported(cluster, away)] == [1, 2]
    assert reported(cluster, away)[-1].elected_ms is None


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b'{"electionsTable":{"a":7}}'], ids=["empty", "zeroes", "another shape"]
)
def test_a_damaged_file_loses_only_the_reported_elections(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the reason of an election; a snapshot of the log has not."""
    with whole_cluster(crc32(data), snapshotEntries=1_000) as cluster:
        node = followers(cluster)[0]
        cluster.world.run_for_ms(2 * SAVE_AFTER_MS)
        node.kill()
        cluster.world.run(node.runtime().files.replace(FILE, data))
        cluster.start_controller(node)
        cluster.world.run_for_ms(5_000)
        assert "earlier elections not loaded" in caplog.text
        assert reported(cluster, node) == [Election(1, None, recorded(cluster).master_id, "first election")]
        after_the_master_is_killed(cluster)
        assert reported(cluster, node)[-1].elected_ms is not None


def test_a_full_disk_loses_only_the_file_of_elections(cluster: ControllerWorld) -> None:
    cluster.world.run_for_ms(2 * SAVE_AFTER_MS)
    node = leader_of(cluster)
    node.disk.fail_next("replace", OSError(errno.ENOSPC, "no space left"), where=FILE, times=1)
    after_the_master_is_killed(cluster)
    cluster.world.run_for_ms(2 * SAVE_AFTER_MS)
    assert node.disk.failures
    assert node.running
    assert reported(cluster, node)[-1].writable_ms is not None


def test_a_request_without_a_list_of_sets_gets_upstreams_answer(
    cluster: ControllerWorld,
) -> None:
    assert ask(cluster, leader_of(cluster), None).body in (None, b"")
    assert ask(cluster, leader_of(cluster), b"{}").code == ResponseCode.SYSTEM_ERROR
    nobody = ask(cluster, leader_of(cluster), b'["nobody"]')
    assert (nobody.code, nobody.body) == (0, b'{"electionsTable":{}}')


def test_elections_of_a_cleaned_set_are_not_reported(cluster: ControllerWorld) -> None:
    for node in cluster.brokers:
        node.kill()
    ext = {"clusterName": CLUSTER_NAME, "brokerName": BROKER_NAME, "isCleanLivingBroker": "true"}
    clean = RemotingCommand.request(RequestCode.CLEAN_BROKER_DATA, ext)
    assert asked(cluster, leader_of(cluster), clean).code == ResponseCode.SUCCESS
    assert reported(cluster, leader_of(cluster)) == []


@pytest.mark.parametrize("seed", range(33, 39))
def test_all_controllers_report_the_same_elections_under_faults(seed: int) -> None:
    with whole_cluster(seed) as cluster:
        survive_faults(cluster)
        cluster.world.run_for_ms(2_000)
        held = list(cluster.checker.masters(BROKER_NAME).items())
        assert len(held) > 1
        before = dict(held)
        for node in cluster.controllers:
            story = reported(cluster, node)
            said = [(one.epoch, one.new_master_id) for one in story]
            if cluster.checker.counts["snapshots loaded"]:  # a snapshot has the last election only
                assert said[-1] == held[-1] and set(said) <= set(held)
            else:
                assert said == held[-ELECTIONS_MAX:]
            for one in story:
                if one.epoch - 1 in {epoch for epoch, _ in said}:
                    assert one.old_master_id == before[one.epoch - 1]
                moments = [one.proposed_ms, one.elected_ms, one.writable_ms]
                known = [moment for moment in moments if moment is not None]
                assert known == sorted(known)
