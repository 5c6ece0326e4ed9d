"""Access control of a broker set under controllers: signatures, rights, and users that follow the set."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.neighbours.agreement import LEASE_MS
from broker.tables.accesstables import USERS_FILE
from broker.tables.savedtable import TableUnreadable
from mqclient.errors import SendRefused
from mqclient.producer import SendStatus
from remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.access import SubjectHeader, UserHeader
from remoting.headers.admin import CloneGroupOffsetHeader, CreateTopicHeader, TopicHeader
from remoting.headers.offsets import UpdateConsumerOffsetHeader
from remoting.signing import Credentials
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, NAMESRV, Cluster, cut_off
from tests.cluster.guardedset import ADMIN, ALICE, GuardedCluster


def test_a_guarded_cluster_forms_and_serves_signed_requests_only() -> None:
    with World(901) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        cluster.send_as(ADMIN)
        with pytest.raises(SendRefused, match="username cannot be null"):
            cluster.run(send_unsigned(cluster))
        with pytest.raises(SendRefused, match="check signature failed"):
            cluster.send_as(Credentials("admin", "wrong"))
        assert cluster.bodies() == [b"x"]


async def send_unsigned(cluster: Cluster) -> None:
    client = Cluster.client(cluster)
    client.remoting._signer = None
    async with client:
        await client.producer("producers").send("orders", b"y")


def test_users_and_rights_survive_a_failover() -> None:
    with World(902) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Pub"]))
        cluster.send_as(ALICE)
        cluster.master.kill()
        world.run_until(lambda: len(cluster.masters) == 1, 30_000)
        cluster.wait_in_sync(2)
        cluster.send_as(ALICE)
        with pytest.raises(SendRefused, match="no permission to access Topic:secret"):
            cluster.send_as(ALICE, "secret")


def test_what_was_revoked_is_refused_after_a_hand_over() -> None:
    with World(903) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:*", ["Pub"]))
        cluster.send_as(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["All"]), decision="Deny")
        with pytest.raises(SendRefused, match="the decision is deny"):
            cluster.send_as(ALICE)
        successor = cluster.slaves_by_id()[0]
        cluster.run(cluster.designate(cluster.app(successor).membership.broker_id))
        world.run_until(lambda: cluster.masters == [successor], 10_000)
        with pytest.raises(SendRefused, match="the decision is deny"):
            cluster.send_as(ALICE)
        cluster.send_as(ADMIN)


def test_a_disabled_and_a_deleted_user_are_refused_by_each_replica() -> None:
    with World(904) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        cluster.create_user(ALICE)
        body = UserInfo("alice", user_status="disable").encode()
        assert cluster.request(Code.AUTH_UPDATE_USER, UserHeader("alice"), body).code == 0
        remarks = [asked_of(cluster, node) for node in cluster.brokers]
        assert remarks == ["User:alice is disabled."] * 2
        assert cluster.request(Code.AUTH_DELETE_USER, UserHeader("alice")).code == 0
        remarks = [asked_of(cluster, node) for node in cluster.brokers]
        assert remarks == ["User:alice is not found."] * 2


def asked_of(cluster: GuardedCluster, node: Any) -> str | None:
    reply = cluster.run(
        cluster.ask(
            cluster.app(node).address, Code.GET_TOPIC_CONFIG, TopicHeader("orders"), credentials=ALICE
        )
    )
    assert reply.code == ResponseCode.NO_PERMISSION
    remark: str | None = reply.remark
    return remark


def test_only_a_super_user_makes_super_users_and_sees_passwords() -> None:
    with World(905) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Cluster:DefaultCluster", ["Update", "Get"]))
        body = UserInfo("eve", "eve-password", "Super").encode()
        reply = cluster.request(Code.AUTH_CREATE_USER, UserHeader("eve"), body, by=ALICE)
        assert (reply.code, reply.remark) == (1, "The super user can only be create by super user")
        reply = cluster.request(
            Code.AUTH_UPDATE_USER, UserHeader("admin"), UserInfo("admin", "hacked").encode(), by=ALICE
        )
        assert (reply.code, reply.remark) == (16, "The super user can only be update by super user")
        shown = UserInfo.decode(cluster.request(Code.AUTH_GET_USER, UserHeader("admin"), by=ALICE).body)
        assert (shown.user_type, shown.password) == ("Super", None)
        shown = UserInfo.decode(cluster.request(Code.AUTH_GET_USER, UserHeader("alice")).body)
        assert shown.password == "alice-password"


@pytest.mark.parametrize("slave_first", [True, False])
def test_a_change_reaches_the_set_once_if_it_is_sent_to_each_replica(slave_first: bool) -> None:
    """As Java's mqadmin sends it, which stops at the first error."""
    with World(906) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        [slave] = cluster.slaves
        order = [slave, cluster.master] if slave_first else [cluster.master, slave]
        user = UserInfo("alice", "alice-password").encode()
        acl = AclInfo(
            "User:alice", [PolicyInfo(None, [PolicyEntryInfo("*", ["All"], None, "Allow")])]
        ).encode()
        for code, header, body in (
            (Code.AUTH_CREATE_USER, UserHeader("alice"), user),
            (Code.AUTH_CREATE_ACL, SubjectHeader("User:alice"), acl),
            (Code.AUTH_DELETE_ACL, SubjectHeader("User:alice"), None),
        ):
            for node in order:
                reply = cluster.run(cluster.ask(cluster.app(node).address, code, header, body))
                assert (reply.code, reply.remark) == (0, None), (code, node.name)
        assert cluster.app(cluster.master).tables.users.find("alice") is not None
        other = UserInfo("alice", "another-password").encode()
        again = cluster.request(Code.AUTH_CREATE_USER, UserHeader("alice"), other)
        assert (again.code, again.remark) == (16, "The user is existed")


