"""A group of members in one process that answers clients, and groups whose members change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dledger import DLedger, NotLeader, OutcomeUnknown
from dledger.client import DLedgerClient
from dledger.service import ClientService
from mqruntime.clock import SystemClock
from mqruntime.memoryruntime import MemoryFiles
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from tests.unit.dledger.ledgergroup import SETTINGS, LedgerGroup, Sum, free_ports


class ServedGroup(LedgerGroup):
    """Its members answer clients."""

    def made(self, name: str) -> DLedger:
        ledger = super().made(name)
        ClientService(ledger).register()
        return ledger


class Clients:
    """`raw` sends a given text; `client` is our client."""

    def __init__(self, group: LedgerGroup, timeout_ms: int = 3000) -> None:
        self.remoting = RemotingClient(clock=SystemClock())
        self.client = DLedgerClient(group.peers, "g", self.remoting, timeout_ms)
        self.group = group

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.remoting.close()

    async def raw(self, member: DLedger, code: int, text: str) -> dict[str, Any]:
        address = self.group.peers[member.metadata.self_id]
        reply = await self.remoting.call(address, RemotingCommand.request(code, body=text.encode()))
        assert reply.code == 200 and reply.body is not None
        answer = json.loads(bytes(reply.body))
        assert isinstance(answer, dict)
        return answer


class ChangingGroup(ServedGroup):
    async def newcomer(self, name: str) -> str:
        """Start a member that the group does not know yet, and return its address."""
        (port,) = free_ports(1)
        self.peers = self.peers | {name: f"127.0.0.1:{port}"}
        self.files[name] = MemoryFiles()
        await self.start(name)
        return self.peers[name]

    async def gone(self, name: str) -> None:
        """Stop the member and remove it from the lists of later starts."""
        await self.stop(name)
        self.peers = {member: address for member, address in self.peers.items() if member != name}


class SavedSum(Sum):
    def snapshot_save(self) -> Iterator[bytes]:
        yield b"%d" % self.value

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        yield
        self.value = int(data)


class SavingGroup(ChangingGroup):
    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, SavedSum] = {}

    def made(self, name: str) -> DLedger:
        machine = self.sums[name] = SavedSum()
        settings = replace(SETTINGS, snapshot_entries=20, snapshot_margin_entries=0)
        runtime = self.files[name].runtime()
        ledger = DLedger(
            self_id=name,
            peers=self.peers,
            group="g",
            runtime=runtime,
            state_machine=machine,
            snapshots=machine,
            settings=settings,
        )
        ClientService(ledger).register()
        return ledger


async def written(group: ChangingGroup, clients: Clients, body: bytes) -> int:
    """Append `body`, retrying while leaders change, and return its index."""
    while True:
        try:
            return (await clients.client.append([body])).first_index
        except (NotLeader, OutcomeUnknown):
            continue
