"""Resyncs of replicas by an operator, on virtual time."""

from __future__ import annotations

import asyncio
import errno
import random
from contextlib import suppress
from unittest.mock import patch

import pytest

from broker.resync import storeaside
from broker.resync.storeaside import StoreAside, StoreAsideUnreadable, entries
from broker.role.membership import ReplicaRole
from controller.processor import RequestProcessor
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.admin import ResyncBrokerHeader, ResyncBrokerResponseHeader
from remoting.router import Router
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster, leading_state
from tests.support.doubles import MemoryFiles

STORE = entries("brokerIdentity", "epochFileCheckpoint")


def resync(cluster: Cluster, node: Node, *, dry_run: bool = False) -> RemotingCommand:
    header = ResyncBrokerHeader(dry_run=dry_run)
    reply = cluster.run(cluster.ask(f"{node.host}:10911", RequestCode.RESYNC_BROKER, header))
    assert isinstance(reply, RemotingCommand)
    return reply


async def resync_unanswered(cluster: Cluster, node: Node) -> None:
    """Sends a resync request and ignores its outcome."""
    with suppress(RemotingError):
        await cluster.ask(f"{node.host}:10911", RequestCode.RESYNC_BROKER, ResyncBrokerHeader())


def known_ids(cluster: Cluster) -> set[int]:
    """The broker ids that the leading controller has registered."""
    return set(leading_state(cluster.world).replicas["broker-a"].by_id)


def aside(node: Node) -> list[str]:
    return sorted(path for path in node.disk.entries if path.startswith(storeaside.PREFIX))


def full_cluster(world: World, **settings: object) -> Cluster:
    cluster = Cluster(world, 3, **settings)
    cluster.start_up()
    cluster.run(cluster.send_all([b"before %d" % number for number in range(30)]))
    return cluster


def test_a_resync_keeps_the_old_store_aside_until_the_member_is_in_the_set_again() -> None:
    with World(81) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        former = cluster.app(slave).membership.broker_id
        assert former is not None
        log = {
            path: bytes(inode.data)
            for path, inode in slave.disk.entries.items()
            if path.startswith("commitlog/")
        }
        reply = resync(cluster, slave)
        plan = ResyncBrokerResponseHeader.from_ext(reply.ext)
        assert reply.code == 0 and plan.broker_id == former and plan.log_bytes > 0 and not plan.keeps
        assert former not in known_ids(cluster)
        world.run_until(lambda: not slave.running, 5_000)
        assert slave.failure is None and slave.left_behind == []
        assert {"commitlog/" + path.rpartition("/")[2] for path in log} == log.keys()
        cluster.start(slave)
        world.run_until(lambda: bool(aside(slave)), 5_000)
        world.run_until(lambda: slave.app is not None and cluster.app(slave).membership.registered, 10_000)
        kept = {path: slave.disk.content(f"{plan.folder}/{path}") for path in log}
        assert kept == log
        joined = cluster.app(slave).membership.broker_id
        assert joined is not None and joined > former, "the former id is not used again"
        cluster.wait_in_sync(3)
        assert aside(slave), "the old store is kept until the broker knows that it is in the set"
        world.run_until(lambda: not aside(slave), 10_000)
        world.run_until(lambda: storeaside.FILE not in slave.disk.entries, 1_000)
        cluster.run(cluster.send_all([b"after"]))
        cluster.master.kill()
        cluster.wait_in_sync(2, 20_000)
        assert len(cluster.run(cluster.read_all())) == 31


def test_a_resync_hardly_delays_sends() -> None:
    with World(82) as world:
        cluster = full_cluster(world)
        resync(cluster, cluster.slaves[0])
        world.run_for_ms(100)
        began_ms = world.now_ms
        cluster.run(cluster.send_all([b"meanwhile"]))
        assert world.now_ms - began_ms < 500
        assert cluster.in_sync(2)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_resync_of_the_master_or_a_needed_member_is_refused_with_the_reason(dry_run: bool) -> None:
    with World(83) as world:
        cluster = full_cluster(world)
        master, slave = cluster.master, cluster.slaves[0]
        reply = resync(cluster, master, dry_run=dry_run)
        assert reply.code == ResponseCode.NO_PERMISSION and "is the master" in (reply.remark or "")
        other = next(node for node in cluster.brokers if node not in (master, slave))
        other.kill()
        cluster.wait_in_sync(2)
        reply = resync(cluster, slave, dry_run=dry_run)
        assert reply.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert "minInSyncReplicas is 2" in (reply.remark or "")
        world.run_for_ms(10_000)
        assert slave.running and cluster.in_sync(2) and not aside(slave)
        assert cluster.app(slave).membership.registered
        cluster.run(cluster.send_all([b"after"]))


