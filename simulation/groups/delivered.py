"""Whether the delayed messages of a Raft-mode set are delivered.

Invariant: this module reads stores and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from broker.app import BrokerApp
from messagestore.delaylevels import delay_levels_ms
from messagestore.properties import REAL_TOPIC
from messagestore.store.settings import StoreSettings
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqclient.message import StoredMessage, decode_messages
from simulation.checkers.delaycheck import WaitingDelivery, judge_delayed
from simulation.groups.clients import ClientApp
from simulation.groups.committed import CommittedLog
from simulation.workloads.delays import LEVELS


def all_delivered(app: BrokerApp) -> bool:
    """Whether all waiting messages are delivered."""
    return all(
        app.tables.delays.next_offset(level) >= app.store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
        for level in LEVELS
    )


def messages_in(committed: CommittedLog) -> Iterator[StoredMessage]:
    """All messages that were ever committed, in the order of the log."""
    for _, content in committed.records.values():
        yield from decode_messages(content)


def judge_delayed_ones(
    ask: Callable[[Any], Any], client: ClientApp, committed: CommittedLog, spread_ms: int
) -> int:
    """Judge the delayed messages. Returns how many were delivered more than once. Raises Violation D1 to D3."""
    delays_ms = delay_levels_ms(StoreSettings().message_delay_level)
    waiting, found = [], []
    for message in messages_in(committed):
        if message.topic == SCHEDULE_TOPIC:
            properties = message.properties
            if properties[REAL_TOPIC] not in client.delayed.attempts:
                continue  # a message of simulation.groups.copied
            due_ms = message.store_timestamp_ms + delays_ms[message.queue_id]
            waiting.append(WaitingDelivery(properties[REAL_TOPIC], properties["KEYS"], due_ms))
        elif message.topic in client.delayed.attempts:
            found.append(message)
    ask(client.delayed.delivered(client.delayed.attempts))
    return judge_delayed(client.delayed.attempts, found, waiting, spread_ms)
