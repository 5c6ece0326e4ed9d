"""Load and faults for some of the pairs: a producer of delayed messages. Slaves get the log late, and masters die after
deliveries.

Invariants: D1 to D3 (simulation.checkers.delaycheck) of the history that is left in the end. When a slave takes its master's
place, only the log that it held counts; when a master continues after a loss, only the log that its disk held. All messages
that ever waited in that history are delivered in it, whatever their producer was answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from broker.app import BrokerApp
from messagestore.delaylevels import delay_levels_ms
from messagestore.properties import REAL_TOPIC
from messagestore.store.settings import StoreSettings
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqadmin.admin import AdminClient
from mqclient.client import Client
from mqclient.message import StoredMessage, decode_messages
from simulation.checkers.delaycheck import WaitingDelivery, judge_delayed
from simulation.checkers.shadow import records_below
from simulation.kernel.node import SimulatedClock
from simulation.kernel.violation import Violation
from simulation.kernel.world import World
from simulation.pairs.faults import PairFaults
from simulation.pairs.members import BROKER_PORT, NAMESRV, SEND_TIMEOUT_MS, topic_made
from simulation.workloads.delays import LATER, LEVELS, DelayedWork

HOST = "10.0.3.5"
HA_PORT = BROKER_PORT + 1
INTERVAL_MS = (300, 1_200)
LATE_MS = (400, 700, 900)
"""The log comes late by less than a delay of the first level, because a table that is ahead of a whole queue is not trusted."""
LATE_CHANCE, DIES_CHANCE = 0.5, 0.4
DIES_AT_COPY_CHANCE = 0.7
"""The chance that a master dies as soon as a slave has copied the table that says that messages are delivered, while all
slaves are missing the last delivery."""
DIES_WITHIN_MS = 1_500
CHOICES_APART_MS = 1_000
SPARED_MS = 10_000
"""The next master is spared for this time after each death, because there are other faults."""
LIMIT_MS = 60_000


def delivered_by(broker: BrokerApp) -> int:
    """How many messages are delivered according to the broker's table."""
    return sum(broker.tables.delays.next_offset(level) for level in LEVELS)