def test_a_dry_run_of_a_resync_reports_and_changes_nothing() -> None:
    with World(84) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        broker_id = cluster.app(slave).membership.broker_id
        plan = ResyncBrokerResponseHeader.from_ext(resync(cluster, slave, dry_run=True).ext)
        assert plan.broker_id == broker_id and plan.folder.startswith("aside-20")
        world.run_for_ms(10_000)
        assert slave.running and cluster.in_sync(3) and not aside(slave)
        assert broker_id in known_ids(cluster)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("forcibly", [True, False])
def test_a_resync_is_refused_on_a_disk_that_cannot_hold_both_stores(dry_run: bool, forcibly: bool) -> None:
    with World(183) as world:
        cluster = full_cluster(world, cleanFileForciblyEnable=forcibly)
        slave = cluster.slaves[0]
        broker_id, needed = cluster.app(slave).membership.broker_id, 2 * 64 * 1024
        used = slave.disk.used_bytes()
        enough = -(-100 * (used + needed) // 85) if forcibly else used + needed
        slave.disk.capacity_bytes = enough - 2
        reply = resync(cluster, slave, dry_run=dry_run)
        remark = reply.remark or ""
        assert (
            reply.code == ResponseCode.NO_PERMISSION
            and f"needs {needed} bytes" in remark
            and "make room" in remark
        )
        assert ("diskSpaceCleanForciblyRatio=85" in remark) is forcibly
        world.run_for_ms(5_000)
        assert slave.running and cluster.in_sync(3) and not aside(slave) and broker_id in known_ids(cluster)
        slave.disk.capacity_bytes = enough + slave.disk.used_bytes() - used + 100 * 4096
        assert resync(cluster, slave, dry_run=dry_run).code == ResponseCode.SUCCESS


def test_a_resync_is_refused_if_the_master_does_not_report_the_size_of_its_log() -> None:
    with World(184) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        world.network.cut(slave.host, cluster.master.host)
        reply = resync(cluster, slave)
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE and "the master" in (reply.remark or "")
        world.network.heal()
        world.run_for_ms(10_000)
        assert slave.running and cluster.in_sync(3) and not aside(slave)


def test_only_one_of_two_concurrent_resync_requests_succeeds() -> None:
    with World(185) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]

        async def both() -> list[RemotingCommand]:
            asked = (
                cluster.ask(f"{slave.host}:10911", RequestCode.RESYNC_BROKER, ResyncBrokerHeader())
                for _ in range(2)
            )
            return list(await asyncio.gather(*asked))

        codes = [reply.code for reply in cluster.run(both())]
        assert sorted(codes) == [ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION]


def test_a_resync_without_controllers_is_refused_and_changes_nothing() -> None:
    with World(85) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        for number in range(3):
            world.nodes[f"controller-{number}"].kill()
        reply = resync(cluster, slave)
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE and "nothing" in (reply.remark or "")
        for number, host in enumerate(("10.0.1.1", "10.0.1.2", "10.0.1.3")):
            world.nodes[f"controller-{number}"].start(cluster._controller(number, host))
        world.run_for_ms(20_000)
        assert slave.running and not aside(slave)
        cluster.run(cluster.send_all([b"after"]))
        cluster.wait_in_sync(3)


def test_a_resync_continues_after_its_client_is_gone() -> None:
    with World(87) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        client = world.nodes["client"]
        asking = client.spawn(resync_unanswered(cluster, slave))
        world.run_until(lambda: cluster.app(slave).membership.calls_held, 1_000)
        asking.cancel()
        client.kill()
        world.run_until(lambda: not slave.running, 5_000)
        cluster.start(slave)
        world.run_until(lambda: bool(aside(slave)), 5_000)
        cluster.wait_in_sync(3)


def test_a_resync_whose_plan_cannot_be_written_leaves_the_broker_unchanged() -> None:
    with World(89) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        broker_id = cluster.app(slave).membership.broker_id
        full = OSError(errno.ENOSPC, "No space left on device")
        slave.disk.fail_next("replace", full, where=storeaside.FILE)
        reply = resync(cluster, slave)
        assert reply.code == ResponseCode.SYSTEM_ERROR and "make room" in (reply.remark or "")
        cluster.wait_in_sync(3, 20_000)
        assert cluster.app(slave).membership.broker_id == broker_id and not aside(slave)


