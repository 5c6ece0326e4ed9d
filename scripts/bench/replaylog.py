"""Write a broker's store of any size fast: commit log, consume queues, epoch file, checkpoint, identity.

    python -m scripts.bench.replaylog DIR --bytes 1g --body 1024
    python -m scripts.bench.replaylog DIR --bytes 20g --body 100 --segment 1g

The store has 8 topics of 4 queues, interleaved at random. Bodies are random letters, with sizes normally distributed around
--body (1024 ± 128, 100 ± 30). Properties are those that a producer and a broker set. The whole log is committed. The same
arguments give the same bytes.

Invariant: a block of records is encoded once, by messagestore.record. When the block is repeated, only its numbers change
(offsets, times, UNIQ_KEY, KEYS). So memory does not grow with the store, and every body CRC stays right."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epochfile.format import encode as encode_epochs
from epochfile.history import EpochHistory
from messagestore.checkpoint import Checkpoint
from messagestore.properties import tag_hash
from messagestore.queues.consumequeue import ENTRY
from messagestore.record import Message, encode, encode_blank, pack_host
from messagestore.walker import segment_name
from scripts.bench.options import options

TOPICS = ("orders", "payments", "shipments", "invoices", "clicks", "sessions", "inventory", "telemetry")
QUEUES_PER_TOPIC = 4
QUEUES = len(TOPICS) * QUEUES_PER_TOPIC
TAGS = ("TagA", "TagB", "created", "paid", "cancelled")
QUEUE_FILE_ENTRIES = 300_000
BLOCK_BYTES = 32 << 20
BLANK_BYTES = 8
FIRST_TIMESTAMP = 1_700_000_000_000
MESSAGES_PER_MS = 100
BORN_HOST, STORE_HOST = pack_host("10.1.2.3", 50_123), pack_host("10.0.0.1", 10_911)
UNIQUE_PREFIX = "0A0102030A5C18B4AAC2"
UNIQUE_DIGITS = 12
KEY_DIGITS = 10
UNIQUE_AT = len("UNIQ_KEY\x01" + UNIQUE_PREFIX)  # places of two numbers in the properties
KEY_AT = UNIQUE_AT + UNIQUE_DIGITS + len("\x02KEYS\x01k")
QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, BORN_AT, STORED_AT = 20, 28, 40, 56
QUEUE_ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert QUEUE_ENTRY.itemsize == ENTRY.size


@dataclass(frozen=True)
class Block:
    """Records end to end. `starts` has one more value, the end of the last record. `ranks` counts records in their queue."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    properties_at: NDArray[np.int64]
    queues: NDArray[np.int64]
    ranks: NDArray[np.int64]
    tags_codes: NDArray[np.int64]


@dataclass(frozen=True)
class Written:
    messages: int
    log_bytes: int


