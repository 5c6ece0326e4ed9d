"""Checks that delayed messages were delivered as the answers to their senders promised.

Invariant: this module reads stores and changes nothing. A delayed message is promised to be delivered at least once, so the
topics of delayed messages are judged separately from those of plain sends. Rules: D1 every acknowledged delayed message is
delivered, D2 not before its time, D3 nothing else is delivered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from localcluster.history import SendAttempt, SendOutcome
from localcluster.load import body_hash
from messagestore.delaylevels import delay_levels_ms
from messagestore.properties import REAL_TOPIC
from messagestore.record import decode
from messagestore.store.settings import StoreSettings
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqclient.message import StoredMessage
from simulation.checkers.shadow import records_below
from simulation.cluster.looks import BrokerLook
from simulation.kernel.violation import Violation
from simulation.workloads.delays import LEVELS


class WaitingDelivery(NamedTuple):
    """A message that waits in the schedule topic, with the topic and the time of its later delivery."""

    topic: str
    key: str
    due_ms: int


def waiting(broker: BrokerLook, log: bytearray) -> Iterator[WaitingDelivery]:
    """All messages that ever waited. `log` is the commit log from its beginning."""
    store, delays_ms = broker.store, delay_levels_ms(StoreSettings().message_delay_level)
    for content in records_below(log, store.min_offset(), store.segment_size_bytes):
        message = decode(content, verify_body=False)
        if message.topic == SCHEDULE_TOPIC:
            properties, due_ms = message.property_map, message.store_timestamp + delays_ms[message.queue_id]
            yield WaitingDelivery(properties[REAL_TOPIC], properties["KEYS"], due_ms)
    for level in LEVELS:
        first = store.min_queue_offset(SCHEDULE_TOPIC, level - 1)
        for entry in store.entries(SCHEDULE_TOPIC, level - 1, first, len(log)):
            end = entry.physical_offset + entry.size
            properties = decode(memoryview(log)[entry.physical_offset : end], verify_body=False).property_map
            yield WaitingDelivery(properties[REAL_TOPIC], properties["KEYS"], entry.tags_code)


def all_delivered(master: BrokerLook) -> bool:
    """Whether all waiting messages are delivered, and the delay tables of all replicas show it. A message that retention
    deleted counts as delivered, even if an older table does not show it, because retention may delete no waiting message (the
    bug deletes-undelivered would)."""
    store = master.store
    return all(
        max(master.delays.next_offset(level), store.min_queue_offset(SCHEDULE_TOPIC, level - 1))
        >= store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
        for level in LEVELS
    )


def judge_delayed(
    attempts: dict[str, list[SendAttempt]],
    found: Iterable[StoredMessage],
    scheduled: Iterable[WaitingDelivery],
    spread_ms: int,
) -> int:
    """Raises Violation. `spread_ms` is how far the brokers' wall clocks were ever apart, because a master takes the due time
    from the broker that stored the message. Returns how many messages were delivered more than once."""
    due_ms: dict[tuple[str, str], int] = {}
    for message in scheduled:  # a message that was sent again waits twice
        key = message.topic, message.key
        due_ms[key] = min(message.due_ms, due_ms.get(key, message.due_ms))
    copies: dict[tuple[str, str], list[StoredMessage]] = {}
    for copy in found:
        key = copy.topic, copy.properties["KEYS"]
        copies.setdefault(key, []).append(copy)
        if key not in due_ms:
            raise Violation("D3", f"{key} was delivered, and was never in the schedule topic")
        if copy.store_timestamp_ms + spread_ms < due_ms[key]:
            early_ms = due_ms[key] - copy.store_timestamp_ms
            raise Violation(
                "D2",
                f"{key} was delivered {early_ms} ms early, expected at most {spread_ms} (skew of clocks)",
            )
    again = sum(len(messages) - 1 for messages in copies.values())
    for topic, asked in attempts.items():
        for attempt in asked:
            key = (topic, attempt.message_id)
            there = copies.pop(key, [])
            if attempt.outcome is SendOutcome.ACKNOWLEDGED and not there:
                where = "is" if key in due_ms else "is not"
                raise Violation(
                    "D1", f"{key} was acknowledged, never delivered, and {where} in the schedule topic"
                )
            if attempt.outcome is SendOutcome.REFUSED and (there or key in due_ms):
                raise Violation("D3", f"{key} was rejected ({attempt.why}), and is there")
            if any(body_hash(message.plain_body()) != attempt.body_hash for message in there):
                raise Violation("D3", f"{key} was delivered with another body")
    if copies:
        raise Violation("D3", f"{min(copies)} was delivered, and never sent")
    return again
