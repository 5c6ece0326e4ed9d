"""The metrics that the servers of a running set expose to Prometheus, compared with their declarations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

import pytest
from prometheus_client.metrics_core import Metric

from broker.exporter import figures as broker_figures
from broker.exporter import groupfigures as group_figures
from broker.exporter.collector import BrokerCollector
from broker.modes import group_figures as group_figures_of
from controller import figures as controller_figures
from controller.metrics import ControllerCollector
from controller.server import ControllerApp
from mqruntime.figures import Figure
from namesrv import figures as namesrv_figures
from namesrv.metrics import NamesrvCollector
from namesrv.server import NamesrvApp
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import ElectMasterHeader
from remoting.headers.messages import ConsumerSendMsgBackHeader
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, Cluster
from tests.cluster.groupset import GroupSet

BODIES = [f"message {number}".encode() for number in range(12)]


class Shown(NamedTuple):
    """The kind of an exposed metric, and the labels of its samples."""

    kind: str
    labels: frozenset[str]


class Page:
    """The metric families of one collector."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = list(families)

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of the samples `name` with `labels`."""
        return [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= dict(sample.labels).items()
        ]

    def value(self, name: str, **labels: str) -> float:
        (value,) = self.values(name, **labels)
        return value


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A master and a slave with metrics: twelve messages sent and pulled, one committed, one dead letter."""
    with World(21) as world:
        cluster = Cluster(world, 2, metricsExporterType="PROM")
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES))
        cluster.run(cluster.read_all())
        cluster.app(cluster.master).tables.offsets.commit("readers", "orders", 0, 1)
        cluster.run(give_up_one(cluster))
        cluster.run(create_group(cluster))
        for committed in (True, True, False):
            cluster.app(cluster.master).requests.transactions.totals.ended("orders", committed=committed)
        yield cluster


