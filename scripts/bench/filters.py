"""The cost of judging a message by an SQL92 expression: CPU for each message, compared with a bare probe and Java's evaluator.

    python -m scripts.bench.filters [--runs 5] [--messages 16000]

*scan* is all work of a pull for a message that does not match, from the queue's entry to the verdict (`get_matching` of 800
messages each). *judged* is only the expression's function, which gets stored properties. Each expression has five conditions,
of which the last decides: on numbers, on strings, and five in one OR. CPU is that of the one thread. The probe searches five
names in the same bytes and takes their values. Java is one evaluation by upstream's own classes, with properties decoded from
the same bytes: the least of six rounds in a warm JVM, or nothing without a JDK. The exit code is 1 if the median of a *scan*
with five conditions is above the limit of 5 us a message."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from filters.sql92 import compiled
from messagestore.messages import GetStatus, MessageToStore, PropertyFilter
from messagestore.queues.reading import scan_max
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime
from scripts.bench.measured import machine, spread
from scripts.bench.options import bounded, options
from scripts.filtercases import Java, word
from scripts.peers.javapeer import broker_missing

TOPIC, BODY = "orders", bytes(300)
PROPERTIES = (
    b"KEYS\x01order-0001\x02UNIQ_KEY\x010A0102030A5C18B4AAC2%012X\x02WAIT\x01true\x02TAGS\x01TagA\x02price\x01120\x02"
    b"amount\x017\x02country\x01nl\x02kind\x01express\x02weight\x0112\x02note\x01none\x02"
)
EXPRESSIONS = {
    "numbers": "price > 100 AND amount BETWEEN 1 AND 9 AND weight < 50 AND price <> 99 AND amount > 7",
    "strings": "country = 'nl' AND kind IN ('express', 'air') AND note IS NOT NULL AND KEYS STARTSWITH 'order' "
    "AND TAGS = 'TagB'",
    "or": "price > 500 OR amount = 9 OR country = 'de' OR kind = 'sea' OR note CONTAINS 'x'",
}
NAMES = [b"\x02%s\x01" % name for name in (b"price", b"amount", b"weight", b"kind", b"note")]
JAVA_ROUND = 300_000
US_TARGET = 5.0
"""Limit of a broker's median CPU from the queue's entry to the verdict."""
RUNS_MIN = 3


def failed(error: BaseException) -> None:
    raise SystemExit(f"the store failed: {error}")


async def filled(root: Path, messages: int) -> MessageStore:
    store = MessageStore(real_runtime(root), StoreSettings(), on_fatal=failed)
    await store.start()
    await store.become_master()
    for first in range(0, messages, 100):
        numbers = range(first, first + 100)
        store.append([MessageToStore(TOPIC, 0, BODY, PROPERTIES % number) for number in numbers])
    store.set_confirm_offset(store.max_offset())
    while store.dispatch():
        pass
    return store


def scan(store: MessageStore, wanted: PropertyFilter, messages: int) -> None:
    offset = 0
    while offset < messages:
        result = store.get_matching(TOPIC, 0, offset, 32, 1 << 18, wanted)
        if result.status is not GetStatus.NO_MATCHED_MESSAGE or result.cold:
            raise SystemExit(f"{result.status} at {offset}: nothing was to be found")
        assert result.next_begin_offset - offset <= scan_max(32)
        offset = result.next_begin_offset


def probe(stored: list[bytes]) -> None:
    for properties in stored:
        for name in NAMES:
            at = properties.find(name) + len(name)
            properties[at : properties.find(b"\x02", at)]


def judge(stored: list[bytes], wanted: PropertyFilter) -> None:
    for properties in stored:
        wanted(properties)


def us_a_message(work: Callable[..., None], *arguments: object, messages: int) -> float:
    before = time.thread_time()
    work(*arguments)
    return (time.thread_time() - before) / messages * 1e6


async def run(root: Path, runs: int, messages: int) -> bool:
    """Measure, and return whether every expression reached the target."""
    reached = True
    store = await filled(root, messages)
    stored = [PROPERTIES % number for number in range(messages)]
    java = None if (why := broker_missing()) else Java()
    if why:
        print(f"without Java: {why}")
    for name, expression in EXPRESSIONS.items():
        wanted = compiled(expression)
        figures: dict[str, list[float]] = {"scan": [], "judged": [], "probe": []}
        for _ in range(runs):
            figures["scan"].append(us_a_message(scan, store, wanted, messages, messages=messages))
            figures["judged"].append(us_a_message(judge, stored, wanted, messages=messages))
            figures["probe"].append(us_a_message(probe, stored, messages=messages))
            if java is not None:
                answer = java.ask("speed", word(expression.encode()), word(stored[0]), JAVA_ROUND)
                assert answer["matched"] == 0, "as here"
                figures.setdefault("Java", []).append(answer["ns"] / 1000)
        for what, values in figures.items():
            print(f"{name:8} {what:7} {spread(values, 'us/message', 2)}", flush=True)
        middle = statistics.median(figures["scan"])
        result = "reached" if middle <= US_TARGET else "MISSED"
        print(
            f"{name:8} target {US_TARGET:g} us/message of a scan, {middle:.2f} at the median: {result}",
            flush=True,
        )
        reached &= middle <= US_TARGET
    if java is not None:
        java.__exit__()
    await store.stop()
    return reached


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(RUNS_MIN, 100), default=5)
    parser.add_argument("--messages", type=bounded(800, 10_000_000), default=16_000)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as root:
        reached = asyncio.run(run(Path(root), given.runs, given.messages - given.messages % 800))
    print(machine())
    return int(not reached)


if __name__ == "__main__":
    raise SystemExit(main())
