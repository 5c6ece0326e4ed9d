"""Producers of messages in transactions. The producers die at every step, and masters die with them.

The producers share the outcomes of transactions, as if they used a database that survives them. The first living producer that
is asked makes the decision once, and the decision outlives that producer. Some ends are sent twice, by two producers, late, or
to brokers that are no master. Some ends are the opposite of a confirmed end.

Invariants, judged with the check's own copy of all confirmed messages: E1 a transaction is committed at most once; E2 a
confirmed end stays: messages that were committed are there, and messages that were rolled back never; E3 a message that is
there was sent and committed; E4 once the cluster is whole, no transaction waits for ever, except those that were given up
after checks (simulation.workloads.abandoned)."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from messagestore.systemtopics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from mqclient.client import Client
from mqclient.errors import EndOutcomeUnknown, EndRefused, SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.transactions import Transaction, TransactionProducer, TransactionState
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.transactions import EndTransactionHeader
from remoting.signing import Credentials
from simulation.cluster.members import BROKER_PORT
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.workloads.abandoned import Abandoned

NAME = "transaction"
GROUP = "deals"
DEALS = "deals"
SETTINGS: dict[str, object] = {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_500}
"""Settings of brokers."""
TOPICS = (DEALS, f"%RETRY%{DEALS}", HALF_TOPIC, OP_HALF_TOPIC, CHECKED_TOO_OFTEN_TOPIC)
"""Topics and groups that exist because of the dealers."""
PRODUCERS = 2
STAYS = (0.7, 0.9, 0.97)
"""The chance that a producer makes one more transaction."""
SILENT_MS = (100, 3_000)
PAUSE_MS = (50, 1_500)
CALL_MS = 1_500
MASTER_DIES = 0.06
SPARED_MS = 12_000
"""The next master is spared for this time after each death, because there are other faults."""
SETTLED_MS = 60_000
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
COMMIT_FLAG, FLAGS = 0x8, 0xC


@dataclass
class Deal:
    """One transaction, as its producers know it. `answered` is the end (commit or rollback) that a broker confirmed to one of
    the producers. `said` are all ends that were ever sent for the transaction."""

    crc: int
    stored: bool = False
    refused: bool = False
    decision: TransactionState | None = None
    answered: TransactionState | None = None
    said: set[TransactionState] = field(default_factory=set)


class Dealers:
    """The producers, with their own random generator, on a host without faults. `master()` returns the leading node,
    `kill(node)` kills it, and `create_topic()` creates the topic. `done` counts. With `keeps`, a stored half stays until it is
    ended, or given up, which `abandoned` knows."""

    def __init__(
        self,
        node: Node,
        brokers: Sequence[Node],
        *,
        seed: int,
        namesrv: str,
        master: Callable[[], Node | None],
        kill: Callable[[Node], object],
        create_topic: Callable[[], Awaitable[None]],
        done: Counter[str],
        keeps: bool,
        abandoned: Abandoned | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.node = node
        self.random = random.Random(f"{seed}/transactors")
        self._brokers = brokers
        self._namesrv = namesrv
        self._master = master
        self._kill = kill
        self._create_topic = create_topic
        self._done = done
        self._credentials = credentials
        self.deals: dict[str, Deal] = {}
        self.asked: set[str] = set()
        """Keys that some broker checked."""
        self.halves_at_risk: set[str] = set()
        self.ends_at_risk: set[str] = set()
        """Keys of transactions that began, and of those that ended, before a master lost the end of its log and continued."""
        self.keeps = keeps
        self.abandoned = abandoned
        self.violation: Violation | None = None
        self.healed = self.stopping = False
        self.spared_until_ms = 0
        self.begun = False
        self.living = 0

    def memory_lost(self) -> None:
        """A master that acknowledges alone continues without the end of its log."""
        self.halves_at_risk |= self.deals.keys()
        self.ends_at_risk |= {key for key, deal in self.deals.items() if deal.answered}

    def look(self) -> None:
        """Called often. Raises Violation."""
        if self.violation is not None:
            raise self.violation
        if not self.begun:
            self.begun = True
            self.node.spawn(self.begin())

    async def begin(self) -> None:
        await self._create_topic()
        for _ in range(PRODUCERS):
            self.living += 1
            self.node.spawn(self.produce())
        if self.abandoned is not None and self.abandoned.plays:
            abandoned, healed, stopping = self.abandoned, lambda: self.healed, lambda: self.stopping
            self.node.spawn(abandoned.leave(self.client, DEALS, healed, self._done))
            self.node.spawn(abandoned.stay(self.client, DEALS, healed, stopping, self._done))

    # -- producers

    async def produce(self) -> None:
        """Run one producer after the other. The last producer lives until the end, to answer checks."""
        while not self.stopping:
            async with (
                self.client() as client,
                client.transactions(GROUP, self.decide, topics=[DEALS]) as producer,
            ):
                await self.live(client, producer)
            if not self.healed:
                await asyncio.sleep(self.random.randint(*SILENT_MS) / 1000)
        self.living -= 1

    async def live(self, client: Client, producer: TransactionProducer) -> None:
        stays = self.random.choice(STAYS)
        while not self.stopping and (self.healed or self.random.random() < stays):
            if not self.healed:
                await self.deal(client, producer)
            await asyncio.sleep(self.random.randint(*PAUSE_MS) / 1000)

    async def deal(self, client: Client, producer: TransactionProducer) -> None:
        """Make one transaction, as far as possible."""
        key = f"deal-{len(self.deals)}"
        body = self.random.randbytes(self.random.randint(16, 600))
        deal = self.deals[key] = Deal(zlib.crc32(body))
        try:
            transaction = await producer.send(DEALS, body, keys=key, timeout_ms=CALL_MS)
        except SendRefused:
            deal.refused = True
            return
        except SendOutcomeUnknown:
            return
        deal.stored = transaction.result.acknowledged
        self._done[NAME] += 1
        self.let_master_die("a half")
        fate = self.random.random()
        if fate < 0.2:
            return  # the producer never ends the transaction, or dies before
        if fate < 0.4:
            await asyncio.sleep(self.random.randint(*PAUSE_MS) / 200)  # lets a broker check before the end
        state = self.decision(deal)
        if fate > 0.9:
            self.send_to_all(client, transaction, deal, state)
        await self.end(transaction, deal, state)
        if fate > 0.7:
            await self.end(transaction, deal, state)
        if fate > 0.8 and deal.answered is not None:
            await self.end(transaction, deal, ROLLBACK if state is COMMIT else COMMIT)

    async def end(self, transaction: Transaction, deal: Deal, state: TransactionState) -> None:
        if deal.answered is None:
            deal.said.add(state)
        before = deal.answered
        try:
            if state is COMMIT:
                await transaction.commit(timeout_ms=CALL_MS)
            else:
                await transaction.rollback(timeout_ms=CALL_MS)
        except (EndOutcomeUnknown, EndRefused):
            return
        if before is not None and state is not before:
            self.broken(
                "E2", f"{transaction.result.message_ids}: {before.name} was answered, and then {state.name}"
            )
        deal.answered = state
        self.let_master_die("an end")

    def send_to_all(
        self, client: Client, transaction: Transaction, deal: Deal, state: TransactionState
    ) -> None:
        """Send the end to all brokers, master or not, and once more somewhat later."""
        deal.said.add(state)
        result = transaction.result
        place = int(result.offset_message_id[-16:], 16)
        header = EndTransactionHeader(GROUP, result.queue_offset, place, state, msg_id=result.message_ids[0])

        async def send() -> None:
            for delay_ms in (0, self.random.randint(10, 8_000)):
                await asyncio.sleep(delay_ms / 1000)
                for broker in self._brokers:
                    request = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
                    with suppress(RemotingError):
                        await client.remoting.one_way(f"{broker.host}:{BROKER_PORT}", request)

        self.node.spawn(send())

    # -- decisions

    def decide(self, message: StoredMessage) -> TransactionState:
        """Answer a broker's check."""
        deal = self.deals.get(message.properties.get("KEYS", ""))
        if deal is None or message.topic != DEALS or zlib.crc32(message.body) != deal.crc:
            self.broken(
                "E3", f"a broker checks a message that was never sent: {message.topic} {message.properties}"
            )
            return UNKNOWN
        self.asked.add(message.properties["KEYS"])
        if deal.refused:
            self.broken("E3", f"a broker checks {message.properties['KEYS']}, which was rejected")
        if not self.healed and self.random.random() < 0.3:
            return UNKNOWN
        state = self.decision(deal)
        deal.said.add(state)
        return state

    def decision(self, deal: Deal) -> TransactionState:
        if deal.decision is None:
            deal.decision = COMMIT if self.random.random() < 0.7 else ROLLBACK
        return deal.decision

    def let_master_die(self, behind: str) -> None:
        """Perhaps kill the master. Its successor must know the end that was confirmed at this moment."""
        master, now_ms = self._master(), self.node.loop.now_us // 1000
        if self.healed or master is None or now_ms < self.spared_until_ms:
            return
        if self.random.random() < MASTER_DIES:
            self.spared_until_ms = now_ms + SPARED_MS
            self._kill(master)
            self._done[f"master dies behind {behind}"] += 1

    def broken(self, rule: str, what: str) -> None:
        if self.violation is None:
            self.violation = Violation(rule, what)

    def client(self) -> Client:
        return Client(
            self._namesrv,
            clock=SimulatedClock(self.node),
            random=random.Random(self.random.getrandbits(32)),
            credentials=self._credentials,
        )

    # -- judgement

    def contradiction(self, message: StoredMessage) -> str | None:
        """Why no consumer should be able to read this message of the topic, or None."""
        key = message.properties.get("KEYS", "")
        deal = self.deals.get(key)
        if deal is None or zlib.crc32(message.body) != deal.crc:
            return f"{key} is in the topic, and was never sent"
        if message.sys_flag & FLAGS != COMMIT_FLAG or COMMIT not in deal.said:
            return f"{key} can be read, expected a commit, seen {deal}"
        return None

    def note_read(self, message: StoredMessage) -> None:
        """Note that a consumer has read this message."""
        if why := self.contradiction(message):
            self.broken("E3", why)

    def settle(self, world: World) -> None:
        """Wait until all transactions are ended. The cluster is whole, and producers answer checks. Raises Violation."""
        self.healed = True
        world.run_for_ms(SETTLED_MS)
        self.stopping = True
        world.run_until(lambda: self.living <= 0, 60_000)
        self.look()

    def judge(self, ever: Iterable[StoredMessage], *, checks_due: bool = True) -> None:
        """Judge all transactions. `ever` are all messages ever confirmed. `checks_due` means that clocks are close enough for
        a half to be checked before it is as old as the log is kept. Raises Violation."""
        given_up = set() if self.abandoned is None else self.abandoned.given_up
        asked = self.asked or (self.abandoned is not None and self.abandoned.asked)
        if checks_due and not asked and (unasked := given_up & self.deals.keys()):
            raise Violation("E4", f"{len(unasked)} were given up, and no transaction was ever checked")
        copies: dict[str, int] = {}
        for message in ever:
            if message.topic != DEALS:
                continue
            if why := self.contradiction(message):
                raise Violation("E3", why)
            key = message.properties.get("KEYS", "")
            copies[key] = copies.get(key, 0) + 1
        for key, deal in self.deals.items():
            count = copies.get(key, 0)
            if count > 1:
                raise Violation("E1", f"{key} was committed {count} times, expected once")
            if deal.answered is COMMIT and not count and key not in self.ends_at_risk:
                raise Violation("E2", f"{key} was answered COMMIT, and is not there")
            if deal.answered is ROLLBACK and count:
                raise Violation("E2", f"{key} was answered ROLLBACK, and is there")
            if not self.keeps or not deal.stored or key in given_up or key in self.halves_at_risk:
                continue
            if deal.said == {COMMIT} and not count:
                raise Violation("E4", f"{key} was sent a COMMIT, and is not there")
            if not deal.said:
                raise Violation("E4", f"{key} has no end, and was never checked")