async def give_up_one(cluster: Cluster) -> None:
    header = ConsumerSendMsgBackHeader(offset=0, group="CG", delay_level=-1)
    reply = await cluster.ask(cluster.app(cluster.master).address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
    assert reply.code == 0, reply.remark


async def create_group(cluster: Cluster) -> None:
    address = cluster.app(cluster.master).address
    body = SubscriptionGroupConfig("CG").encode()
    reply = await cluster.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert reply.code == 0, reply.remark


def broker_page(cluster: Cluster, *, of_master: bool = True) -> Page:
    (node,) = (node for node in cluster.brokers if (node is cluster.master) == of_master)
    app = cluster.app(node)
    collector = BrokerCollector(
        app.membership,
        settings=app.settings,
        store=app.store,
        ha=app.ha,
        tables=app.tables,
        requests=app.requests,
        clock=SimulatedClock(node),
    )
    return Page(collector.collect())


def controller_pages(cluster: Cluster) -> list[Page]:
    apps = [cluster.world.nodes[f"controller-{number}"].app for number in range(len(CONTROLLERS))]
    return [
        Page(
            ControllerCollector(
                app.settings, app.node, app.state, app.brokers.liveness, app._counts
            ).collect()
        )
        for app in apps
        if isinstance(app, ControllerApp)
    ]


def namesrv_page(cluster: Cluster) -> Page:
    app = cluster.world.nodes["namesrv"].app
    assert isinstance(app, NamesrvApp)
    return Page(NamesrvCollector(app.table).collect())


def exposed(pages: Iterable[Page]) -> dict[str, Shown]:
    found: dict[str, Shown] = {}
    for page in pages:
        for family in page.families:
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[name] = Shown(
                family.type, frozenset(labels) | found.get(name, Shown("", frozenset())).labels
            )
    return found


def assert_declared(shown: dict[str, Shown], base: Sequence[str], figures: Sequence[Figure]) -> None:
    assert list(shown) == [figure.name for figure in figures], "no other metrics, and in this order"
    for figure in figures:
        assert shown[figure.name].kind == figure.kind, figure
        assert shown[figure.name].labels == {*base, *figure.labels}, figure


def test_ended_transactions_are_counted_by_outcome(cluster: Cluster) -> None:
    master, slave = broker_page(cluster), broker_page(cluster, of_master=False)
    assert master.value("rocketmq_commit_messages_total", topic="orders") == 2
    assert master.value("rocketmq_rollback_messages_total", topic="orders") == 1
    assert master.value("rocketmq_open_transactions") == slave.value("rocketmq_open_transactions") == 0


def declared(module: ModuleType) -> list[Figure]:
    return [each for each in vars(module).values() if isinstance(each, Figure)]


async def heartbeat(cluster: Cluster) -> None:
    subscription = [SubscriptionData("orders", "*", [], [], 1, "TAG")]
    consumer = ConsumerData("CG", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", subscription)
    body = HeartbeatData("client@1", [ProducerData("PG")], [consumer]).encode()
    async with cluster.client() as client:
        address = cluster.app(cluster.master).address
        reply = await client.remoting.call(
            address, RemotingCommand.request(RequestCode.HEART_BEAT, None, body)
        )
        assert reply.code == 0, reply.remark
        page = broker_page(cluster)
        clients = {"language": "python", "version": "479", "protocol_type": "remoting"}
        assert page.value("rocketmq_producer_connections", **clients) == 1
        read = {"consumer_group": "CG", "consume_mode": "push", "is_system": "false"}
        assert page.value("rocketmq_consumer_connections", **read, **clients) == 1
        assert_declared(exposed([page]), broker_figures.BASE_LABELS, declared(broker_figures))


def test_the_exposed_metrics_are_the_declared_ones(cluster: Cluster) -> None:
    cluster.run(heartbeat(cluster))
    assert_declared(
        exposed(controller_pages(cluster)),
        controller_figures.BASE_LABELS,
        declared(controller_figures),
    )
    assert_declared(exposed([namesrv_page(cluster)]), (), declared(namesrv_figures))


def test_a_raft_mode_broker_exposes_metrics_of_its_group() -> None:
    with World(22) as world:
        group = GroupSet(world, metricsExporterType="PROM")
        group.start_up()
        group.run(group.send_all(BODIES))
        world.run_for_ms(2_000)
        shown = {}
        for node in group.brokers:
            app = group.app(node)
            (collector,) = group_figures_of(app._log, app.settings)
            shown[node is group.master] = Page(collector.collect())
        assert_declared(exposed([shown[True]]), broker_figures.BASE_LABELS, declared(group_figures))
        assert [page.value("rocketmq_dledger_role") for page in (shown[True], shown[False])] == [3, 2]
        for page in shown.values():
            assert page.value("rocketmq_dledger_term") == group.app(group.master).ha.epoch
            assert (
                page.value("rocketmq_dledger_committed_index")
                == page.value("rocketmq_dledger_last_index")
                >= 12
            )
        assert shown[True].values("rocketmq_dledger_behind_entries") == [0, 0]
        assert max(shown[True].values("rocketmq_dledger_silent_milliseconds")) < 1_000
        assert shown[False].values("rocketmq_dledger_behind_entries") == []


def test_messages_are_counted_by_topic_and_reader(cluster: Cluster) -> None:
    page = broker_page(cluster)
    topic = {"topic": "orders", "is_system": "false"}
    node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
    assert page.value("rocketmq_messages_in_total", **topic, **node) == 12
    assert page.value("rocketmq_messages_out_total", consumer_group="readers", **topic, **node) == 12
    stored = page.value("rocketmq_throughput_in_total", **topic)
    assert stored == page.value("rocketmq_throughput_out_total", consumer_group="readers", **topic)
    kept = page.value("rocketmq_storage_size_bytes", storage_type="local", storage_medium="disk")
    assert kept > stored > 1000, "the dead letter is stored too, and no producer sent it"
    slave = broker_page(cluster, of_master=False)
    assert slave.values("rocketmq_messages_in_total") == []
    assert slave.value("rocketmq_storage_size_bytes") == kept


def test_the_disk_usage_ratio_is_exposed(cluster: Cluster) -> None:
    """Without retention only an operator makes room, so the ratio must be visible in time."""
    disk = cluster.master.disk
    disk.capacity_bytes = disk.used_bytes() * 5 // 4
    try:
        used = broker_page(cluster).value("rocketmq_storage_disk_used_ratio", storage_medium="disk")
        reply = cluster.run(
            cluster.ask(cluster.app(cluster.master).address, RequestCode.GET_BROKER_RUNTIME_INFO, None, None)
        )
    finally:
        disk.capacity_bytes = None
    table = json.loads(bytes(reply.body or b""))["table"]
    assert used == pytest.approx(0.8, abs=0.01)
    assert table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"] == "0.80"


def test_record_sizes_are_exposed_as_a_histogram(cluster: Cluster) -> None:
    page, topic = broker_page(cluster), {"topic": "orders", "is_system": "false"}
    assert page.value("rocketmq_message_size_count", **topic) == 12
    assert page.value("rocketmq_message_size_bucket", le="1024.0", **topic) == 12
    stored = page.value("rocketmq_throughput_in_total", **topic)
    assert page.value("rocketmq_message_size_sum", **topic) == pytest.approx(stored)


def test_every_answer_is_timed_once(cluster: Cluster) -> None:
    page, name = broker_page(cluster), "rocketmq_rpc_latency_milliseconds"
    done = {"response_code": "success", "result": "success", "protocol_type": "remoting"}

    def count(request_code: str) -> list[float]:
        return page.values(f"{name}_count", request_code=request_code, is_long_polling="false", **done)

    assert count("send_message_v2") == [12]
    assert count("consumer_send_msg_back") == [1]
    assert count("update_and_create_topic") == [1]
    assert sum(count("pull_message")) >= 1
    waited = page.value(f"{name}_sum", request_code="send_message_v2")
    assert 0 < waited < 12 * 100, "the slave had to acknowledge each send"


def test_the_creation_of_topics_and_groups_is_timed(cluster: Cluster) -> None:
    page, done = broker_page(cluster), {"invocation_status": "success", "is_system": "false"}
    assert page.value("rocketmq_topic_create_execution_time_milliseconds_count", **done) == 1
    assert page.value("rocketmq_consumer_group_create_execution_time_milliseconds_count", **done) == 1


def test_a_dead_letter_is_counted_for_its_group(cluster: Cluster) -> None:
    dead = broker_page(cluster).values(
        "rocketmq_send_to_dlq_messages_total", consumer_group="CG", topic="%DLQ%CG"
    )
    assert dead == [1]


def test_the_consumer_lag_counts_uncommitted_messages(cluster: Cluster) -> None:
    labels = {"consumer_group": "readers", "topic": "orders", "is_retry": "false", "is_system": "false"}
    assert broker_page(cluster).value("rocketmq_consumer_lag_messages", **labels) == 11


def test_the_age_of_the_oldest_message_grows(cluster: Cluster) -> None:
    name = "rocketmq_storage_message_reserve_time_milliseconds"
    before = broker_page(cluster).value(name)
    cluster.world.run_for_ms(5_000)
    assert before + 4_900 <= broker_page(cluster).value(name) <= before + 5_100


def test_an_empty_store_reports_message_age_zero() -> None:
    with World(22) as world:
        cluster = Cluster(world, 2)
        cluster.wait_in_sync(2)
        page = broker_page(cluster)
        assert page.value("rocketmq_storage_message_reserve_time_milliseconds") == 0
        app = cluster.app(cluster.master)
        assert app.requests.latencies is None, "metrics are off"


def test_controllers_expose_request_times_and_proposal_counts(cluster: Cluster) -> None:
    leader = next(page for page in controller_pages(cluster) if page.value("role") == 3)
    assert leader.value("election_total", election_result="new_master_elected") == 1
    assert leader.value("dledger_disk_usage_bytes") >= 1 << 20
    assert (leader.value("dledger_snapshot_bytes"), leader.value("dledger_snapshot_last_index")) == (0, -1)
    assert leader.values("dledger_snapshot_total") == [0, 0]
    kind = {"request_type": "CONTROLLER_APPLY_BROKER_ID"}
    answered = leader.values("request_total", **kind)
    assert leader.values("request_latency_microseconds_count", **kind) == [sum(answered)] != [0]
    assert leader.value("request_latency_microseconds_sum", **kind) > 0
    done = {"dledger_operation": "append", "dLedger_operation_status": "success"}
    assert leader.value("dledger_op_total", **done) >= 4
    proposed = sum(leader.values("dledger_op_total"))
    assert leader.value("dledger_op_latency_microseconds_count", dledger_operation="append") == proposed
    assert leader.value("dledger_op_latency_microseconds_sum") > 0


def test_an_election_that_keeps_the_master_is_counted(cluster: Cluster) -> None:
    def kept() -> list[float]:
        pages = controller_pages(cluster)
        return [
            n for page in pages for n in page.values("election_total", election_result="keep_current_master")
        ]

    before = sum(kept())
    reply = cluster.run(elect(cluster))
    assert reply.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert sum(kept()) == before + 1


async def elect(cluster: Cluster) -> RemotingCommand:
    metadata = await cluster.ask(f"{CONTROLLERS[0]}:9878", RequestCode.CONTROLLER_GET_METADATA_INFO)
    header = ElectMasterHeader("broker-a", "DefaultCluster")
    leader = metadata.ext["controllerLeaderAddress"]
    return await cluster.ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, header)


def test_a_master_exposes_sync_state_and_lag_of_its_slaves(cluster: Cluster) -> None:
    page = broker_page(cluster)
    assert page.value("rocketmq_ha_role_changes_total") >= 1
    assert page.value("rocketmq_ha_sync_state_set_size") == 2
    (slave,) = page.values("rocketmq_ha_in_sync")
    assert slave == 1
    assert page.values("rocketmq_ha_lag_bytes") == [0]
