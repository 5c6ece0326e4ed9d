"""Members of a group in one process and one loop, over memory and real loopback connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Self

from dledger import (
    DLedger,
    DLedgerSettings,
    EntryRefused,
)
from dledger.node.applying import StateMachine
from mqruntime.memoryruntime import MemoryFiles
from scripts.peers.waits import WAIT_S

LOOK_AGAIN_S = 0.005
SETTINGS = DLedgerSettings(
    heartbeat_interval_ms=50,
    election_timeout_min_ms=500,
    election_timeout_max_ms=1000,
    data_file_bytes=4096,
    index_file_bytes=32 * 64,
    entry_bytes_max=1024,
)


class LedgerGroup:
    """`machine(id)` makes each member's state machine; `options` go to each DLedger."""

    def __init__(
        self, size: int = 3, machine: Callable[[str], StateMachine | None] = lambda name: None, **options: Any
    ) -> None:
        self.machine = machine
        self.options = {"settings": SETTINGS, "group": "g"} | options
        self.peers = {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(free_ports(size))}
        self.files = {name: MemoryFiles() for name in self.peers}
        self.members: dict[str, DLedger] = {}

    async def __aenter__(self) -> Self:
        await asyncio.gather(*map(self.start, self.peers))
        return self

    async def __aexit__(self, *error: object) -> None:
        for name in list(self.members):
            await self.stop(name)

    def made(self, name: str) -> DLedger:
        """A new member, not started."""
        return DLedger(
            self_id=name,
            peers=self.peers,
            runtime=self.files[name].runtime(),
            state_machine=self.machine(name),
            **self.options,
        )

    async def start(self, name: str) -> DLedger:
        ledger = self.made(name)
        await ledger.start()
        self.members[name] = ledger
        return ledger

    async def stop(self, name: str) -> None:
        await self.members.pop(name).stop()

    async def leader(self) -> DLedger:
        """The leader that all running members follow, once it serves."""

        def agreed() -> DLedger | None:
            seen = [member.metadata for member in self.members.values()]
            leads = [each.self_id for each in seen if each.is_active]
            return (
                self.members[leads[0]]
                if len(leads) == 1 and {each.leader_id for each in seen} == {*leads}
                else None
            )

        return await until(agreed)


async def until(found: Callable[[], Any]) -> Any:
    """Wait until `found` returns a true value, and return it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if value := found():
                return value
            await asyncio.sleep(LOOK_AGAIN_S)


def free_ports(count: int) -> list[int]:
    with_ports = [socket.socket() for _ in range(count)]
    try:
        for each in with_ports:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in with_ports]
    finally:
        for each in with_ports:
            each.close()


class Sum:
    """Adds whole numbers and refuses other bodies."""

    def __init__(self) -> None:
        self.value = 0

    def apply(self, index: int, body: bytes) -> object:
        try:
            self.value += int(body)
        except ValueError:
            raise EntryRefused(f"{body!r} is no number") from None
        return self.value


def played(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())
