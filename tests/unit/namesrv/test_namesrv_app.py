"""A name server over real loopback with requests of brokers, clients and administrators."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mqruntime.clock import SystemClock
from mqruntime.network import PLAIN
from mqruntime.peercertificate import PeerCertificate, broker_role
from mqruntime.runtime import Runtime
from mqruntime.segments import RealSegmentDirectory
from mqruntime.settings import SettingsError
from mqruntime.smallfiles import RealSmallFiles
from mqruntime.storelock import RealStoreLock
from namesrv.kvconfig import KVConfigUnreadable
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.registration import RegisterBrokerBody, body_crc32
from remoting.bodies.routes import ClusterInfo, KVTable, QueueData, TopicList, TopicRouteData
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from remoting.client import RemotingClient
from remoting.codes import RequestCode as Code
from remoting.command import Body, RemotingCommand
from remoting.frame import FrameReader
from remoting.headers.nameserver import RegisterBrokerHeader
from tests.unit.remoting.goldenframes import golden_frames

Story = Callable[["Scene"], Coroutine[Any, Any, None]]


class ManualClock(SystemClock):
    """The machine's clock plus the time that a test lets pass."""

    def __init__(self) -> None:
        self.passed_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.passed_ms


class Scene:
    """One running name server and a client of it."""

    def __init__(self, root: Path, overrides: list[str]) -> None:
        self.clock = ManualClock()
        runtime = Runtime(
            self.clock,
            random.Random(1),
            RealSmallFiles(root),
            RealSegmentDirectory(root),
            RealStoreLock(root),
            "one boot",
            PLAIN,
        )
        settings = NamesrvSettings.load(None, ["listenPort=0", "bindAddress=127.0.0.1", *overrides])
        self.app = NamesrvApp(settings, runtime)
        self.client = RemotingClient(clock=SystemClock())

    async def ask(
        self, code: int, body: Body | None = None, client: RemotingClient | None = None, **ext: str
    ) -> RemotingCommand:
        command = RemotingCommand.request(code, ext, body)
        return await (client or self.client).call(f"127.0.0.1:{self.app.port}", command)

    async def register(
        self,
        broker_id: int = 0,
        address: str = "10.0.0.1:10911",
        *,
        client: RemotingClient | None = None,
        crc: int | None = None,
        **ext: str,
    ) -> RemotingCommand:
        table = {name: TopicConfig(name, 8, 8, 7) for name in ("TBW102", "T")}
        body = RegisterBrokerBody(TopicConfigWrapper(table, DataVersion(1, 5, 1))).encode()
        header = RegisterBrokerHeader(
            "broker-a", address, "DefaultCluster", f"{address}-ha", broker_id, enable_acting_master=False
        )
        header.body_crc32 = body_crc32(body) if crc is None else crc
        return await self.ask(Code.REGISTER_BROKER, body, client, **header.to_ext(), **ext)


@asynccontextmanager
async def scene(root: Path, *overrides: str) -> AsyncIterator[Scene]:
    made = Scene(root, list(overrides))
    await made.app.start()
    try:
        yield made
    finally:
        await made.client.close()
        await made.app.stop()


def play(root: Path, story: Story, *overrides: str) -> None:
    async def whole() -> None:
        async with scene(root, *overrides) as made:
            await story(made)

    asyncio.run(whole())


def test_topics_of_a_registered_broker_are_routed(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        assert (await made.register()).ext == {}
        slave = await made.register(2, "10.0.0.2:10911")
        assert slave.ext == {"haServerAddr": "10.0.0.1:10911-ha", "masterAddr": "10.0.0.1:10911"}
        answer = await made.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        route = TopicRouteData.decode(answer.body)
        assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
        assert route.queue_datas == [QueueData("broker-a", 8, 8, 7)]
        info = ClusterInfo.decode((await made.ask(Code.GET_BROKER_CLUSTER_INFO)).body)
        assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}

    play(tmp_path, story)


