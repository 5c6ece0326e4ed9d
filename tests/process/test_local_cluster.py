"""A cluster of real processes: name server, three controllers, three brokers, in a directory with blanks in
its name.

The tests share the cluster and run in order; each leaves all replicas in sync."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import DrillKind, DrillReport, run_drills
from localcluster.history import Found, MessagePlace, SendAttempt, SendOutcome, judge
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from localcluster.load import body_hash, read_back
from localcluster.processes import ProcessTable
from localcluster.status import StatusRow, status_rows
from localcluster.transacting import QUICK_CHECKS
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqclient.consumer import PullStatus
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import OutgoingMessage
from mqruntime.clock import SystemClock
from scripts.peers.waits import WAIT_MS

ROOT = Path(__file__).parents[2]

PYTHONS = re.compile(
    r".*(?:\b[A-Z]\w+\(\w+=|<\w[\w.]* (?:object|at 0x)|<\w+\.\w+: \d+>|\bfrozenset\(|Path\(').*"
)
"""Lines that contain a value in Python's notation."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("real processes") / "a cluster"
    with Cluster.create(folder, broker_settings=QUICK_CHECKS) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def mqadmin(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mqadmin", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def whole(cluster: Cluster) -> SyncStateInfo:
    return asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


def drilled(cluster: Cluster, kind: DrillKind, topic: str, count: int = 1) -> DrillReport:
    said: list[str] = []
    report = asyncio.run(
        run_drills(
            cluster,
            kind,
            count,
            seed=7,
            topic=topic,
            say=said.append,
            settle_ms=100,
            in_order=True,
            in_transactions=True,
        )
    )
    assert report.verdict is not None and report.order is not None and report.ends is not None
    assert report.verdict.faults == []
    assert report.order.faults == []
    assert report.ends.faults == []
    assert report.ends.committed and report.ends.rolled_back
    assert report.order.handled - report.order.again == report.verdict.read
    assert report.failure is None, f"{report.failure}\n" + "\n".join(said)
    assert len(report.drills) == count
    return report


async def send_and_read_back(cluster: Cluster, topic: str, count: int) -> list[SendAttempt]:
    """Sends `count` messages at once; each must be acknowledged and readable. Returns them."""
    await cluster.create_topic(topic)
    clock = SystemClock()
    async with Client(cluster.layout.namesrv, clock=clock, random=random.Random(3)) as client:
        producer = client.producer("PG")

        async def send(number: int) -> SendAttempt:
            body = f"body {number}".encode() * (1 + number % 50)
            result = await producer.send(topic, body, keys=str(number), timeout_ms=WAIT_MS)
            assert result.acknowledged
            return SendAttempt(
                str(number),
                body_hash(body),
                SendOutcome.ACKNOWLEDGED,
                0,
                1,
                MessagePlace(str(result.queue), result.queue_offset),
            )

        attempts = list(await asyncio.gather(*map(send, range(count))))
        verdict = judge(attempts, await read_back(client.consumer("CG"), topic, attempts, WAIT_MS))
    assert verdict.faults == []
    assert verdict.read == count
    return attempts


async def found_in(cluster: Cluster, topic: str, attempts: list[SendAttempt]) -> list[Found]:
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(4)) as client:
        return await read_back(client.consumer("CG"), topic, attempts, WAIT_MS)


def test_every_broker_joins_and_takes_its_role(cluster: Cluster) -> None:
    async def roles_taken() -> dict[str, StatusRow]:
        rows = {row.name: row for row in await status_rows(cluster)}
        roles = sorted(rows[name].role for name in cluster.layout.controller_names)
        if roles != ["follower", "follower", "leader"]:
            raise NotYet(str(roles))
        return rows

    rows = asyncio.run(wait_for("one leader", roles_taken, WAIT_MS))
    assert {row.process for row in rows.values()} == {"running"}
    assert sorted(rows[name].role for name in cluster.layout.broker_names) == ["master", "slave", "slave"]
    details = [rows[name].detail.split(", ")[:2] for name in cluster.layout.broker_names]
    assert sorted(details) == [[BROKER_SET, f"id {number}"] for number in (1, 2, 3)]
    assert json.loads((cluster.directory / "pids.json").read_text()) == {
        name: row.pid for name, row in rows.items()
    }


