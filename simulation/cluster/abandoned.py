"""Transactions that nobody ends: of producers that go and never come back, and of one that stays and never knows; and what
becomes of all that is given up.

Invariants, judged against the check's own copy of all that was confirmed: E4 what nobody ends is given up, and stands in the
topic for that as it was sent; E5 nothing is given up before it is as old as the log is kept or was asked for often enough, nor
asked for more often."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count

from messagestore.systemtopics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from mqclient.client import Client
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.transactions import TransactionProducer, TransactionState
from simulation.cluster.violation import Violation

NAME = "abandoned transaction"
STAYS = "undecided"
"""The group of the one that stays."""
LEAVE, STAY = 6, 2
"""How many halves of those that go, and of it, are answered."""
PAUSE_MS = (1_000, 6_000)
CALL_MS = 1_500
ASKED_MAX = 15
"""As transactionCheckMax is by default."""


class Abandoned:
    """From a generator of its own. `kept_ms` is how long the log is kept; `plays`: there are such producers."""

    def __init__(self, seed: int, kept_ms: int, *, plays: bool) -> None:
        self.random = random.Random(f"{seed}/abandoned")
        self.kept_ms = kept_ms
        self.plays = plays
        self.asked: Counter[str] = Counter()
        self.given_up: set[str] = set()
        self.sent: dict[str, int] = {}
        """By key, the CRC-32 of the body."""
        self.acknowledged: set[str] = set()

    # -- producers

    async def leave(
        self, client: Callable[[], Client], topic: str, healed: Callable[[], bool], done: Counter[str]
    ) -> None:
        """One after the other begins a transaction, and goes."""
        begun = 0
        for number in count():
            await self._pause()
            if healed() or begun == LEAVE:
                return
            name = f"gone-{number}"
            async with client() as gone, gone.transactions(name, self._unknown, topics=[topic]) as producer:
                begun += await self._begin(producer, topic, name, done)

    async def stay(
        self,
        client: Callable[[], Client],
        topic: str,
        healed: Callable[[], bool],
        stopping: Callable[[], bool],
        done: Counter[str],
    ) -> None:
        """It begins when faults end, for masters that follow each other hardly come to ask, and is there until the end."""
        begun = 0
        async with client() as here, here.transactions(STAYS, self._unknown, topics=[topic]) as producer:
            while not stopping():
                await self._pause()
                if begun < STAY and healed():
                    begun += await self._begin(producer, topic, f"{STAYS}-{len(self.sent)}", done)

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.randint(*PAUSE_MS) / 1000)

    async def _begin(self, producer: TransactionProducer, topic: str, key: str, done: Counter[str]) -> bool:
        """Whether the half was answered."""
        body = self.random.randbytes(self.random.randint(16, 600))
        self.sent[key] = zlib.crc32(body)
        try:
            transaction = await producer.send(topic, body, keys=key, timeout_ms=CALL_MS)
        except (SendRefused, SendOutcomeUnknown):
            return False
        done[NAME] += 1
        if transaction.result.acknowledged:  # else it may be gone with its master
            self.acknowledged.add(key)
        return True

    def _unknown(self, message: StoredMessage) -> TransactionState:
        self.asked[message.properties.get("KEYS", "")] += 1
        return TransactionState.UNKNOWN

    # -- judgement

    def judge(self, ever: Iterable[StoredMessage], spread_ms: int) -> None:
        """`ever` is all that was ever confirmed, `spread_ms` how far clocks were apart. Raises Violation."""
        halves: dict[str, StoredMessage] = {}
        for message in ever:
            key = message.properties.get("KEYS", "")
            if message.topic == HALF_TOPIC:
                halves.setdefault(key, message)
            elif message.topic == CHECKED_TOO_OFTEN_TOPIC:
                self._judge_given_up(key, message, halves.get(key), spread_ms)
                self.given_up.add(key)
        for key, times in self.asked.items():
            if times > ASKED_MAX:
                raise Violation("E5", f"{key} was asked for {times} times")
        if gone := sorted(self.acknowledged - halves.keys()):
            raise Violation("E4", f"{gone} were acknowledged, and are nowhere")
        if waiting := sorted((self.sent.keys() & halves.keys()) - self.given_up):
            raise Violation("E4", f"nobody ends {waiting}, and they are not given up")

    def _judge_given_up(
        self, key: str, message: StoredMessage, half: StoredMessage | None, spread_ms: int
    ) -> None:
        if half is None or message.body != half.body or _own(message) != _own(half):
            raise Violation("E4", f"{key} was given up, and was not sent so: {message.properties}")
        if key in self.sent and zlib.crc32(message.body) != self.sent[key]:
            raise Violation("E3", f"{key} was given up with another body")
        waited_ms = message.store_timestamp_ms - half.store_timestamp_ms
        asked = int(message.properties.get("TRANSACTION_CHECK_TIMES", "0"))
        if waited_ms + spread_ms < self.kept_ms and asked < ASKED_MAX:
            raise Violation("E5", f"{key} was given up after {waited_ms} ms, asked for {asked} times")


def _own(message: StoredMessage) -> dict[str, str]:
    """Its properties, but for those that checks add."""
    added = ("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "__CRC32#")
    return {name: value for name, value in message.properties.items() if name not in added}
