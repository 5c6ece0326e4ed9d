"""A producer of transactions during drills. It commits some, rolls others back, and leaves the rest to checks by the broker.

Invariant: the end of a transaction is chosen before its half message is sent, and never changes. Every check gets that
answer."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from localcluster.ends import ChosenEnd, EndsVerdict, judge_ends
from localcluster.history import SendOutcome
from localcluster.load import read_messages
from localcluster.waiting import NotYet, WaitExpired, wait_for
from mqclient.client import Client
from mqclient.errors import EndOutcomeUnknown, EndRefused, PullFailed, SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.transactions import TransactionProducer, TransactionState

GROUP = "drill-transactions"
INTERVAL_MS = 20
TIMEOUT_MS = 1_000
COMMITS, ENDS = 0.7, 0.7
"""COMMITS is the share of committed transactions; ENDS is the share whose end the producer sends without a check."""
QUICK_CHECKS = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
"""Settings of a new cluster, whose drills last only seconds."""


class Transacting:
    """Sends one transaction every INTERVAL_MS to one topic, however long replies take."""

    def __init__(self, client: Client, topic: str, chance: random.Random) -> None:
        self.chosen: dict[str, ChosenEnd] = {}
        self._topic = topic
        self._chance = chance
        self._commits: dict[str, bool] = {}
        self._contradicted: list[str] = []
        self._consumer = client.consumer(GROUP)
        self._producer: TransactionProducer = client.transactions(GROUP, self._answer_check, topics=[topic])
        self._pacing: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._producer.__aenter__()
        self._pacing = asyncio.get_running_loop().create_task(self._pace(), name="drill transactions")

    async def stop(self, timeout_ms: int) -> EndsVerdict:
        """Wait at most `timeout_ms` until every transaction has its chosen end, and judge."""
        if self._pacing is not None:
            self._pacing.cancel()
            await asyncio.gather(self._pacing, return_exceptions=True)
        await asyncio.gather(*self._under_way)
        verdict = judge_ends(self.chosen, ())

        async def ended() -> None:
            nonlocal verdict
            try:
                read = [
                    message.properties.get("KEYS", "")
                    async for _, message in read_messages(self._consumer, self._topic)
                ]
            except PullFailed as error:
                raise NotYet(str(error)) from error
            verdict = judge_ends(self.chosen, read, self._contradicted)
            if verdict.lost:
                raise NotYet(verdict.lost[0])

        with suppress(WaitExpired):
            await wait_for("all transactions to be ended", ended, timeout_ms)
        await self._producer.close()
        return verdict

    def _answer_check(self, message: StoredMessage) -> TransactionState:
        commits = self._commits.get(message.properties.get("KEYS", ""))
        if commits is None:
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if commits else TransactionState.ROLLBACK

    async def _pace(self) -> None:
        loop = asyncio.get_running_loop()
        run, number = f"{self._chance.getrandbits(32):08x}", 0
        while True:
            number += 1
            task = loop.create_task(self._one(f"{run}-{number}"), name="drill transaction")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.sleep(INTERVAL_MS / 1000)

    async def _one(self, key: str) -> None:
        commits, ends = self._chance.random() < COMMITS, self._chance.random() < ENDS
        self._commits[key] = commits
        try:
            transaction = await self._producer.send(
                self._topic, key.encode(), keys=key, timeout_ms=TIMEOUT_MS
            )
        except (SendRefused, SendOutcomeUnknown) as error:
            half = SendOutcome.REFUSED if isinstance(error, SendRefused) else SendOutcome.UNKNOWN
            self.chosen[key] = ChosenEnd(half, commits)
            return
        half = SendOutcome.ACKNOWLEDGED if transaction.result.acknowledged else SendOutcome.UNKNOWN
        self.chosen[key] = ChosenEnd(half, commits)
        if ends and half is SendOutcome.ACKNOWLEDGED:
            try:
                await (transaction.commit() if commits else transaction.rollback())
            except EndRefused as error:
                self._contradicted.append(f"{key}: {error}")
            except EndOutcomeUnknown:
                pass  # the broker checks it
