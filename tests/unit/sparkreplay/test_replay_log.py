"""The data sets of the benchmarks are real stores: every record, entry and number in them is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from messagestore.properties import tag_hash
from messagestore.queues.consumequeue import ENTRY
from messagestore.record import Message, decode
from messagestore.walker import order_segments, walk
from scripts.bench.replaylog import BORN_HOST, STORE_HOST, TOPICS, usual_spread, write_store
from sparkreplay.store.snapshot import open_store

SEGMENT_BYTES = 256 << 10


def messages_of(root: Path, end: int) -> list[Message]:
    files = [(path.name, path.stat().st_size) for path in (root / "commitlog").iterdir()]
    segments = order_segments("commitlog", files, SEGMENT_BYTES)
    steps = walk(segments, lambda segment: (root / "commitlog" / segment.name).read_bytes(), 0, end)
    return [decode(buffer[at : at + size]) for buffer, at, _, size in steps]


@pytest.mark.parametrize("body", [100, 1024])
def test_a_written_store_holds_whole_records_that_its_queues_point_at(tmp_path: Path, body: int) -> None:
    root = tmp_path / "store"
    written = write_store(root, 1 << 20, body, spread_bytes=usual_spread(body), segment_bytes=SEGMENT_BYTES)
    messages = messages_of(root, written.log_bytes)
    assert len(messages) == written.messages > 700
    assert (1 << 20) - 3000 < written.log_bytes <= 1 << 20
    counts: Counter[tuple[str, int]] = Counter()
    files: dict[tuple[str, int], bytes] = {}
    for number, message in enumerate(messages):
        queue = message.topic, message.queue_id
        tags = message.property_map["TAGS"]
        assert message.queue_offset == counts[queue]
        assert (message.born_host, message.store_host) == (BORN_HOST, STORE_HOST)
        assert message.store_timestamp == message.born_timestamp + 2 == 1_700_000_000_000 + number // 100
        assert message.property_map == {
            "UNIQ_KEY": f"0A0102030A5C18B4AAC2{number:012X}",
            "KEYS": f"k{number:010d}",
            "WAIT": "true",
            "TAGS": tags,
            "CLUSTER": "DefaultCluster",
        }
        if queue not in files:
            folder = root / "consumequeue" / message.topic / str(message.queue_id)
            files[queue] = (folder / f"{0:020d}").read_bytes()
            assert len(files[queue]) == 6_000_000
        assert ENTRY.unpack_from(files[queue], counts[queue] * ENTRY.size) == (
            message.physical_offset, message.total_size, tag_hash(tags),
        )  # fmt: skip
        counts[queue] += 1
    assert {topic for topic, _ in counts} == set(TOPICS) and len(counts) == 32
    assert abs(sum(len(message.body) for message in messages) / len(messages) - body) < body / 20
    snapshot = open_store(str(root))
    assert snapshot.bound == written.log_bytes and len(snapshot.segments) == 4
