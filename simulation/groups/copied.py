"""Records of a Raft-mode set become corrupt just before they are copied or listed again, or just before everything after them
is truncated.

G10 A message that is made from a record is the message that was sent, even if the record became corrupt after it was checked.
Such messages are delayed messages that fall due, committed messages, and messages that a consumer hands back. Queues that are
rebuilt over corrupt records list the committed records. If a log is truncated right after a corrupt entry, either its member
gets the entry again as it was written, or the member changes nothing and reports that it must be emptied.

Invariant: bits flip on one disk at a time, in records that all members have. Nothing else breaks, so each scene comes to its
end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from messagestore.systemtopics import HALF_TOPIC, SCHEDULE_TOPIC
from mqclient.client import Client
from mqclient.errors import EndOutcomeUnknown, EndRefused, SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.transactions import TransactionState
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.messages import ConsumerSendMsgBackHeader
from remoting.signing import Credentials
from simulation.groups.clients import topic_made
from simulation.groups.committed import HEADER, CommittedEntry, CommittedLog, record_in
from simulation.groups.delivered import messages_in
from simulation.groups.members import NAMESRV
from simulation.groups.rot import BODY_AT, MENDED_LIMIT_MS, OWN_AT, BitFlips, Flip
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation

T = TypeVar("T")

HOST = "10.0.3.5"
TOPIC, GROUP = "copied", "copier"
NAMES = 4
"""Names of the scenes: the topic, the group's retry topic, and both groups."""
ROUNDS = 2
COPIES = 3 * ROUNDS
BODY = b"as it was sent " * 12
TRIES, AGAIN_S = 40, 0.5
CHECKPOINT_MS = 8_000
CUT_LIMIT_MS = 20_000
NEVER_MS = 1 << 60


