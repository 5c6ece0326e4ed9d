"""Random stores for properties: any mix of what a broker may hold, cut into small segments."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard
from hypothesis import strategies as st

from tests.unit.sparkreplay.storefolder import StoreFolder, record

TOPICS = ("orders", "payments", "x" * 127, "%RETRY%" + "g" * 140, "täglich", "SCHEDULE_TOPIC_XXXX")
PIECES = (
    "TAGS",
    "KEYS",
    "UNIQ_KEY",
    "\x01",
    "\x02",
    "a",
    "value",
    "é",
    "UNIQ_KEYS",
    "LONGNAME_A",
    "LONGNAME_B",
)
BODIES = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 3000).map(bytes),
    st.just(record(0, body=b"forged")),
    st.just(b"\xda\xa3\x20\xa7" * 50),
)


def compressed(body: bytes, kind: int) -> bytes:
    if kind == 0x101:
        return bytes(lz4.frame.compress(body))
    if kind == 0x201:
        return zstandard.ZstdCompressor().compress(body)
    return zlib.compress(body)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    body = draw(BODIES)
    kind = draw(st.sampled_from((0, 0, 0, 0, 1, 0x101, 0x201, 0x301)))
    if draw(st.booleans()):
        properties = draw(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
    else:
        properties = "UNIQ_KEY\x01own\x02TAGS\x01T\x02WAIT\x01true\x02"
    return {
        "topic": draw(st.sampled_from(TOPICS)),
        "queue_id": draw(st.integers(0, 2)),
        "body": compressed(body, kind) if kind else body,
        "properties": properties,
        "sys_flag": kind | draw(st.sampled_from((0, 0, 0x10, 0x20, 0x30, 4, 8, 12, 0xC0))),
    }


SEGMENT_BYTES = st.sampled_from((8192, 8200, 16384, 1 << 20))
MIXES = st.lists(st.tuples(messages(), st.integers(1, 40)), min_size=1, max_size=12)
"""Each message as often as its number says."""


def grown(store: StoreFolder, mix: list[tuple[dict[str, Any], int]]) -> StoreFolder:
    for message, times in mix:
        for _ in range(times):
            add(store, message)
    return store


def add(store: StoreFolder, message: dict[str, Any]) -> None:
    """As a broker: prepared and rolled back records take no queue offset."""
    queue = message["topic"], message["queue_id"]
    before = store.next_queue_offset.get(queue, 0)
    uncounted = message["sys_flag"] & 0xC in (4, 12)
    if uncounted:
        store.next_queue_offset[queue] = 0
    store.add(**message)
    if uncounted:
        store.next_queue_offset[queue] = before
        store.uncounted.add(len(store.records) - 1)


@contextmanager
def folder(segment_bytes: int) -> Iterator[StoreFolder]:
    with tempfile.TemporaryDirectory() as root:
        yield StoreFolder(Path(root), segment_bytes)