def test_a_topic_without_a_route_gets_the_response_of_java(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        answer = await made.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        assert answer.code == 17
        assert answer.remark == (
            "No topic route info in name server for the topic: TBW102\n"
            "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        )
        unnamed = await made.ask(Code.GET_ROUTEINFO_BY_TOPIC)
        assert (unnamed.code, unnamed.remark) == (1, "header field topic is absent: text is required")

    play(tmp_path, story)


def test_bad_registrations_are_refused(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        wrong = await made.register(crc=1)
        assert (wrong.code, wrong.remark) == (1, "crc32 not match")
        assert (await made.register(crc=0)).code == 0
        header = RegisterBrokerHeader("new", "10.0.0.9:1", "DefaultCluster", "", 0)
        one = RegisterBrokerBody(TopicConfigWrapper({"T": TopicConfig("T")})).encode()
        refused = await made.ask(Code.REGISTER_BROKER, one, **header.to_ext())
        assert (refused.code, refused.remark) == (1, "register broker failed")
        broken = await made.ask(Code.REGISTER_BROKER, b"{not json", **header.to_ext())
        assert broken.code == 1
        assert list(made.app.table.groups) == ["broker-a"]

    play(tmp_path, story)


def test_captured_java_registrations_are_accepted(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        accepted = 0
        for golden in golden_frames():
            if (
                golden.is_request
                and golden.request_code == Code.REGISTER_BROKER
                and golden.row["bodyLength"] > 2000
            ):
                (command,) = FrameReader().receive(golden.data)
                assert (await made.ask(103, command.body, **command.ext)).code == 0
                accepted += 1
        assert accepted > 1
        assert "TBW102" in TopicList.decode((await made.ask(206)).body).topic_list

    play(tmp_path, story)


def test_a_broker_is_unregistered_when_its_connection_closes(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        broker = RemotingClient(clock=SystemClock())
        await made.register(client=broker)
        await made.register(2, "10.0.0.2:10911")
        await broker.close()
        while "10.0.0.1:10911" in made.app.table.groups["broker-a"].broker_addrs.values():
            await made.ask(Code.GET_BROKER_CLUSTER_INFO)  # each answer gives the server a turn
        assert made.app.table.groups["broker-a"].broker_addrs == {2: "10.0.0.2:10911"}

    play(tmp_path, story)


def test_a_broker_that_unregisters_is_removed_at_once(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        await made.register()
        broker = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "DefaultCluster"}
        assert (await made.ask(Code.UNREGISTER_BROKER, brokerId="0", **broker)).code == 0
        assert made.app.table.groups == {}

    play(tmp_path, story)


def test_a_silent_broker_is_removed_and_its_connection_closed(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        await made.register(heartbeatTimeoutMillis="1000")
        gone = asyncio.Event()
        made.client.on_disconnect = lambda address: gone.set()
        made.clock.passed_ms = 2_000
        await gone.wait()
        assert made.app.table.groups == {}

    play(tmp_path, story, "scanNotActiveBrokerInterval=100")


def test_heartbeats_keep_a_broker_alive_and_data_versions_are_compared(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        await made.register(heartbeatTimeoutMillis="1000")
        broker = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "DefaultCluster"}
        made.clock.passed_ms = 900
        assert (await made.ask(Code.BROKER_HEARTBEAT, **broker)).code == 0
        made.clock.passed_ms = 1_700
        same = await made.ask(Code.QUERY_DATA_VERSION, DataVersion(1, 5, 1).encode(), brokerId="0", **broker)
        assert (same.ext, DataVersion.decode(same.body)) == ({"changed": "false"}, DataVersion(1, 5, 1))
        made.clock.passed_ms = 2_500
        assert made.app.table.expire(made.clock.monotonic_ms()) == []
        broker["brokerAddr"] = "10.9.9.9:1"
        other = await made.ask(Code.QUERY_DATA_VERSION, DataVersion(1, 5, 1).encode(), brokerId="0", **broker)
        assert (other.ext, other.body) == ({"changed": "true"}, None)

    play(tmp_path, story)


def test_key_values_survive_a_restart(tmp_path: Path) -> None:
    async def first(made: Scene) -> None:
        none = await made.ask(Code.GET_KV_CONFIG, namespace="NS", key="k")
        assert (none.code, none.remark) == (22, "No config item, Namespace: NS Key: k")
        both = [made.ask(Code.PUT_KV_CONFIG, namespace="NS", key=key, value=f"{key} v") for key in "kl"]
        assert [answer.code for answer in await asyncio.gather(*both)] == [0, 0]
        assert (await made.ask(Code.GET_KV_CONFIG, namespace="NS", key="k")).ext == {"value": "k v"}

    async def second(made: Scene) -> None:
        answer = await made.ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="NS")
        assert KVTable.decode(answer.body).table == {"k": "k v", "l": "l v"}
        for key in ("k", "l", "never"):
            assert (await made.ask(Code.DELETE_KV_CONFIG, namespace="NS", key=key)).code == 0
        empty = await made.ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="NS")
        assert (empty.code, empty.remark) == (22, "No config item, Namespace: NS")

    play(tmp_path, first)
    assert (tmp_path / "kvConfig.json").read_bytes() == b'{"configTable":{"NS":{"k":"k v","l":"l v"}}}'
    play(tmp_path, second)


def test_the_order_configuration_is_sent_to_brokers_and_clients(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        await made.ask(Code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
        assert KVTable.decode((await made.register()).body).table == {"T": "broker-a:4"}
        route = TopicRouteData.decode((await made.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T")).body)
        assert route.order_topic_conf == "broker-a:4"

    play(tmp_path, story, "orderMessageEnable=true")


def test_administrators_change_permissions_and_topics(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        await made.register()
        assert (await made.ask(Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")).ext == {
            "wipeTopicCount": "2"
        }
        assert made.app.table.topics["T"]["broker-a"].perm == 5
        assert (await made.ask(Code.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")).ext == {
            "addTopicCount": "2"
        }
        assert (await made.ask(Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="ghost")).ext == {
            "wipeTopicCount": "0"
        }
        body = TopicRouteData([QueueData("broker-a", 1, 1, 6), QueueData("ghost", 1, 1, 6)]).encode()
        assert (await made.ask(Code.REGISTER_TOPIC_IN_NAMESRV, body, topic="New")).code == 0
        names = TopicList.decode((await made.ask(Code.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster")).body)
        assert names.topic_list == ["TBW102", "T", "New"]
        assert (await made.ask(Code.DELETE_TOPIC_IN_NAMESRV, topic="New")).code == 0
        assert (await made.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="New")).code == 17
        members = await made.ask(Code.GET_BROKER_MEMBER_GROUP, clusterName="x", brokerName="broker-a")
        assert members.body == (
            b'{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster"}}'
        )
        for code in (311, 312, 313):
            assert (await made.ask(code)).body == b'{"topicList":[]}'

    play(tmp_path, story)


def test_settings_can_be_read_and_changed_except_the_fixed_ones(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        assert (
            await made.ask(Code.UPDATE_NAMESRV_CONFIG, b"enableAllTopicList=false\nunknown=1\n")
        ).code == 0
        assert (await made.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).code == 1
        shown = bytes((await made.ask(Code.GET_NAMESRV_CONFIG)).body or b"").decode()
        assert "enableAllTopicList=false\n" in shown
        fixed = await made.ask(Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\nkvConfigPath=/x\n")
        assert (fixed.code, fixed.remark) == (16, "Can not update config in black list.")
        bad = await made.ask(
            Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\nsupportActingMaster=true\n"
        )
        assert bad.code == 1
        broken = await made.ask(Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=\\u12\n")
        assert broken.code == 1
        assert not made.app.settings.order_message_enable
        assert (await made.ask(Code.UPDATE_NAMESRV_CONFIG)).code == 0

    play(tmp_path, story)


@pytest.mark.parametrize(
    "change",
    [
        "metricsPromExporterHost=10.0.0.1",
        "metricsPromExporterPort=5558",
        "metricsExporterType=PROM",
        "metricsLabel=zone:a",
        "serverChannelMaxIdleTimeSeconds=60",
    ],
)
def test_a_setting_read_only_at_the_start_cannot_be_changed_at_run_time(tmp_path: Path, change: str) -> None:
    async def story(made: Scene) -> None:
        shown = bytes((await made.ask(Code.GET_NAMESRV_CONFIG)).body or b"")
        refused = await made.ask(Code.UPDATE_NAMESRV_CONFIG, f"orderMessageEnable=true\n{change}\n".encode())
        key = change.partition("=")[0]
        why = f"Can not update config in black list. {key}: change the properties file and restart"
        assert (refused.code, refused.remark) == (16, why)
        assert bytes((await made.ask(Code.GET_NAMESRV_CONFIG)).body or b"") == shown
        idle_s = made.app.settings.server_channel_max_idle_time_seconds
        as_it_is = f"serverChannelMaxIdleTimeSeconds={idle_s}\n".encode()
        assert (await made.ask(Code.UPDATE_NAMESRV_CONFIG, as_it_is)).code == 0

    play(tmp_path, story)


@pytest.mark.parametrize(
    "change", ["deleteTopicWithBrokerRegistration=true", "scanNotActiveBrokerInterval=700"]
)
def test_a_setting_that_is_read_again_can_be_changed_at_run_time(tmp_path: Path, change: str) -> None:
    async def story(made: Scene) -> None:
        assert (await made.ask(Code.UPDATE_NAMESRV_CONFIG, change.encode())).code == 0
        assert f"{change}\n".encode() in bytes((await made.ask(Code.GET_NAMESRV_CONFIG)).body or b"")

    play(tmp_path, story)


@pytest.mark.parametrize("key", ["supportActingMaster", "notifyMinBrokerIdChanged"])
def test_an_unsupported_setting_is_rejected_with_a_reason(key: str) -> None:
    with pytest.raises(SettingsError, match=f"{key}=true: must be false"):
        NamesrvSettings.load(None, [f"{key}=true"])


def test_an_unreadable_key_value_file_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("root:x:0:0")

    async def story(made: Scene) -> None:
        raise AssertionError("it does not start")

    with pytest.raises(KVConfigUnreadable, match="^kvConfig.json: .*; restore it, remove it"):
        play(tmp_path, story)


def test_an_order_conf_that_clients_cannot_read_is_rejected(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        for value in ("free text", "broker-a:99999999999", "broker-a:-1", ""):
            reply = await made.ask(Code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value=value)
            assert reply.code == 1
            assert any(said in (reply.remark or "") for said in ("an order conf is", "queues of a topic"))
        assert (await made.ask(Code.PUT_KV_CONFIG, namespace="OTHER", key="T", value="free text")).code == 0

    play(tmp_path, story)


def test_a_certificate_of_one_set_changes_no_route_of_another(tmp_path: Path) -> None:
    async def story(made: Scene) -> None:
        await made.register()
        handler: Any = made.app._router().handlers[Code.REGISTER_TOPIC_IN_NAMESRV]
        body = TopicRouteData([QueueData("broker-a", 1, 1, 6)]).encode()
        asked = RemotingCommand.request(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "New"}, body)
        roles = {"broker-b": 16, "broker-a": 0}
        for name, code in roles.items():
            certificate = PeerCertificate(True, roles=frozenset({broker_role(name)}))
            assert handler(SimpleNamespace(certificate=certificate), asked).code == code
            route = await made.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="New")
            assert (route.code == 0) is (code == 0)

    play(tmp_path, story)
