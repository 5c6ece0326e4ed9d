"""Three controllers over a hundred broker sets, on disks that take 5 ms for a sync, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from controller import commands
from controller.decision import Decision
from controller.failover import SETS_A_TURN
from controller.heartbeats import Liveness
from controller.server import ControllerApp
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from dledger.raft.actions import PersistThenSend
from remoting.bodies.replicas import SyncStateSetBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.header import Header
from remoting.headers.controller import AlterSyncStateSetHeader as AlterHeader
from remoting.headers.controller import (
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    ElectMasterHeader,
    RegisterBrokerToControllerHeader,
)
from simulation.controllers.world import CONTROLLER_HOSTS, GROUP, PEERS
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World

SETS = 100
SYNC_MS = 5
SYNCS_OF_A_PROPOSAL = 2  # the leader's and a follower's, in sequence at worst
ROUNDS_MAX = 10
Broker = tuple[str, int]


class ManySets:
    """Sets of two brokers; each broker has its own client."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = [f"set-{number}" for number in range(SETS)]
        self.nodes = [world.node(name, host) for name, host in zip(PEERS, CONTROLLER_HOSTS, strict=True)]
        self.clients: dict[Broker, RemotingClient] = {}
        for node in self.nodes:
            node.disk.slow_down(SYNC_MS, SYNC_MS)
            self._start(node)
        world.run_until(lambda: self._leads() is not None, limit_ms=10_000)
        world.run(self._register_all())

    def _start(self, node: Node) -> None:
        settings = ControllerSettings.model_validate(
            {
                "controllerDLegerGroup": GROUP,
                "controllerDLegerPeers": ";".join(f"{name}-{address}" for name, address in PEERS.items()),
                "controllerDLegerSelfId": node.name,
                "mappedFileSize": 1 << 20,
            }
        )
        node.start(lambda runtime: ControllerApp(settings, runtime))

    def _leads(self) -> Node | None:
        for node in self.nodes:
            if isinstance(node.app, ControllerApp) and node.app.node.is_active:
                return node
        return None

    @property
    def leader(self) -> ControllerApp:
        node = self._leads()
        assert node is not None and isinstance(node.app, ControllerApp)
        return node.app

    @property
    def leader_address(self) -> str:
        node = self._leads()
        assert node is not None
        return PEERS[node.name]

    async def _register_all(self) -> None:
        await asyncio.gather(*map(self._register, self.names))

    async def _register(self, name: str) -> None:
        for broker_id in (1, 2):
            client = self.clients[name, broker_id] = RemotingClient(clock=SimulatedClock(self.nodes[0]))
            await self._call(client, 1013, ApplyBrokerIdHeader(name, broker_id, f"h{broker_id}:1;7", "c"))
            register = RegisterBrokerToControllerHeader(name, broker_id, f"h{broker_id}:1", "c")
            await self._call(client, 1003, register)
            for address in PEERS.values():
                beat = BrokerHeartbeatHeader("c", f"h{broker_id}:1", name, broker_id, 1, 100, 100, 600_000)
                await client.one_way(address, RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, beat))
        client = self.clients[name, 1]
        await self._call(client, 1002, ElectMasterHeader(name, "c", 1))
        await self._call(
            client, 1001, AlterHeader(name, 1, 1), SyncStateSetBody(frozenset({1, 2}), 1).encode()
        )

    async def _call(
        self, client: RemotingClient, code: int, header: Header, body: bytes | None = None
    ) -> None:
        leader = self._leads()
        assert leader is not None
        reply = await client.call(PEERS[leader.name], RemotingCommand.request(code, header, body), 30_000)
        assert reply.code == ResponseCode.SUCCESS, reply


@pytest.fixture
def sets() -> Iterator[ManySets]:
    with World(16) as world:
        yield ManySets(world)


def test_masters_lost_at_once_are_replaced_at_once(sets: ManySets, monkeypatch: pytest.MonkeyPatch) -> None:
    began_ms, store, synced = sets.world.now_ms, sets.leader.node.store, list[int]()
    persist = store.persist

    async def persisting(steps: Sequence[PersistThenSend], meanwhile: Callable[[], Awaitable[None]]) -> None:
        synced.append(sum(len(step.entries) for step in steps))
        await persist(steps, meanwhile)

    monkeypatch.setattr(store, "persist", persisting)

    async def lose_masters() -> None:
        await asyncio.gather(*(sets.clients[name, 1].close() for name in sets.names))

    sets.world.run(lose_masters())
    states = sets.leader.state.sync_states
    sets.world.run_until(lambda: all(state.master_id == 2 for state in states.values()), limit_ms=60_000)
    assert sets.world.now_ms - began_ms < ROUNDS_MAX * SYNCS_OF_A_PROPOSAL * SYNC_MS
    assert len(synced) <= 2, "one for the first detected, one for all others"


def test_many_sets_are_read_in_several_turns_and_returned_in_one_answer(
    sets: ManySets, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, read_at_once = commands.sync_state_data, list[int]()

    def reading(state: ReplicasState, live: Liveness, *, broker_names: Sequence[str]) -> Decision:
        read_at_once.append(len(broker_names))
        return read(state, live, broker_names=broker_names)

    async def ask(*names: str) -> RemotingCommand:
        body = json.dumps(names).encode()
        request = RemotingCommand.request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
        return await sets.clients["set-0", 2].call(sets.leader_address, request)

    monkeypatch.setattr(commands, "sync_state_data", reading)
    reply = sets.world.run(ask(*sets.names, "unknown", "set-7"))
    assert sum(read_at_once) == SETS + 1 and max(read_at_once) <= SETS_A_TURN
    singly = [sets.world.run(ask(name)) for name in sets.names]
    states = json.loads(bytes(reply.body or b""))["replicasInfoTable"]
    assert list(states) == sets.names
    assert states == {
        name: json.loads(bytes(one.body or b""))["replicasInfoTable"][name]
        for name, one in zip(sets.names, singly, strict=True)
    }
    unknown = [f"other-{number}" for number in range(2 * SETS_A_TURN)]
    assert sets.world.run(ask(*unknown)).body == b'{"replicasInfoTable":{}}'


def test_sets_that_register_at_once_share_syncs(sets: ManySets) -> None:
    assert sets.world.now_ms < 2_000