@pytest.mark.parametrize(
    ("address", "code"),
    [(NAMESRV, Code.GET_NAMESRV_CONFIG), (f"{CONTROLLERS[0]}:9878", Code.GET_CONTROLLER_CONFIG)],
)
def test_name_servers_and_controllers_know_the_administrator(address: str, code: int) -> None:
    with World(907) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        assert cluster.run(cluster.ask(address, code)).code == 0
        reply = cluster.run(cluster.ask(address, code, credentials=ALICE))
        assert (reply.code, reply.remark) == (16, "User:alice is not found.")


def test_a_consumer_that_waits_for_messages_gets_none_once_its_right_is_revoked() -> None:
    with World(908) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Sub"]), ("Group:readers", ["Sub"]))
        found: list[bytes] = []

        async def wait() -> None:
            async with cluster.client(credentials=ALICE) as client:
                consumer = client.consumer("readers")
                for queue in await consumer.queues("orders"):
                    result = await consumer.pull(queue, 0, suspend_ms=15_000)
                    found.extend(bytes(message.body) for message in result.messages)

        waiting = cluster._client_node.spawn(wait())
        world.run_for_ms(1_000)
        cluster.allow(ALICE, ("Topic:orders", ["Sub"]), decision="Deny")
        for _ in range(8):
            cluster.send_as(ADMIN)
        with pytest.raises(Exception, match="the decision is deny"):
            cluster.run(asyncio.wait_for(waiting, 30))
        assert found == []


def test_a_topic_is_created_by_those_who_may() -> None:
    with World(909) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:mine-*", ["Create"]))
        header = CreateTopicHeader("mine-1", "TBW102", 4, 4, 6)
        assert cluster.request(Code.UPDATE_AND_CREATE_TOPIC, header, by=ALICE).code == 0
        header = CreateTopicHeader("yours", "TBW102", 4, 4, 6)
        reply = cluster.request(Code.UPDATE_AND_CREATE_TOPIC, header, by=ALICE)
        assert reply.code == ResponseCode.NO_PERMISSION
        assert reply.remark is not None
        assert reply.remark.startswith("User:alice has no permission to access Topic:yours from ")
        assert reply.remark.endswith(", no matched policies.")


def test_a_master_that_may_be_deposed_serves_no_user_after_a_revocation_was_answered() -> None:
    with World(910) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Get"]))
        former = cluster.master
        cut_off(world, former, [node for node in world.nodes.values() if node.name != "client"])
        others = [node for node in cluster.brokers if node is not former]
        world.run_until(lambda: any(cluster.app(node).membership.accepts_sends for node in others), 30_000)
        [successor] = [node for node in others if cluster.app(node).membership.accepts_sends]
        assert cluster.app(former).membership.accepts_sends, "the former master does not know its successor"
        body = UserInfo("alice", user_status="disable").encode()
        reply = cluster.run(
            cluster.ask(cluster.app(successor).address, Code.AUTH_UPDATE_USER, UserHeader("alice"), body)
        )
        assert reply.code == 0
        for address in (cluster.app(former).address, cluster.app(successor).address):
            reply = cluster.run(
                cluster.ask(address, Code.GET_TOPIC_CONFIG, TopicHeader("orders"), credentials=ALICE)
            )
            assert reply.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION), reply.remark


def test_a_slave_that_lost_its_master_serves_no_user_until_it_follows_again() -> None:
    with World(911) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Get"]))
        [slave] = cluster.slaves

        def code() -> int:
            address = cluster.app(slave).address
            ask = cluster.ask(address, Code.GET_TOPIC_CONFIG, TopicHeader("orders"), credentials=ALICE)
            answered: int = cluster.run(ask).code
            return answered

        assert code() == 0
        cut_off(world, slave, [node for node in world.nodes.values() if node.name != "client"])
        world.run_for_ms(LEASE_MS)
        assert code() == ResponseCode.SYSTEM_BUSY
        world.network.heal()
        world.run_for_ms(5_000)
        assert code() == 0