def test_messages_are_acknowledged_and_read_back_at_their_offsets(cluster: Cluster) -> None:
    asyncio.run(send_and_read_back(cluster, "First", 500))


def test_a_waiting_consumer_reads_a_batch_and_commits_its_offset(cluster: Cluster) -> None:
    asyncio.run(cluster.create_topic("Batches", 1))

    async def scenario() -> None:
        async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(6)) as client:
            consumer = client.consumer("CG")
            [queue] = await consumer.queues("Batches")
            waiting = asyncio.create_task(consumer.pull(queue, 0, suspend_ms=60_000))
            messages = [
                OutgoingMessage(f"{number}".encode(), {"TAGS": f"tag{number % 2}"}) for number in range(6)
            ]
            sent = await client.producer("PG").send_batch("Batches", messages, timeout_ms=WAIT_MS)
            assert (sent.acknowledged, sent.queue_offset) == (True, 0)
            pulled = await waiting
            assert [message.body for message in pulled.messages] == [b"0", b"1", b"2", b"3", b"4", b"5"]
            odd = await consumer.pull(queue, 0, tags="tag1")
            assert [message.queue_offset for message in odd.messages] == [1, 3, 5]
            assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 6)
            await consumer.commit(queue, pulled.next_offset)
            assert await consumer.committed(queue) == 6
            nothing = await consumer.pull(queue, 6, suspend_ms=20)
            assert (nothing.status, nothing.next_offset) == (PullStatus.NO_NEW_MESSAGE, 6)

    asyncio.run(scenario())


def test_the_admin_tool_shows_the_cluster_as_it_is(cluster: Cluster) -> None:
    state = whole(cluster)
    shown = mqadmin("getSyncStateSet", "-a", cluster.layout.controller_list, "-b", BROKER_SET)
    assert shown.returncode == 0, shown.stderr
    assert f"#MasterAddr\t{state.master_address}\n" in shown.stdout
    assert shown.stdout.count("\nInSyncReplica:\t") == 3
    leader = asyncio.run(cluster.wait_leader())
    metadata = mqadmin("getcontrollermetadata", "-a", cluster.layout.address("controller-0"))
    assert f"#ControllerLeaderAddress\t{leader}\n" in metadata.stdout
    epochs = mqadmin("getBrokerEpoch", "-n", cluster.layout.namesrv, "-b", BROKER_SET)
    assert epochs.stdout.count("#Epoch: EpochEntry{epoch=") >= 3
    assert state.master_address is not None
    replication = mqadmin("haStatus", "-b", state.master_address)
    assert "#SlaveNum\t2\n#InSyncSlaveNum\t2\n" in replication.stdout
    slave = next(replica.address for replica in state.in_sync if replica.address != state.master_address)
    assert "#CommitLogMaxOffset\t" in mqadmin("haStatus", "-b", slave).stdout
    listed = mqadmin("clusterList", "-n", cluster.layout.namesrv)
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) == 4
    created = mqadmin(
        "updateTopic", "-n", cluster.layout.namesrv, "-c", CLUSTER_NAME, "-t", "Made", "-r", "2"
    )
    assert created.stdout.startswith(f"create topic to {state.master_address} success.\n")
    route = mqadmin("topicRoute", "-n", cluster.layout.namesrv, "-t", "Made")
    assert '"readQueueNums":2' in route.stdout


def test_killing_the_master_loses_nothing_and_it_rejoins(cluster: Cluster) -> None:
    [drill] = drilled(cluster, DrillKind.KILL, "Killed").drills
    assert drill.new_epoch > drill.old_epoch
    assert drill.new_master != drill.old_master
    assert drill.marks_ms["elected"] <= drill.marks_ms["writable"]


def test_a_paused_master_is_replaced_and_follows_when_it_resumes(cluster: Cluster) -> None:
    [drill] = drilled(cluster, DrillKind.PAUSE, "Paused").drills
    assert drill.new_epoch > drill.old_epoch
    assert drill.new_master != drill.old_master
    assert drill.marks_ms["detected"] <= drill.marks_ms["elected"], (
        "its silence was logged, and then a new master was elected"
    )


