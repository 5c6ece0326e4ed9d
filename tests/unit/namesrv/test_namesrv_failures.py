"""The name server's view of brokers that die, fall silent or are partitioned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mqruntime.runtime import Runtime
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.registration import RegisterBrokerBody
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.nameserver import RegisterBrokerHeader
from simulation.kernel.world import World

NAMESRV = "10.0.0.1"
LIVE_MS, SCAN_MS = 20_000, 5_000


class RegisteringBroker:
    """Registers once and then only keeps its connection open."""

    def __init__(self, runtime: Runtime, broker_id: int, address: str, epoch: int) -> None:
        self.client = RemotingClient(clock=runtime.clock)
        self.header = RegisterBrokerHeader(
            "broker-a", address, "DefaultCluster", "", broker_id, heartbeat_timeout_millis=LIVE_MS
        )
        topics = {name: TopicConfig(name) for name in ("T", "TBW102")}
        self.body = RegisterBrokerBody(TopicConfigWrapper(topics, DataVersion(epoch, 0, 1))).encode()

    async def start(self) -> None:
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, self.header, self.body)
        assert (await self.client.call(f"{NAMESRV}:9876", request)).code == 0

    async def stop(self) -> None:
        await self.client.close()

    async def wait_failed(self) -> BaseException:
        never: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return await never


@pytest.fixture
def world() -> Iterator[World]:
    with World(11) as made:
        settings = NamesrvSettings(bindAddress=NAMESRV)
        made.node("namesrv", NAMESRV).start(lambda runtime: NamesrvApp(settings, runtime))
        made.run_for_ms(10)
        yield made


def register(world: World, name: str, host: str, broker_id: int = 0, epoch: int = 1) -> None:
    node = world.nodes.get(name) or world.node(name, host)
    node.start(lambda runtime: RegisteringBroker(runtime, broker_id, f"{host}:10911", epoch))
    world.run_until(lambda: f"{host}:10911" in members(world).values(), limit_ms=5_000)


def members(world: World) -> dict[int, str]:
    app = world.nodes["namesrv"].app
    assert isinstance(app, NamesrvApp)
    group = app.table.groups.get("broker-a")
    return group.broker_addrs if group is not None else {}


def test_a_killed_broker_is_unregistered_when_its_sockets_close(world: World) -> None:
    register(world, "broker-0", "10.0.0.2")
    world.nodes["broker-0"].kill()
    world.run_until(lambda: members(world) == {}, limit_ms=1_000)


def test_a_broker_that_lost_power_is_unregistered_after_its_timeout(world: World) -> None:
    register(world, "broker-0", "10.0.0.2")
    world.nodes["broker-0"].kill(power_cut=True)
    world.run_for_ms(LIVE_MS - 100)
    assert members(world) == {0: "10.0.0.2:10911"}
    world.run_until(lambda: members(world) == {}, limit_ms=SCAN_MS + 200)


def test_a_new_master_is_routed_at_once_while_the_old_one_is_partitioned(world: World) -> None:
    register(world, "broker-0", "10.0.0.2", broker_id=0, epoch=1)
    world.network.cut("10.0.0.2", NAMESRV)
    register(world, "broker-1", "10.0.0.3", broker_id=0, epoch=2)
    assert members(world) == {0: "10.0.0.3:10911"}
    world.run_for_ms(LIVE_MS - 1_000)
    world.network.heal()
    world.run_for_ms(500)
    assert members(world) == {0: "10.0.0.3:10911"}


def test_a_restarted_name_server_knows_nothing_until_brokers_register_again(world: World) -> None:
    register(world, "broker-0", "10.0.0.2")
    world.nodes["namesrv"].kill()
    settings = NamesrvSettings(bindAddress=NAMESRV)
    world.nodes["namesrv"].start(lambda runtime: NamesrvApp(settings, runtime))
    world.run_for_ms(100)
    assert members(world) == {}