def test_a_revocation_right_after_a_failover_waits_for_the_lease_of_the_former_master() -> None:
    with World(912) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.master.kill()
        world.run_until(lambda: len(cluster.masters) == 1, 30_000)
        taken_ms = world.loop.time() * 1000
        cluster.wait_in_sync(2)
        assert cluster.request(Code.AUTH_DELETE_USER, UserHeader("alice")).code == 0
        assert world.loop.time() * 1000 >= taken_ms + LEASE_MS


def test_requests_that_a_former_master_passes_on_are_checked_for_the_clients_address() -> None:
    with World(913) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Pub"]), sources=[cluster._client_node.host])
        results: list[SendStatus] = []

        async def send() -> None:
            async with cluster.client(credentials=ALICE) as client:
                producer = client.producer("producers")
                for number in range(200):
                    result = await producer.send("orders", b"%d" % number)
                    results.append(result.status)
                    await asyncio.sleep(0.01)

        sending = cluster._client_node.spawn(send())
        world.run_for_ms(300)
        successor = cluster.slaves_by_id()[0]
        cluster.run(cluster.designate(cluster.app(successor).membership.broker_id))
        cluster.run(asyncio.wait_for(sending, 30))
        assert set(results) == {SendStatus.SEND_OK} and len(results) == 200
        assert sum(cluster.app(node).requests.requests_forwarded for node in cluster.brokers) > 0


def test_a_user_who_does_not_fit_on_the_disk_is_not_answered_as_made() -> None:
    with World(914) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        cluster.master.disk.capacity_bytes = cluster.master.disk.used_bytes()
        body = UserInfo("alice", "alice-password").encode()
        reply = cluster.request(Code.AUTH_CREATE_USER, UserHeader("alice"), body)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "user alice is not on this broker's disk" in (reply.remark or "")
        cluster.master.disk.capacity_bytes = None
        assert cluster.request(Code.AUTH_CREATE_USER, UserHeader("alice"), body).code == 0
        cluster.master.kill(power_cut=True)
        world.run_until(lambda: len(cluster.masters) == 1, 30_000)
        assert cluster.app(cluster.master).tables.users.find("alice") is not None


def test_a_broker_does_not_start_with_a_torn_table_of_users() -> None:
    with World(915) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        cluster.create_user(ALICE)
        [slave] = cluster.slaves
        world.run(slave.stop(), limit_ms=10_000)
        written = slave.disk.content(USERS_FILE)
        assert written is not None and b"alice" in written
        slave.disk.put(USERS_FILE, written[: len(written) // 2])
        cluster.start(slave)
        world.run_for_ms(2_000)
        assert isinstance(slave.failure, TableUnreadable) and USERS_FILE in str(slave.failure)


def test_the_masters_audit_log_names_the_user_whose_change_a_slave_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "audit")
    with World(916) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        [slave] = cluster.slaves
        caplog.clear()
        body = UserInfo("alice", "alice-password").encode()
        address = cluster.app(slave).address
        assert cluster.run(cluster.ask(address, Code.AUTH_CREATE_USER, UserHeader("alice"), body)).code == 0
        events = [getattr(record, "fields", {}) for record in caplog.records if record.name == "audit"]
    assert [(event["user"], event["request"]) for event in events] == [("admin", "AUTH_CREATE_USER")] * 2


def test_a_clone_of_offsets_that_names_no_topic_needs_the_right_for_each_topic() -> None:
    with World(917) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.send_as(ADMIN)
        cluster.allow(ALICE, ("Group:source", ["Get"]), ("Group:target", ["Update"]))
        commit = UpdateConsumerOffsetHeader("source", "orders", 0, 0)
        assert cluster.request(Code.UPDATE_CONSUMER_OFFSET, commit).code == 0
        cloned = CloneGroupOffsetHeader("source", "target", offline=True)

        def offset() -> int | None:
            return cluster.app(cluster.master).tables.offsets.find("target", "orders", 0)

        assert cluster.request(Code.CLONE_GROUP_OFFSET, cloned, by=ALICE).code == ResponseCode.NO_PERMISSION
        assert offset() is None
        cluster.allow(ALICE, ("Topic:orders", ["Update"]))
        assert cluster.request(Code.CLONE_GROUP_OFFSET, cloned, by=ALICE).code == 0
        assert offset() == 0


def test_a_request_names_no_more_topics_than_can_be_checked_at_once() -> None:
    with World(918) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:mine-*", ["Get"]), ("Group:readers", ["Get"]))

        def asked(count: int) -> RemotingCommand:
            topics = ";".join(f"mine-{number}" for number in range(count))
            header = {"consumerGroup": "readers", "topicList": topics}
            return cluster.request(Code.GET_CONSUME_STATS, header, by=ALICE)

        assert asked(2_000).code == 0
        reply = asked(3_000)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark is not None and reply.remark.endswith("a request names 2000 topics at most")