def test_mastership_is_handed_over_on_command_under_load(cluster: Cluster) -> None:
    drilled(cluster, DrillKind.ELECT, "Elected", count=2)
    drilled(cluster, DrillKind.TERM, "Ended")
    state = whole(cluster)
    other = next(replica for replica in state.in_sync if replica.broker_id != state.master_id)
    elected = mqadmin(
        "electMaster",
        *("-a", cluster.layout.controller_list),
        *("-b", str(other.broker_id)),
        *("-bn", BROKER_SET),
        *("-c", CLUSTER_NAME),
    )
    assert elected.returncode == 0, elected.stderr
    assert f"#BrokerMasterAddr\t{other.address}\n" in elected.stdout
    assert whole(cluster).master_id == other.broker_id
    again = mqadmin(
        "electMaster", "-a", cluster.layout.controller_list, "-b", "99", "-bn", BROKER_SET, "-c", CLUSTER_NAME
    )
    assert again.returncode == 1
    assert "must be alive and in the SyncStateSet" in again.stderr


def test_a_killed_controller_leader_is_replaced_and_sends_continue(cluster: Cluster) -> None:
    leader = cluster.layout.name_of(asyncio.run(cluster.wait_leader()))
    assert leader is not None
    cluster.kill([leader])
    try:
        asyncio.run(send_and_read_back(cluster, "Headless", 50))
        assert asyncio.run(cluster.wait_leader(timeout_ms=WAIT_MS)) != cluster.layout.address(leader)
    finally:
        cluster.start([leader])
    whole(cluster)


def test_killing_every_process_at_once_loses_nothing(cluster: Cluster) -> None:
    attempts = asyncio.run(send_and_read_back(cluster, "Everything", 300))
    before = whole(cluster)
    cluster.kill(cluster.layout.names)
    assert set(cluster.states().values()) == {None}
    cluster.start()
    assert whole(cluster).master_epoch >= before.master_epoch
    found = asyncio.run(found_in(cluster, "Everything", attempts))
    assert judge(attempts, found).faults == []


def test_a_single_live_replica_acknowledges_nothing(cluster: Cluster) -> None:
    state = whole(cluster)
    slaves = [
        name for name in cluster.layout.broker_names if cluster.layout.address(name) != state.master_address
    ]
    asyncio.run(cluster.create_topic("Alone"))
    cluster.kill(slaves)

    async def unacknowledged() -> None:
        async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(5)) as client:
            producer = client.producer("PG")
            for _ in range(5):
                try:
                    result = await producer.send("Alone", b"x", timeout_ms=300)
                except (SendRefused, SendOutcomeUnknown):
                    continue
                assert not result.acknowledged

    try:
        asyncio.run(unacknowledged())
    finally:
        cluster.start(slaves)
    whole(cluster)


def test_logs_of_servers_contain_no_python_objects(cluster: Cluster) -> None:
    """Checks the logs of the tests above: starts, elections, kills and recoveries."""
    for name in cluster.layout.names:
        text = cluster.log_file(name).read_text()
        assert ("store recovered" in text) == (name in cluster.layout.broker_names)
        assert not PYTHONS.findall(text)


def test_a_second_cluster_runs_next_to_the_first(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "second", controllers=1, brokers=1) as second:
        second.start()
        asyncio.run(second.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(send_and_read_back(second, "First", 20))
    whole(cluster)


def test_an_interrupted_start_leaves_no_process_behind(tmp_path: Path) -> None:
    directory = tmp_path / "cut short"
    up = subprocess.Popen(
        [sys.executable, "-m", "localcluster", "up", "--dir", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    async def all_started() -> None:
        if len(ProcessTable(directory).read()) < 7:
            raise NotYet("not all processes are in the books")

    try:
        asyncio.run(wait_for("seven processes", all_started, WAIT_MS))
        up.send_signal(signal.SIGINT)
        up.communicate()
    finally:
        up.kill()
        up.wait()
    assert up.returncode not in (0, None)
    assert all(record.identity.state() is None for record in ProcessTable(directory).read().values())


def test_the_admin_client_reports_a_dead_cluster(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "dead", controllers=1, brokers=1) as dead:

        async def ask() -> str:
            admin = AdminClient(SystemClock())
            try:
                await admin.leader(dead.layout.controller_list)
            except Exception as error:
                return str(error)
            finally:
                await admin.close()
            return ""

        assert "a majority of controllers must run" in asyncio.run(ask())
