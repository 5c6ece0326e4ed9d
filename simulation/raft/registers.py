"""Registers on a DLedger group, and clients that record their operations. The workload runs in the simulator and on real
processes.

Invariant: a client records an operation before sending it. It removes an operation from the record only if the operation
certainly did nothing, or was a read without a result."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dledger import DLedger, NotLeader, OutcomeUnknown, TooManyProposals
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.peer import Peer
from simulation.raft.linearizable import Operation, OperationHistory, OperationKind

CODE = 59999
"""DLedger's USER_DEFINE_REQUEST."""
KEYS = 3
OPERATIONS_A_KEY = 100
"""After so many operations another register is used, because the time to search a history grows with overlapping operations."""
VALUES = 4
CALL_MS = 3000
ASTRAY = 0.1


class Registers:
    """The state machine."""

    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}

    def apply(self, index: int, body: bytes) -> object:
        asked = json.loads(body)
        key = asked["key"]
        swaps = asked["kind"] != OperationKind.SWAP.value or self.values.get(key) == asked["expected"]
        if swaps:
            self.values[key] = asked["value"]
        return swaps

    def snapshot_save(self) -> Iterator[bytes]:
        yield json.dumps(self.values).encode()

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        self.values = json.loads(data)
        yield


class RegisterService:
    """Answers the clients of one member."""

    def __init__(self, ledger: DLedger, registers: Registers) -> None:
        self._ledger = ledger
        self._registers = registers

    def register(self) -> None:
        self._ledger.router.add(CODE, self._on_request)

    async def _on_request(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        assert command.body is not None
        return command.reply(200, body=json.dumps(await self._answer(bytes(command.body))).encode())

    async def _answer(self, body: bytes) -> dict[str, Any]:
        asked = json.loads(body)
        try:
            if asked["kind"] == OperationKind.READ.value:
                await self._ledger.read_index(CALL_MS // 2)
                return {"value": self._registers.values.get(asked["key"])}
            appended = await self._ledger.append(body, timeout_ms=CALL_MS // 2)
            return {"swapped": appended.results[0]}
        except (NotLeader, TooManyProposals):
            return {"leader": self._ledger.metadata.leader_id}
        except OutcomeUnknown:
            return {"unknown": True}


class Keys:
    """The registers in use. Each is used for a while."""

    def __init__(self) -> None:
        self._current = [f"r{number}" for number in range(KEYS)]
        self._used = Counter[str]()
        self._last = KEYS

    def one(self, chance: random.Random) -> str:
        at = chance.randrange(KEYS)
        key = self._current[at]
        self._used[key] += 1
        if self._used[key] == OPERATIONS_A_KEY:
            self._current[at] = f"r{self._last}"
            self._last += 1
        return key


class RegisterClient:
    """A client, which sends one operation after the other. `now` returns a time that all clients share."""

    def __init__(
        self,
        number: int,
        peers: Mapping[str, str],
        remoting: RemotingClient,
        history: OperationHistory,
        keys: Keys,
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self.number = number
        self.peers = peers
        self.remoting = remoting
        self.history = history
        self.keys = keys
        self.now = now
        self.chance = chance
        self.counts = Counter[str]()
        self._member = sorted(peers)[0]
        self._written = 0

    async def operate(self) -> None:
        """Send one operation to the supposed leader, or to another member, which may also believe that it leads."""
        if self.chance.random() < ASTRAY:
            self._member = self.chance.choice(sorted(self.peers))
        kind = self.chance.choice(
            (OperationKind.READ, OperationKind.READ, OperationKind.WRITE, OperationKind.SWAP)
        )
        value = None if kind is OperationKind.READ else self._new_value()
        expected = f"{self.chance.randrange(VALUES)}" if kind is OperationKind.SWAP else None
        operation = Operation(kind, self.keys.one(self.chance), self.number, self.now(), value, expected)
        self.history.called(operation)
        fields = {"kind": kind.value, "key": operation.key, "value": value, "expected": expected}
        request = RemotingCommand.request(CODE, body=json.dumps(fields).encode())
        try:
            reply = await self.remoting.call(self.peers[self._member], request, CALL_MS)
            self._end(operation, json.loads(bytes(reply.body or b"{}")))
        except NotSent:
            self._not_done(operation)
        except RemotingError:
            self._unknown(operation)

    def _new_value(self) -> str:
        """A value that is small enough for swaps to match it, and unique if that matters."""
        self._written += 1
        return f"{self.chance.randrange(VALUES)}" if self._written % 2 else f"{self.number}.{self._written}"

    def _end(self, operation: Operation, answer: Mapping[str, Any]) -> None:
        if "value" in answer or "swapped" in answer:
            operation.returned = self.now()
            operation.value = answer.get("value", operation.value)
            operation.swapped = answer.get("swapped")
            self.counts[operation.kind.value] += 1
        elif "leader" in answer:
            self._not_done(operation, answer["leader"])
        else:
            self._unknown(operation)

    def _not_done(self, operation: Operation, leader: str | None = None) -> None:
        self.history.take_back(operation)
        self.counts["not done"] += 1
        self._member = leader if leader and leader in self.peers else self.chance.choice(sorted(self.peers))

    def _unknown(self, operation: Operation) -> None:
        """The operation may take effect at any later time."""
        if operation.kind is OperationKind.READ:
            self.history.take_back(operation)
        self.counts["unknown"] += 1
        self._member = self.chance.choice(sorted(self.peers))
