"""Compares the answers that the client of a run got with the messages that can be read at the end.

Invariant: every message whose send was answered OK, and every message that the client ever read, can be read at the end, unless
the contract allows an election to lose it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from localcluster.history import Found, SendAttempt, SendOutcome, judge
from localcluster.load import as_found
from mqclient.message import StoredMessage
from mqclient.route import MessageQueue
from simulation.checkers.delaycheck import judge_delayed, waiting
from simulation.checkers.shadow import deleted_messages
from simulation.cluster.looks import BrokerLook
from simulation.cluster.members import BROKER_SET, TOPIC, ClientApp, ReaderNotes
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.kernel.world import World

T = TypeVar("T")

READ_LIMIT_MS = 60_000


class ClientJudge:
    """The judge of the client that runs on `node`."""

    def __init__(self, world: World, node: Node) -> None:
        self.world = world
        self.node = node
        self.notes = ReaderNotes()

    @property
    def app(self) -> ClientApp:
        assert isinstance(self.node.app, ClientApp)
        return self.node.app

    def acknowledged(self) -> int:
        return sum(attempt.outcome is SendOutcome.ACKNOWLEDGED for attempt in self.app.load.attempts)

    def look(self) -> None:
        """Raises Violation."""
        if self.notes.contradictions:
            raise Violation("Q2", self.notes.contradictions[0])

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the app within the client's process."""
        return self.world.run_on(self.node, coroutine, limit_ms=READ_LIMIT_MS)

    def judge(
        self,
        broker: BrokerLook,
        log: bytearray,
        begins: int,
        spread_ms: int,
        promised: Callable[[str, list[SendAttempt]], list[SendAttempt]],
        *,
        readers_keep: bool,
    ) -> int:
        """Compare the client's answers with the messages that are there. It does not matter which broker is read, because all
        logs are equal to `log`, except that retention may have deleted their beginnings, at most up to `begins`. The brokers'
        wall clocks were `spread_ms` apart. `promised` returns the attempts on a topic as the contract judges them. With
        `readers_keep`, messages that were read once must be there. Returns how many delayed messages were delivered more than
        once. Raises Violation."""
        self.run(self.app.finds_master())
        found = self.run(self.app.read_everything())
        delayed = {topic: promised(topic, asked) for topic, asked in self.app.delayed.attempts.items()}
        late = self.run(self.app.delayed.delivered(delayed))
        deleted = list(deleted_messages(log, begins, broker.store.segment_size_bytes))
        places = {message.place for message in found}
        was_there = [found_in_queue(message) for message in deleted if message.topic == TOPIC]
        found += [message for message in was_there if message.place not in places]
        places = {found_in_queue(message).place for message in late}
        late += [
            message
            for message in deleted
            if message.topic in self.app.delayed.attempts and found_in_queue(message).place not in places
        ]
        if readers_keep:
            self.look()
        verdict = judge(promised(TOPIC, self.app.load.attempts), found)
        if not verdict.holds:
            raise Violation("C6", f"{len(verdict.faults)} broken promises, first: {verdict.faults[0]}")
        again = judge_delayed(delayed, late, waiting(broker, log), spread_ms)
        found += [found_in_queue(message) for message in late]
        unread = set(self.notes.seen) - {message.place for message in found}
        if unread and readers_keep:
            raise Violation("C6", f"{len(unread)} messages were read once and are gone: {sorted(unread)[0]}")
        return again


def found_in_queue(message: StoredMessage) -> Found:
    return as_found(MessageQueue(message.topic, BROKER_SET, message.queue_id), message)
