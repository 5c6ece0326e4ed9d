"""Raft-mode sets that were made from a broker without Raft mode. Each member has the same plain log (the commit log of that
broker), which its DLedger log continues.

O1 until retention has deleted its file, each record of the plain log is durable, byte for byte as it was, on every member that
lets readers see anything O2 retention deletes the plain log in whole files, the first one first, and each file is old enough O3
while one of the first members has another plain log, no member leads; after an operator has emptied that member, it copies the
log

Invariant: the expected content of the plain log was noted before the first start in Raft mode: what its producer sent, and the
bytes of the files. Formats are read here without the product's code."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from localcluster.history import MessagePlace, SendAttempt, SendOutcome
from localcluster.load import body_hash
from mqadmin.admin import AdminClient
from mqclient.client import Client
from mqclient.errors import SendRefused
from mqclient.message import OutgoingMessage
from simulation.groups.clients import made
from simulation.groups.committed import (
    HEADER,
    RECORD_HEAD,
    RECORD_MAGICS,
    CommittedEntry,
    CommittedLog,
    record_in,
)
from simulation.groups.members import BROKER_PORT, BROKER_SET, NAMESRV, GroupsKind, Look
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.workloads.accounts import SIGNING, signer_of

BEFORE = "before"
"""The topic of the plain log's messages."""
QUEUES = 2
FILES = 2.5
BODY_BYTES_MAX = 3_000
LEVEL_LIMIT_MS, APART_MS = 20_000, 4_000
LOOK_MS = 2_000