def test_a_resync_restores_a_slave_that_retention_left_behind() -> None:
    retention = {
        "mappedFileSizeCommitLog": 16 * 1024,
        "fileReservedSeconds": 5,
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "cleanResourceInterval": 500,
    }
    with World(180) as world:
        cluster = full_cluster(world, **retention)
        slave = cluster.slaves[0]
        slave.kill()
        cluster.wait_in_sync(2)
        cluster.run(cluster.send_all([bytes(1500)] * 60))
        begins = cluster.app(cluster.master).store.min_offset
        held = slave.disk.content("checkpoint")
        assert held is not None
        world.run_until(lambda: begins() > 3 * 16 * 1024, 30_000)
        cluster.start(slave)
        world.run_until(lambda: slave.app is not None and cluster.app(slave).ha.stays_out is not None, 20_000)
        reply = resync(cluster, slave)
        plan = ResyncBrokerResponseHeader.from_ext(reply.ext)
        assert reply.code == 0 and not plan.keeps, "the log of its master contains the old store"
        world.run_until(lambda: not slave.running, 5_000)
        cluster.start(slave)
        cluster.wait_in_sync(3, 20_000)
        world.run_until(lambda: storeaside.FILE not in slave.disk.entries, 10_000)
        assert cluster.app(slave).store.min_offset() >= begins() - 16 * 1024


def test_a_member_with_unique_data_is_resynced_only_when_not_eligible_and_keeps_its_store() -> None:
    """Beyond the contract: an operator elects the member with the shorter log."""
    with World(181) as world:
        cluster = full_cluster(world)
        world.run_for_ms(3_000)
        master = cluster.master
        whole, away = (node for node in cluster.brokers if node is not master)
        away.kill()
        cluster.wait_in_sync(2)
        master.disk.stall(60_000)
        cluster.run(cluster.send_all([b"on one disk"] * 20))
        world.run_for_ms(3_000)
        whole.kill()
        master.disk.share_kept = 0.0
        master.kill(power_cut=True)
        master.disk.stall(0)
        cluster.start(master)
        world.run_for_ms(15_000)
        assert not cluster.masters
        cluster.run(cluster.designate(cluster.app(master).membership.broker_id))
        cluster.start(whole)
        world.run_until(lambda: whole.app is not None and cluster.app(whole).ha.stays_out is not None, 30_000)
        reply = resync(cluster, whole)
        assert reply.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, (
            "an eligible member may still lead"
        )
        cluster.start(away)
        cluster.wait_in_sync(2, 30_000)
        cluster.run(cluster.send_all([b"without it"]))
        plan = ResyncBrokerResponseHeader.from_ext(resync(cluster, whole).ext)
        assert plan.keeps
        world.run_until(lambda: not whole.running, 5_000)
        cluster.start(whole)
        cluster.wait_in_sync(3, 30_000)
        world.run_until(lambda: storeaside.FILE not in whole.disk.entries, 10_000)
        kept = b"".join(
            bytes(whole.disk.entries[path].data) for path in aside(whole) if "/commitlog/" in path
        )
        assert kept.count(b"on one disk") == 20


class DoubtfulFiles(MemoryFiles):
    """Replaced files are on disk, although their sync fails."""

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        await super().replace(name, data)
        raise OSError(errno.EIO, "Input/output error")


def test_a_resync_plan_whose_write_failed_is_carried_out_if_it_is_on_disk() -> None:
    files = DoubtfulFiles({"commitlog/0": b"log"})
    doubtful = opened(files)
    asyncio.run(doubtful.plan("aside-x", 3, keeps=False))
    assert doubtful.now is not None
    after = MemoryFiles(files.content)
    opened(after)
    assert "aside-x/commitlog/0" in after.content


def test_a_resync_under_controllers_without_support_is_refused() -> None:
    add_to = RequestProcessor.add_to

    def as_upstream(processor: RequestProcessor, router: Router) -> None:
        add_to(processor, router)
        del router.handlers[RequestCode.GIVE_UP_REPLICA]

    with World(182) as world, patch.object(RequestProcessor, "add_to", as_upstream):
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        for dry_run in (True, False):
            reply = resync(cluster, slave, dry_run=dry_run)
            assert reply.code == ResponseCode.NO_PERMISSION and "do not report" in (reply.remark or "")
        world.run_for_ms(10_000)
        assert slave.running and cluster.in_sync(3) and not cluster.app(slave).membership.calls_held