def make_block(body_bytes: int, spread_bytes: int, block_bytes: int = BLOCK_BYTES) -> Block:
    """Make a block of about `block_bytes`. Every number in which repetitions differ is still zero."""
    random = np.random.default_rng(body_bytes)
    pool = random.integers(ord("a"), ord("z") + 1, 1 << 20, np.uint8).tobytes()
    records: list[bytes] = []
    properties_at, queues, tags_codes = [], [], []
    at = 0
    while at < block_bytes:
        queue, tag = int(random.integers(QUEUES)), TAGS[random.integers(len(TAGS))]
        size = max(0, int(random.normal(body_bytes, spread_bytes)))
        first = int(random.integers(len(pool) - min(size, len(pool) - 1)))
        properties = (
            f"UNIQ_KEY\x01{UNIQUE_PREFIX}{'0' * UNIQUE_DIGITS}\x02KEYS\x01k{'0' * KEY_DIGITS}\x02"
            f"WAIT\x01true\x02TAGS\x01{tag}\x02CLUSTER\x01DefaultCluster\x02"
        ).encode()
        record = encode(
            Message(
                topic=TOPICS[queue // QUEUES_PER_TOPIC], queue_id=queue % QUEUES_PER_TOPIC, queue_offset=0,
                physical_offset=0, total_size=0, flag=0, sys_flag=0, body_crc=0, born_timestamp=0, born_host=BORN_HOST,
                store_timestamp=0, store_host=STORE_HOST, reconsume_times=0, prepared_transaction_offset=0,
                body=pool[first : first + size], properties=properties,
            )
        )  # fmt: skip
        records.append(record)
        at += len(record)
        properties_at.append(at - len(properties))
        queues.append(queue)
        tags_codes.append(tag_hash(tag))
    starts = np.concatenate(([0], np.cumsum([len(record) for record in records]))).astype(np.int64)
    of_queue = np.array(queues, np.int64)
    ranks = np.empty(len(records), np.int64)
    for queue in range(QUEUES):
        places = np.flatnonzero(of_queue == queue)
        ranks[places] = np.arange(len(places))
    return Block(
        np.frombuffer(b"".join(records), np.uint8), starts, np.array(properties_at, np.int64), of_queue, ranks,
        np.array(tags_codes, np.int64),
    )  # fmt: skip


class StoreWriter:
    """Appends blocks to a new store."""

    def __init__(self, root: Path, segment_bytes: int) -> None:
        self.root = root
        self.segment_bytes = segment_bytes
        self.end = 0
        self.messages = 0
        self.queue_ends = np.zeros(QUEUES, np.int64)
        (root / "commitlog").mkdir(parents=True)

    def append(self, block: Block, limit: int) -> bool:
        """Append the whole block, over as many segments as needed. Returns False if `limit` is before its end."""
        first, count = 0, len(block.queues)
        base = self.queue_ends.copy()
        while first < count:
            left = self.segment_bytes - self.end % self.segment_bytes
            fits = int(block.starts[first]) + min(left - BLANK_BYTES, limit - self.end)
            last = int(np.searchsorted(block.starts, fits, "right")) - 1
            if last > first:
                self.append_records(block, first, last, base)
                first = last
            elif left - BLANK_BYTES >= limit - self.end:
                return False
            else:
                self.write(np.frombuffer(encode_blank(left), np.uint8))
                self.end += left - BLANK_BYTES
        return True

    def append_records(self, block: Block, first: int, last: int, base: NDArray[np.int64]) -> None:
        """Append the records [first, last) of the block. `base` holds each queue's end before the block."""
        begin = int(block.starts[first])
        data = block.data[begin : block.starts[last]].copy()
        places = block.starts[first:last] - begin
        properties_at = block.properties_at[first:last] - begin
        queues = block.queues[first:last]
        offsets = base[queues] + block.ranks[first:last]
        numbers = np.arange(self.messages, self.messages + len(places))
        stored_at = FIRST_TIMESTAMP + numbers // MESSAGES_PER_MS
        put_number(data, places + QUEUE_OFFSET_AT, offsets)
        put_number(data, places + PHYSICAL_OFFSET_AT, places + self.end)
        put_number(data, places + BORN_AT, stored_at - 2)
        put_number(data, places + STORED_AT, stored_at)
        put_digits(data, properties_at + UNIQUE_AT, numbers, UNIQUE_DIGITS, 16)
        put_digits(data, properties_at + KEY_AT, numbers, KEY_DIGITS, 10)
        entries = np.empty(len(places), QUEUE_ENTRY)
        entries["physical_offset"] = places + self.end
        entries["size"] = np.diff(block.starts[first : last + 1])
        entries["tags_code"] = block.tags_codes[first:last]
        self.write(data)
        self.messages += len(places)
        for queue in range(QUEUES):
            self.append_entries(queue, entries[queues == queue])

    def write(self, data: NDArray[np.uint8]) -> None:
        """Write bytes at the end of the log. They must fit into the last segment."""
        path = self.root / "commitlog" / segment_name(self.end // self.segment_bytes * self.segment_bytes)
        put_bytes(path, self.end % self.segment_bytes, data, self.segment_bytes)
        self.end += len(data)

    def append_entries(self, queue: int, entries: NDArray[np.void]) -> None:
        topic, queue_id = TOPICS[queue // QUEUES_PER_TOPIC], queue % QUEUES_PER_TOPIC
        folder = self.root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        while len(entries):
            number, place = divmod(int(self.queue_ends[queue]), QUEUE_FILE_ENTRIES)
            part, entries = (
                entries[: QUEUE_FILE_ENTRIES - place],
                entries[QUEUE_FILE_ENTRIES - place :],
            )
            file_bytes = QUEUE_FILE_ENTRIES * ENTRY.size
            path = folder / segment_name(number * file_bytes)
            put_bytes(path, place * ENTRY.size, part.view(np.uint8), file_bytes)
            self.queue_ends[queue] += len(part)

    def finish(self) -> None:
        """Write the other files of a store: epochs, the confirm offset, the identity."""
        stored_at = FIRST_TIMESTAMP + self.messages // MESSAGES_PER_MS
        checkpoint = Checkpoint(
            physic_msg_timestamp=stored_at, logics_msg_timestamp=stored_at, confirm_phy_offset=self.end
        )
        (self.root / "checkpoint").write_bytes(checkpoint.encode())
        (self.root / "epochFileCheckpoint").write_bytes(encode_epochs(EpochHistory([(1, 0)])))
        (self.root / "brokerIdentity").write_text("DefaultCluster#broker-a#1")


def put_bytes(path: Path, at: int, data: NDArray[np.uint8], file_bytes: int) -> None:
    """Write bytes into a file that has its full size, like a broker's files."""
    if not path.exists():
        with open(path, "wb") as file:
            file.truncate(file_bytes)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data.data)


def put_number(data: NDArray[np.uint8], places: NDArray[np.int64], values: NDArray[np.int64]) -> None:
    """Put each value as eight big-endian bytes at its place."""
    data[places[:, None] + np.arange(8)] = values.astype(">i8").view(np.uint8).reshape(-1, 8)


def put_digits(
    data: NDArray[np.uint8], places: NDArray[np.int64], values: NDArray[np.int64], digits: int, base: int
) -> None:
    symbols = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    for digit in range(digits):
        data[places + digits - 1 - digit] = symbols[values % base]
        values = values // base


def write_store(
    root: Path, size_bytes: int, body_bytes: int, *, spread_bytes: int, segment_bytes: int = 1 << 30
) -> Written:
    """Write a store whose log ends at most one record below `size_bytes`. `root` must be new or empty."""
    if root.exists() and any(root.iterdir()):
        raise SystemExit(f"{root} is not empty; name a new folder")
    if segment_bytes < 2 * (body_bytes + 8 * spread_bytes) + 1024:
        raise SystemExit(f"segments of {segment_bytes} bytes cannot hold such bodies")
    writer = StoreWriter(root, segment_bytes)
    block = make_block(body_bytes, spread_bytes, min(BLOCK_BYTES, size_bytes))
    while writer.append(block, size_bytes):
        pass
    writer.finish()
    return Written(writer.messages, writer.end)


def usual_spread(body_bytes: int) -> int:
    return body_bytes // 8 if body_bytes >= 512 else body_bytes * 3 // 10


def size(text: str) -> int:
    """A number of bytes, such as `1500000000`, `64k`, `512m` or `20g`."""
    shift = {"k": 10, "m": 20, "g": 30}.get(text[-1:].lower())
    return int(text) if shift is None else int(text[:-1]) << shift


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bytes", type=size, default=1 << 30, help="of commit log, for example 20g")
    parser.add_argument("--body", type=int, default=1024, help="mean body size")
    parser.add_argument("--spread", type=int, default=None, help="standard deviation of body sizes")
    parser.add_argument("--segment", type=size, default=1 << 30, help="bytes of a commit log file")
    given = parser.parse_args()
    spread = usual_spread(given.body) if given.spread is None else given.spread
    before = time.perf_counter()
    written = write_store(
        given.directory, given.bytes, given.body, spread_bytes=spread, segment_bytes=given.segment
    )
    took = time.perf_counter() - before
    print(
        f"{written.messages:,} messages, {written.log_bytes:,} bytes of log, "
        f"{written.log_bytes / written.messages:.0f} a record, in {took:.1f} s"
    )


if __name__ == "__main__":
    main()