class Copied:
    """Plays the scenes. `flips` flips the bits and waits for the repairs. `start(node)` starts a node that a scene has stopped.
    Other stopped nodes are restarted by the world at their times in `restart_at_ms`."""

    def __init__(
        self,
        flips: BitFlips,
        committed: CommittedLog,
        node: Node,
        *,
        master_address: Callable[[], str | None],
        start: Callable[[Node], None],
        restart_at_ms: dict[str, int],
        credentials: Credentials | None = None,
    ) -> None:
        self._flips = flips
        self._committed_log = committed
        self._node = node
        self._world = flips.world
        self._master_address = master_address
        self._start = start
        self._restart_at_ms = restart_at_ms
        self._credentials = credentials
        self._random = random.Random(f"{flips.world.seed}/copied")

    def play(self) -> None:
        """Raises Violation."""
        clock = SimulatedClock(self._node)
        self._run(topic_made(TOPIC, self._master_address, clock, self._credentials))
        for number in range(ROUNDS):
            self._delayed(f"delayed-{number}")
            self._committed(f"committed-{number}")
            self._handed_back(f"back-{number}")
        self._listed_again()
        self._cut_behind()

    # What is copied

    def _delayed(self, key: str) -> None:
        self._run(self._sent(key, {"DELAY": "2"}))
        flip = self._flip_at_the_leader(key, SCHEDULE_TOPIC)
        self._is_copied(key, TOPIC, flip)

    def _committed(self, key: str) -> None:
        client = self._client()
        producer = client.transactions("committers", lambda message: TransactionState.UNKNOWN)
        begun = self._run(producer.send(TOPIC, BODY, keys=key))
        flip = self._flip_at_the_leader(key, HALF_TOPIC)

        async def commit() -> None:
            for _ in range(TRIES):
                try:
                    await begun.commit()
                    break
                except (EndRefused, EndOutcomeUnknown):
                    await asyncio.sleep(AGAIN_S)
            await client.close()

        self._run(commit())
        self._is_copied(key, TOPIC, flip)

    def _handed_back(self, key: str) -> None:
        self._run(self._sent(key, {}))
        sent = self._message(key, TOPIC)
        assert sent is not None, "it was acknowledged"
        flip = self._flip_at_the_leader(key, TOPIC)

        async def hand_back() -> None:
            header = ConsumerSendMsgBackHeader(
                sent.physical_offset, GROUP, 1, origin_msg_id=sent.message_id, origin_topic=TOPIC
            )
            async with self._client() as client:
                for _ in range(TRIES):
                    request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
                    try:
                        reply = await client.remoting.call(self._master_address() or "", request, 3_000)
                        if reply.code == ResponseCode.SUCCESS:
                            return
                    except RemotingError:
                        pass
                    await asyncio.sleep(AGAIN_S)

        self._run(hand_back())
        self._is_copied(key, f"%RETRY%{GROUP}", flip)

    async def _sent(self, key: str, properties: dict[str, str]) -> None:
        async with self._client() as client:
            for _ in range(TRIES):
                try:
                    await client.producer("copier").send(TOPIC, BODY, keys=key, properties=properties)
                    return
                except (SendRefused, SendOutcomeUnknown):
                    await asyncio.sleep(AGAIN_S)

    def _flip_at_the_leader(self, key: str, topic: str) -> Flip:
        """Flip a bit in the body of the leader's record, or in the properties after it."""
        self._flips.until(
            lambda: self._message(key, topic) is not None, MENDED_LIMIT_MS, f"{key} was not stored"
        )
        message = self._message(key, topic)
        leader = self._flips.leader()
        assert message is not None and leader is not None
        entry = self._committed_log.at[message.physical_offset - HEADER.size]
        body_end = HEADER.size + BODY_AT + len(message.body)
        return self._flips.flip_at(
            leader, entry, self._random.randrange(body_end - 20, entry.end - entry.position)
        )

    def _message(self, key: str, topic: str) -> StoredMessage | None:
        """The message according to the check's copy."""
        found = (one for one in messages_in(self._committed_log) if one.topic == topic)
        return next((one for one in found if one.properties.get("KEYS") == key), None)

    def _is_copied(self, key: str, topic: str, flip: Flip) -> None:
        self._flips.flipped.add(flip.node.name)
        self._flips.until(
            lambda: self._message(key, topic) is not None,
            MENDED_LIMIT_MS,
            f"{key} is not in {topic}",
            "G10",
        )
        copy = self._message(key, topic)
        if copy is None or copy.plain_body() != BODY:
            raise Violation("G10", f"{key} in {topic} is not the message that was sent: {copy}")
        self._flips.until(
            lambda: self._flips.is_intact(flip), MENDED_LIMIT_MS, f"{flip} was copied, and is not repaired"
        )
        self._flips.flipped.discard(flip.node.name)

    # Queues that are rebuilt

    def _listed_again(self) -> None:
        """While a member is down, an operator deletes its queues, and bits flip in two of its old messages."""
        self._flips.until(self._flips.caught_up, MENDED_LIMIT_MS, "the set has not caught up")
        self._world.run_for_ms(CHECKPOINT_MS)
        node = self._random.choice(self._flips.nodes)
        found = [entry for entry in self._flips.old_entries(node) if record_in(entry) is not None]
        if len(found) < 4:
            return
        head, named = sorted(self._random.sample(found[: len(found) // 2], 2))
        self._flips.flipped.add(node.name)
        self._flips.end(node, False)
        node.disk.drop("consumequeue/")
        topic_at = HEADER.size + BODY_AT + int.from_bytes(named.body[BODY_AT - 4 : BODY_AT], "big") + 1
        flips = [self._flips.flip_at(node, head, 24 + 5), self._flips.flip_at(node, named, topic_at)]
        self._flips.until(
            lambda: all(map(self._flips.is_intact, flips)),
            2 * MENDED_LIMIT_MS,
            f"{flips[0]} is not repaired",
            "G10",
        )
        self._flips.flipped.discard(node.name)
        self._flips.until(self._flips.caught_up, MENDED_LIMIT_MS, "queues are not rebuilt", "G10")

    # A log that is truncated

    def _cut_behind(self) -> None:
        """A leader is cut off and writes entries that are never committed. A bit flips in the last entry that it must keep."""
        self._flips.until(self._flips.caught_up, MENDED_LIMIT_MS, "the set has not caught up")
        leader = self._flips.leader()
        assert leader is not None
        term = self._flips.look_at(leader).raft.term
        for node in self._flips.nodes:
            if node is not leader:
                self._world.network.cut(leader.host, node.host)

        def first_of_the_next() -> CommittedEntry | None:
            return next((entry for entry in reversed(self._committed_log.entries) if entry.term > term), None)

        self._flips.until(lambda: first_of_the_next() is not None, MENDED_LIMIT_MS, "no other member leads")
        first = next(entry for entry in self._committed_log.entries if entry.term > term)
        kept = self._committed_log.entries[first.number - 1 - self._committed_log.entries[0].number]
        raft = self._flips.look_at(leader).raft
        is_cut = raft.last_index > kept.number and kept.number <= raft.store.log.end_index  # type: ignore[union-attr]
        self._restart_at_ms[leader.name] = NEVER_MS
        self._flips.flipped.add(leader.name)
        flip = self._flips.flip_at(leader, kept, OWN_AT + self._random.randrange(4)) if is_cut else None
        self._world.network.heal()
        if flip is not None:
            self._flips.until(
                lambda: leader.failure is not None or self._flips.is_intact(flip), CUT_LIMIT_MS,
                f"{flip} was truncated behind, and is not repaired", "G10",
            )  # fmt: skip
        if leader.failure is not None:
            if "is to be cut behind it" not in str(leader.failure):
                raise Violation("G10", f"{leader.name} ended: {leader.failure}")
            leader.disk.wipe()
            self._start(leader)
        del self._restart_at_ms[leader.name]
        self._flips.flipped.discard(leader.name)
        self._flips.until(
            self._flips.caught_up, MENDED_LIMIT_MS, "the emptied member does not come back", "G10"
        )

    def _client(self) -> Client:
        chance = random.Random(self._random.random())
        return Client(NAMESRV, clock=SimulatedClock(self._node), random=chance, credentials=self._credentials)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` within the client's process, and return its result."""
        ended: list[T] = []

        async def run() -> None:
            ended.append(await work)

        self._node.spawn(run())
        self._flips.until(lambda: ended, MENDED_LIMIT_MS, "a client has no answer")
        return ended[0]
