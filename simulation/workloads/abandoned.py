"""Transactions that nobody ends: their producer has left for good, or stays but answers each check with "unknown". Brokers must
give up such halves (messages whose transaction has no end yet).

Invariants, judged with the check's own copy of all confirmed messages: E4 a half that nobody ends is given up, and the topic
for such halves has it as it was sent; E5 a half is given up only when it is older than the log is kept, or was checked often
enough, and it is not checked more often."""

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
from simulation.kernel.violation import Violation

NAME = "abandoned transaction"
STAYS = "undecided"
"""The group of the producer that stays connected."""
LEAVE, STAY = 6, 2
"""How many halves must be acknowledged: of the producers that leave, and of the producer that stays."""
PAUSE_MS = (1_000, 6_000)
CALL_MS = 1_500
ASKED_MAX = 15
"""The default of transactionCheckMax."""


class Abandoned:
    """The abandoned transactions, with a separate random generator. `kept_ms` is how long the log is kept. `plays` says
    whether there are such producers."""

    def __init__(self, seed: int, kept_ms: int, *, plays: bool) -> None:
        self.random = random.Random(f"{seed}/abandoned")
        self.kept_ms = kept_ms
        self.plays = plays
        self.asked: Counter[str] = Counter()
        self.given_up: set[str] = set()
        self.sent: dict[str, int] = {}
        """Key -> CRC-32 of the body."""
        self.acknowledged: set[str] = set()

    # -- producers

    async def leave(
        self, client: Callable[[], Client], topic: str, healed: Callable[[], bool], done: Counter[str]
    ) -> None:
        """Let one producer after the other begin a transaction and leave."""
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
        """Let the producer that stays begin when faults end, because masters that change often hardly ever check. It stays
        until the end."""
        begun = 0
        async with client() as here, here.transactions(STAYS, self._unknown, topics=[topic]) as producer:
            while not stopping():
                await self._pause()
                if begun < STAY and healed():
                    begun += await self._begin(producer, topic, f"{STAYS}-{len(self.sent)}", done)

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.randint(*PAUSE_MS) / 1000)

    async def _begin(self, producer: TransactionProducer, topic: str, key: str, done: Counter[str]) -> bool:
        """Begin a transaction. Returns whether the half was acknowledged."""
        body = self.random.randbytes(self.random.randint(16, 600))
        self.sent[key] = zlib.crc32(body)
        try:
            transaction = await producer.send(topic, body, keys=key, timeout_ms=CALL_MS)
        except (SendRefused, SendOutcomeUnknown):
            return False
        done[NAME] += 1
        if transaction.result.acknowledged:  # else it may be lost with its master
            self.acknowledged.add(key)
        return True

    def _unknown(self, message: StoredMessage) -> TransactionState:
        self.asked[message.properties.get("KEYS", "")] += 1
        return TransactionState.UNKNOWN

    # -- judgement

    def judge(self, ever: Iterable[StoredMessage], spread_ms: int) -> None:
        """Judge the halves. `ever` are all messages ever confirmed; `spread_ms` is how far clocks were apart. Raises
        Violation."""
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
                raise Violation("E5", f"{key} was asked for {times} times, expected {ASKED_MAX} at most")
        if gone := sorted(self.acknowledged - halves.keys()):
            raise Violation("E4", f"{gone} were acknowledged, and are nowhere in the log")
        if waiting := sorted((self.sent.keys() & halves.keys()) - self.given_up):
            raise Violation("E4", f"{waiting} have no end, and were not given up")

    def _judge_given_up(
        self, key: str, message: StoredMessage, half: StoredMessage | None, spread_ms: int
    ) -> None:
        if half is None or message.body != half.body or _own(message) != _own(half):
            raise Violation("E4", f"{key} was given up as {message.properties}, its half is {half}")
        if key in self.sent and zlib.crc32(message.body) != self.sent[key]:
            raise Violation("E3", f"{key} was given up with another body")
        waited_ms = message.store_timestamp_ms - half.store_timestamp_ms
        asked = int(message.properties.get("TRANSACTION_CHECK_TIMES", "0"))
        if waited_ms + spread_ms < self.kept_ms and asked < ASKED_MAX:
            what = f"{key} was given up after {waited_ms} ms and {asked} checks"
            raise Violation("E5", f"{what}, expected {self.kept_ms} ms or {ASKED_MAX} checks")


def _own(message: StoredMessage) -> dict[str, str]:
    """The half's properties without those that checks add."""
    added = ("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "__CRC32#")
    return {name: value for name, value in message.properties.items() if name not in added}