@dataclass
class Mixed:
    """The plain logs of the set on `nodes`. According to `kind.mixed`, all members have the plain log, or one is empty, or one
    is missing its end."""

    world: World
    kind: GroupsKind
    nodes: list[Node]
    committed: CommittedLog
    client_node: Node
    attempts: list[SendAttempt] = field(default_factory=list)
    files: dict[int, bytes] = field(default_factory=dict)
    """Where each file begins, and the records in it."""
    end: int = 0
    """Where the last file ends."""
    apart: Node | None = None
    """The member that begins with another log."""
    begins: dict[str, int] = field(default_factory=dict)
    """For each member: up to where retention has deleted the plain log."""
    looked_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def prepare(self) -> None:
        """A broker without Raft mode on the first node takes messages and stops. The other members get copies of its disk."""
        first, *others = self.nodes
        chance = random.Random(f"{self.world.seed}/mixed")
        first.start(partial(plain_broker, self.kind, first.host))
        self.world.run_until(
            lambda: isinstance(first.app, BrokerApp) and first.app.membership.accepts_sends, LEVEL_LIMIT_MS
        )
        self.world.run(self._fill(chance))
        self.world.run(first.stop())
        for node in others:
            for path in first.disk.entries:
                node.disk.put(path, first.disk.content(path) or b"")
        self._keep(first)
        odd = chance.choice(self.nodes)
        if self.kind.mixed == "empty":
            odd.disk.wipe()
        elif self.kind.mixed == "different":
            self.apart = odd
            self._shorten(odd)

    async def _fill(self, chance: random.Random) -> None:
        clock = SimulatedClock(self.client_node)
        admin = AdminClient(clock, signer=signer_of(self.kind.credentials))
        await made(admin, BEFORE, QUEUES, lambda: f"{self.nodes[0].host}:{BROKER_PORT}")
        await admin.close()
        client = Client(
            NAMESRV,
            clock=clock,
            random=random.Random(chance.getrandbits(32)),
            credentials=self.kind.credentials,
        )
        async with client:
            producer, size = client.producer("before"), 0
            while size < FILES * self.kind.segment_bytes:
                key, body = (
                    f"before-{len(self.attempts)}",
                    chance.randbytes(chance.randint(1, BODY_BYTES_MAX)),
                )
                now_ms = clock.now_ms()
                try:
                    result = await producer.send_message(
                        BEFORE, OutgoingMessage(body, {"KEYS": key}), queue_id=len(self.attempts) % QUEUES
                    )
                except SendRefused:
                    continue
                place = MessagePlace(str(result.queue), result.queue_offset)
                self.attempts.append(
                    SendAttempt(
                        key, body_hash(body), SendOutcome.ACKNOWLEDGED, now_ms, clock.now_ms(), place, ""
                    )
                )
                size += len(body)

    def _keep(self, node: Node) -> None:
        size = self.kind.segment_bytes
        for path in sorted(path for path in node.disk.entries if path.startswith("commitlog/")):
            start, content = int(path[-20:]), node.disk.content(path) or b""
            at = 0
            while len(content) - at > RECORD_HEAD.size:
                record_bytes, magic, *_ = RECORD_HEAD.unpack_from(content, at)
                if magic not in RECORD_MAGICS:
                    break
                self._know(start + at, content[at : at + record_bytes])
                at += record_bytes
            if at:  # the next file is made in advance
                self.files[start] = content[:at]
                self.end = start + size
        if len(self.committed.records) < len(self.attempts):
            raise Violation(
                "O1",
                f"{len(self.attempts)} messages were acknowledged, the plain log has {len(self.committed.records)}",
            )
        self.committed.begin = self.committed.end = self.end

    def _know(self, place: int, content: bytes) -> None:
        record = record_in(CommittedEntry(place - HEADER.size, 0, 0, content))
        assert record is not None, "its magic was checked"
        self.committed.count(record, content)

    def _shorten(self, node: Node) -> None:
        """Cut the last message, as on a replica that was behind."""
        place = max(self.committed.records)
        start = place - place % self.kind.segment_bytes
        path = f"commitlog/{start:020d}"
        content = bytearray(node.disk.content(path) or b"")
        content[place - start :] = bytes(len(content) - (place - start))
        for folder in ("consumequeue/", "index/", "checkpoint"):
            node.disk.drop(folder)
        node.disk.put(path, bytes(content))

    def put_right(self, looks: Callable[[], list[Look]]) -> None:
        """All members find the difference, and an operator empties the member that is apart."""
        if self.apart is None:
            return
        self.world.run_until(lambda: len(looks()) == len(self.nodes), LEVEL_LIMIT_MS)
        self.world.run_for_ms(APART_MS)
        if leading := [look.name for look in looks() if look.raft.is_active]:
            raise Violation("O3", f"{leading} lead, expected none: {self.apart.name} has another plain log")
        self.apart.kill()
        self.apart.disk.wipe()
        self.apart = None

    def is_apart(self, look: Look) -> bool:
        """Whether the member has another plain log, which may end in an earlier file, and takes no part."""
        return self.apart is not None and look.name == self.apart.name

    def look(self, look: Look) -> None:
        """Raises Violation O1, O2."""
        store = look.app.store
        begin = min(store.min_offset(), self.end)
        if self.is_apart(look) or store.confirm_offset() < self.end:
            return  # it takes no part, or is empty and copies everything
        self._look_at_age(look, begin)
        now_ms = self.world.now_ms
        if now_ms < self.looked_ms.get(look.key, -LOOK_MS) + LOOK_MS:
            return
        self.looked_ms[look.key] = now_ms
        disk = self.nodes[look.number].disk
        for start, records in self.files.items():
            if start >= begin and disk.durable_part(f"commitlog/{start:020d}", 0, len(records)) != records:
                raise Violation("O1", f"{look.name} shows its log, and file {start} of its plain log differs")

    def _look_at_age(self, look: Look, begin: int) -> None:
        before = self.begins.get(look.name, 0)
        self.begins[look.name] = begin
        if begin <= before:
            return
        if begin % self.kind.segment_bytes or self.kind.kept_s is None:
            raise Violation(
                "O2", f"{look.name} begins at {begin}, expected 0: files are kept for {self.kind.kept_s} s"
            )
        stored_ms = max(
            record.stored_ms for place, (record, _) in self.committed.records.items() if place < begin
        )
        now_ms = look.app.store._clock.now_ms()
        if look.raft.log_begin() <= self.end and stored_ms + self.kind.kept_s * 1000 > now_ms:
            raise Violation(
                "O2",
                f"{look.name} begins at {begin}: deleted records were stored up to {stored_ms}, it is {now_ms}",
            )


def plain_broker(kind: GroupsKind, host: str, runtime: Any) -> BrokerApp:
    settings = {
        "brokerName": BROKER_SET,
        "enableControllerMode": False,
        "brokerRole": "ASYNC_MASTER",
        "brokerId": 0,
        "brokerIP1": host,
        "bindAddress": host,
        "listenPort": BROKER_PORT,
        "namesrvAddr": NAMESRV,
        "mappedFileSizeCommitLog": kind.segment_bytes,
        "mappedFileSizeConsumeQueue": 2000,
        "maxMessageSize": 4096,
        **(SIGNING if kind.is_guarded else {}),
    }
    return BrokerApp(BrokerSettings.model_validate(settings), runtime)