def test_a_resynced_learner_drops_the_old_store_once_it_caught_up() -> None:
    with World(86) as world:
        cluster = full_cluster(world)
        learner = world.node("learner", "10.0.2.9")
        cluster.brokers.append(learner)
        cluster.start(learner, asyncLearner=True)
        end = cluster.app(cluster.master).store.max_offset
        world.run_until(
            lambda: learner.app is not None and cluster.app(learner).store.max_offset() == end(), 20_000
        )
        assert resync(cluster, learner).code == 0
        world.run_until(lambda: not learner.running, 5_000)
        cluster.start(learner, asyncLearner=True)
        world.run_until(lambda: bool(aside(learner)), 5_000)
        world.run_until(lambda: not aside(learner), 20_000)
        assert cluster.app(learner).store.max_offset() == end()


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_member_killed_at_any_moment_of_a_resync_ends_in_the_set(seed: int, power_cut: bool) -> None:
    """The files show each start how far the resync got; if nothing happened the broker starts unchanged."""
    chance = random.Random(f"{seed}/{power_cut}")
    with World(90 + seed) as world:
        cluster = full_cluster(world)
        slave = cluster.slaves[0]
        world.nodes["client"].spawn(resync_unanswered(cluster, slave))
        for _ in range(12):
            world.run_for_ms(chance.randint(1, 60))
            if slave.running and chance.random() < 0.6:
                slave.kill(power_cut=power_cut)
            if not slave.running and chance.random() < 0.7:
                cluster.start(slave)
        if not slave.running:
            cluster.start(slave)
        for _ in range(400):  # it may still stop to restart itself
            world.run_for_ms(50)
            if not slave.running:
                cluster.start(slave)
        cluster.wait_in_sync(3, 20_000)
        world.run_until(lambda: not aside(slave) and storeaside.FILE not in slave.disk.entries, 20_000)
        assert cluster.app(slave).membership.role is ReplicaRole.SLAVE
        assert len(cluster.run(cluster.read_all())) == 30
        stores = [cluster.app(node).store for node in cluster.brokers]
        world.run_until(lambda: len({store.max_offset() for store in stores}) == 1, 10_000)


def test_a_running_broker_has_only_listed_entries_in_its_root() -> None:
    """An unlisted entry would stay behind after a resync, and belong to the removed store."""
    with World(88) as world:
        cluster = full_cluster(world, allAckInSyncStateSet=False, minInSyncReplicas=1)
        world.run_for_ms(15_000)
        found = {path.partition("/")[0] for node in cluster.brokers for path in node.disk.entries}
        assert found <= set(STORE), found - set(STORE)


def opened(files: MemoryFiles) -> StoreAside:
    """The state after a start with these files."""
    aside = StoreAside(files, files, STORE)
    asyncio.run(aside.open())
    return aside


def test_an_interrupted_move_of_the_old_store_is_finished_at_the_next_start() -> None:
    names = ("storeMark", "commitlog/0", "mine.conf", "config/a.json")
    files = MemoryFiles({name: name.encode() for name in names})
    first = opened(files)
    assert first.now is None
    folder = first.folder_at(1_763_845_623_045)
    assert folder == "aside-20251122T210703.045Z"
    asyncio.run(first.plan(folder, 3, keeps=False))
    asyncio.run(files.move("storeMark", folder))  # the process is killed here
    again = opened(files)
    assert again.now is not None and again.now.broker_id == 3
    moved = {f"{folder}/{name}" for name in names if name != "mine.conf"}
    assert set(files.content) == {storeaside.FILE, "mine.conf", *moved}
    files.content["commitlog/0"] = b"new"
    third = opened(files)
    assert files.content["commitlog/0"] == b"new", "new files are never moved"
    asyncio.run(third.joined())
    assert set(files.content) == {"mine.conf", "commitlog/0"}


def test_an_old_store_that_may_be_the_only_copy_is_kept_for_the_operator() -> None:
    files = MemoryFiles({"commitlog/0": b"log"})
    asyncio.run(opened(files).plan("aside-x", 3, keeps=True))
    asyncio.run(opened(files).joined())
    assert set(files.content) == {"aside-x/commitlog/0"}


@pytest.mark.parametrize(
    "data", [b"", b"state=moving\n", b"state=filling\nfolder=../x\nbroker_id=1\n", b"\xff"]
)
def test_a_damaged_plan_is_refused(data: bytes) -> None:
    files = MemoryFiles({storeaside.FILE: data, "commitlog/0": b"log"})
    with pytest.raises(StoreAsideUnreadable):
        opened(files)
    assert "commitlog/0" in files.content