class PairDelaying:
    """`leads()` is the master while it takes messages. With `goes_on` the master keeps leading after it lost memory."""

    def __init__(
        self, world: World, faults: PairFaults, leads: Callable[[], BrokerApp | None], *, goes_on: bool
    ) -> None:
        self.world = world
        self.node = world.node("delayer", HOST)
        self._faults = faults
        self._leads = leads
        self._random = random.Random(f"{world.seed}/pairdelays")
        self._client = Client(
            NAMESRV, clock=SimulatedClock(self.node), random=random.Random(self._random.getrandbits(32))
        )
        self.work = DelayedWork(self._client, self._random, SEND_TIMEOUT_MS, INTERVAL_MS)
        self._goes_on = goes_on
        self._begun = self._healed = False
        self._delivered = 0  # according to the master's table
        self._copied = 0  # according to the newest table of a slave
        self._spared_until_ms = self._next_choice_ms = 0
        self._dies_at_ms: int | None = None

    def look(self) -> None:
        """Called often."""
        if not self._begun:
            self._begun = True
            self.node.spawn(self._begin())
        master, now_ms = self._leads(), self.world.now_ms
        if self._healed or master is None:
            return
        delivered, copied = delivered_by(master), max(map(delivered_by, self._slaves()), default=0)
        moved, self._delivered = delivered > self._delivered, delivered
        is_copied, self._copied = copied > self._copied, copied
        if self._dies_at_ms is not None:
            if now_ms >= self._dies_at_ms:
                self._master_dies(now_ms)
        elif is_copied and self._may_die(now_ms) and self._only_at(master) and self._faults.may_lose_master():
            if self._random.random() < DIES_AT_COPY_CHANCE:
                self._master_dies(now_ms, spares_memory=0)
        elif moved and now_ms >= self._next_choice_ms:
            self._next_choice_ms = now_ms + CHOICES_APART_MS
            if not self._goes_on and self._random.random() < LATE_CHANCE:
                late_ms = self._random.choice(LATE_MS)
                self.world.network.hold_up(self._faults.master.host, HA_PORT, late_ms)
                self._faults.done["log comes late"] += 1
            elif self._may_die(now_ms) and self._random.random() < DIES_CHANCE:
                self._dies_at_ms = now_ms + self._random.randint(0, DIES_WITHIN_MS)

    def _may_die(self, now_ms: int) -> bool:
        return now_ms >= self._spared_until_ms

    def _master_dies(self, now_ms: int, spares_memory: float = 0.1) -> None:
        self._dies_at_ms = None
        if self._goes_on:
            if self._faults.master_goes_on():
                self._spared_until_ms = now_ms + SPARED_MS
                self._faults.done["master loses a delivery"] += 1
            return
        self._spared_until_ms = now_ms + SPARED_MS
        self._faults.end_master(self._faults.master, spares_memory=spares_memory)
        self._faults.done["master dies behind a delivery"] += 1

    def _only_at(self, master: BrokerApp) -> bool:
        """Whether no slave has the last delivery."""
        end = master.store.max_queue_offset(LATER, 0)
        return all(slave.store.max_queue_offset(LATER, 0) < end for slave in self._slaves())

    def _slaves(self) -> Iterator[BrokerApp]:
        for node in self._faults.slaves:
            if isinstance(node.app, BrokerApp):
                yield node.app

    async def _begin(self) -> None:
        await self._make_topic()
        self.work.start()

    async def _make_topic(self) -> None:
        admin = AdminClient(SimulatedClock(self.node))
        await topic_made(admin, LATER, 1, lambda: f"{self._faults.master.host}:{BROKER_PORT}")
        await admin.close()

    async def _stop(self) -> None:
        """Stop the producer. A slave that took its master's place may not have copied the topic."""
        await self.work.stop()
        await self._make_topic()

    def heal(self) -> None:
        self._healed = True
        for node in self._faults.nodes:
            self.world.network.hold_up(node.host, HA_PORT, 0)

    def settle(self) -> None:
        """Wait until all waiting messages of a whole pair are delivered."""
        self.world.run_on(self.node, self._stop(), limit_ms=LIMIT_MS)

        def all_delivered() -> bool:
            master = self._leads()
            return master is not None and all(
                master.tables.delays.next_offset(level)
                >= master.store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
                for level in LEVELS
            )

        self.world.run_until(all_delivered, LIMIT_MS)

    def judge(self, log: bytearray, begins: int, segment_bytes: int, found: list[StoredMessage]) -> int:
        """Judge the deliveries. `log` is the history that is left, and `found` are the messages that consumers find above its
        first `begins` bytes. Returns how many messages were delivered more than once. Raises Violation."""

        def ever() -> Iterator[StoredMessage]:
            for content in records_below(log, len(log), segment_bytes):
                yield from decode_messages(content)

        delays_ms = delay_levels_ms(StoreSettings().message_delay_level)
        waiting = [
            WaitingDelivery(
                message.properties[REAL_TOPIC],
                message.properties["KEYS"],
                message.store_timestamp_ms + delays_ms[message.queue_id],
            )
            for message in ever()
            if message.topic == SCHEDULE_TOPIC
        ]
        delivered = [message for message in ever() if message.topic == LATER]
        there = {message.physical_offset for message in found}
        for message in delivered:
            at = message.physical_offset
            if at >= begins and at not in there:
                raise Violation(
                    "D1", f"the message that was delivered at {at} cannot be read: {message.properties}"
                )
        copies = {(message.topic, message.properties["KEYS"]) for message in delivered}
        for each in waiting:
            if (each.topic, each.key) not in copies:
                raise Violation("D1", f"{each} waits in the log and was never delivered")
        asked = self.work.attempts
        if self._goes_on:  # messages only in its memory are gone
            left = {(each.topic, each.key) for each in waiting}
            asked = {
                topic: [attempt for attempt in attempts if (topic, attempt.message_id) in left]
                for topic, attempts in asked.items()
            }
        skews_ms = [node.skew_ms for node in self._faults.nodes]
        return judge_delayed(asked, delivered, waiting, max(skews_ms) - min(skews_ms))
