"""One member of a simulated Raft group as a server, which runs only a DLedgerNode on its port.

Invariant: product code runs here unchanged, except for bugs that `simulation.mutants.raft.bugs` plants."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from dledger.node.listener import NodeListener
from dledger.node.node import DLedgerNode
from dledger.node.transport import PeerTransport
from dledger.raft.actions import Action, Role
from dledger.raft.entries import NO_INDEX, Entry
from dledger.raft.messages import Message, Request, Response, TransferRequest, VoteRequest
from dledger.raft.raft import Raft
from dledger.raft.settings import DLedgerSettings
from mqruntime.runtime import Runtime
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.errors import NotSent
from remoting.router import Router
from remoting.server import RemotingServer
from simulation.raft.check import RaftCheck
from simulation.raft.positions import Placed, position_in_body

PORT = 9877


class HashedState:
    """A state machine whose only state is the hash of the entries that it applied."""

    def __init__(self, check: RaftCheck, member: str) -> None:
        self.check = check
        self.member = member
        self.count = 0
        self.state = 0
        self.last_index = NO_INDEX

    def apply(self, index: int, body: bytes) -> object:
        self.state = self.check.saw_apply(self.member, self.count, index, body, self.state)
        self.count += 1
        self.last_index = index
        return index

    def snapshot_save(self) -> Iterator[bytes]:
        for number in (self.count, self.last_index, self.state):
            yield b"%d " % number

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        count, last_index, state = map(int, data.split())
        yield
        self.check.saw_load(self.member, count, last_index, state)
        self.count, self.last_index, self.state = count, last_index, state


class BatchedState(HashedState):
    """A state machine that applies a part of a batch, often all of it."""

    def __init__(self, check: RaftCheck, member: str, chance: random.Random) -> None:
        super().__init__(check, member)
        self.chance = chance

    def apply_batch(self, entries: Sequence[Entry]) -> Sequence[object]:
        taken = len(entries) if self.chance.random() < 0.7 else self.chance.randint(1, len(entries))
        self.check.batched += taken > 1
        return [self.apply(entry.index, entry.body) for entry in entries[:taken]]


class DroppingClient(RemotingClient):
    """A client that rejects `drop_share` of all calls, like a full queue or a peer's closed port. Each call waits up to
    `overtaking_ms` before it is sent, so later calls overtake it."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(clock=runtime.clock)
        self.random = runtime.random
        self.drop_share = 0.0
        self.overtaking_ms = 0

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int = 3000) -> RemotingCommand:
        if self.drop_share and self.random.random() < self.drop_share:
            raise NotSent(address, f"request {command.code} was dropped")
        if self.overtaking_ms:
            await asyncio.sleep(self.random.uniform(0, self.overtaking_ms) / 1000)
        return await super().call(address, command, timeout_ms)


class MemberApp(NodeListener):
    """`peers` maps member ids to addresses."""

    def __init__(
        self,
        runtime: Runtime,
        self_id: str,
        peers: Mapping[str, str],
        settings: DLedgerSettings,
        core_class: type[Raft],
        check: RaftCheck,
        transport_class: type[PeerTransport] = PeerTransport,
        *,
        batches: bool = False,
    ) -> None:
        self.check = check
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.client = DroppingClient(runtime)
        router = Router()
        host, _, port = peers[self_id].rpartition(":")
        self.server = RemotingServer(router, host=host, port=int(port), clock=runtime.clock)
        self.roles: list[tuple[Role, int]] = []
        self.core_number: int | None = None
        self.placed: deque[Placed] = deque()
        """Entries that the member has appended as leader without a waiting caller, until they are readable."""
        machine = BatchedState(check, self_id, runtime.random) if batches else HashedState(check, self_id)
        self.machine: HashedState | None = None if settings.same_positions else machine
        self.node = self.node_class(core_class, transport_class)(
            self_id=self_id,
            peers=peers,
            group="g",
            runtime=runtime,
            client=self.client,
            settings=settings,
            listener=self,
            state_machine=self.machine,
            snapshots=self.machine,
            position_in_body=position_in_body,
        )
        self.node.register(router)

    @staticmethod
    def node_class(
        core_class: type[Raft], transport_class: type[PeerTransport] = PeerTransport
    ) -> type[DLedgerNode]:
        classes = {"core_class": core_class, "transport_class": transport_class}
        return type("SimulatedNode", (DLedgerNode,), classes)

    async def start(self) -> None:
        await self.node.open()
        if self.node.settings.same_positions:
            self.check.positions.opened(self.node)
        await self.node.start()
        self.core_number = self.check.new_core(self.node)
        await self.server.start()

    def role_changed(self, role: Role, term: int) -> None:
        self.roles.append((role, term))
        if role is not Role.LEADER:
            self.placed.clear()

    def readable_to(self, end: int) -> None:
        self.check.positions.on_readable(self.node, end)
        while self.placed and self.placed[0].end <= end:
            self.check.positions.answered.append(self.placed.popleft())

    async def stop(self) -> None:
        await self.server.stop()
        await self.node.stop()
        await self.client.close()

    async def wait_failed(self) -> BaseException:
        return await self.failure

    def log_restarted(self, position: int) -> None:
        self.check.positions.on_restarted(self.node, position)

    def failed(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)


def watched(base: type[Raft], check: RaftCheck) -> type[Raft]:
    """A subclass of `base` that reports each arriving message to `check`."""

    class WatchedRaft(base):  # type: ignore[misc, valid-type]
        def receive(self, sender: str, message: Message, now_ms: int, ticket: int = 0) -> list[Action]:
            check.arrived(self.self_id, sender, message)
            if sender in self.peers:
                check.believes(self.self_id, sender, message)
                if isinstance(message, Response):
                    check.on_message(self.self_id, sender, message)
                if check.is_of_present_life(sender, message):
                    check.saw_durable_term(sender, check_term(message))
            elif sender in self.newer_config_peers:
                check.was_said(self.self_id, sender, message)
            before = (self.term, self.leader_id)
            actions: list[Action] = super().receive(sender, message, now_ms, ticket)
            if isinstance(message, TransferRequest):
                check.handed_over(self, before, sender, message)
            return actions

        def send(self, to: str, request: Request) -> None:
            check.says(self.self_id, request)
            check.on_message(to, self.self_id, request)
            super().send(to, request)

        def reply(self, ticket: int, response: Response) -> None:
            check.says(self.self_id, response)
            super().reply(ticket, response)

        def actions(self) -> list[Action]:
            check.moved.add(self)
            if self.turn.snapshot is not None:
                check.members.restarts(self, self.turn.snapshot.last_index)
            check.snapshots["installed"] += self.turn.snapshot is not None
            actions: list[Action] = super().actions()
            return actions

        def reclaimed(self, index: int) -> None:
            check.snapshots["reclaimed"] += index > self.log.prev_index
            super().reclaimed(index)

        def cut(self, index: int) -> None:
            check.cuts(self, index)
            check.members.cuts(self, index)
            super().cut(index)

        def append(self, entries: Sequence[Entry]) -> None:
            check.appends(self, entries)
            check.members.appends(self, entries)
            super().append(entries)

    return WatchedRaft


def check_term(message: Message) -> int:
    """The term that the sender of `message` is certainly in. A pre-vote contains the next term, which its sender has not
    entered yet."""
    ahead = isinstance(message, VoteRequest) and message.pre_vote
    return message.term - 1 if ahead else message.term
