"""Helpers of the store's tests: a small store on a real directory, messages, and golden stores of Java
brokers."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from messagestore.batch import MEMBER_HEADER, MEMBER_SIZE_MIN, PROPERTIES_LENGTH
from messagestore.index.file import file_size_for
from messagestore.messages import MessageToStore
from messagestore.record import Message, pack_host
from messagestore.recordcrc import CRC_MASK
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.realruntime import real_runtime

GOLDEN = Path(__file__).parents[2] / "vectors" / "store"
INDEX_GEOMETRY = {  # slots, entries
    "clean-shutdown": (2000, 8000), "after-kill-9": (2000, 8000), "non-controller-record-crc": (100, 400)
}  # fmt: skip
SEGMENT_SIZES = {"clean-shutdown": 262144, "after-kill-9": 262144, "non-controller-record-crc": 65536}
RECORD_CRC_BYTES = 20
NOW_MS = 1_700_000_000_000
SEGMENT = 4096


def small_settings(**values: Any) -> StoreSettings:
    chosen = {"mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": 400, **values}
    return StoreSettings(**chosen)


def nothing_cached(address: int, start: int, end: int) -> bool:
    """Replaces segments.in_page_cache: everything but the newest segments is read from the disk."""
    return False


def not_expected(error: BaseException) -> None:
    raise AssertionError("the store failed") from error


def open_store(
    root: Path, settings: StoreSettings | None = None, on_fatal: Any = not_expected
) -> MessageStore:
    return MessageStore(real_runtime(root), settings or small_settings(), on_fatal=on_fatal)


def message(
    body: bytes = b"hello", topic: str = "TopicTest", queue_id: int = 0, **values: Any
) -> MessageToStore:
    return MessageToStore(topic=topic, queue_id=queue_id, body=body, born_timestamp=NOW_MS, **values)


def format_host(host: bytes) -> str:
    """`10.0.0.1:10911`, `[::1]:10911`."""
    ip, port = ip_address(host[:-4]), int.from_bytes(host[-4:], "big", signed=True)
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def encode_batch(members: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch of (flag, body, properties)."""
    parts: list[bytes] = []
    for flag, body, properties in members:
        size = MEMBER_SIZE_MIN + len(body) + len(properties)
        parts += (
            MEMBER_HEADER.pack(size, 0, 0, flag, len(body)), body, PROPERTIES_LENGTH.pack(len(properties)), properties,
        )  # fmt: skip
    return b"".join(parts)


def record_crc(record: bytes) -> int:
    """The checksum over a whole record without the property that holds it."""
    return zlib.crc32(record[:-RECORD_CRC_BYTES]) & CRC_MASK


def record_crc_property(checksum: int) -> bytes:
    """The record CRC as the last property: ten digits, least significant first."""
    return f"__CRC32#\x01{f'{checksum:010d}'[::-1]}\x02".encode()


def golden_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name / "messages.jsonl").read_text().splitlines()]


def golden_segments(name: str) -> dict[str, bytes]:
    """Segment name -> its bytes, at full size."""
    segments = {}
    for path in sorted((GOLDEN / name / "commitlog").iterdir()):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        segments[path.name.removesuffix(".gz")] = content.ljust(SEGMENT_SIZES[name], b"\0")
    return segments


def golden_queues(name: str) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for path, entries in json.loads((GOLDEN / name / "consumequeue.json").read_text()).items():
        _, topic, queue_id, _ = path.split("/")
        queues.setdefault((topic, int(queue_id)), []).extend(tuple(entry) for entry in entries)
    return queues


def golden_index(name: str, folder_name: str = "index") -> dict[str, bytes]:
    """Index file name -> its bytes, at full size. `index-5.5.1` is the index of 5.5.1 of the same log, with
    tags."""
    size = file_size_for(*INDEX_GEOMETRY[name])
    folder = GOLDEN / name / folder_name
    return {path.name: path.read_bytes().ljust(size, b"\0") for path in sorted(folder.iterdir())}


def lay_out(name: str, root: Path, *, queues: bool, index: str = "index") -> StoreSettings:
    """Copy a golden store into `root` and return settings that open it. For `index` see golden_index."""
    (root / "commitlog").mkdir(parents=True)
    for segment, content in golden_segments(name).items():
        (root / "commitlog" / segment).write_bytes(content)
    (root / "checkpoint").write_bytes((GOLDEN / name / "checkpoint").read_bytes().ljust(4096, b"\0"))
    if queues:
        for path in (GOLDEN / name / "consumequeue").rglob("0*"):
            if path.is_file():
                target = root / path.relative_to(GOLDEN / name)
                target.parent.mkdir(parents=True)
                target.write_bytes(path.read_bytes().ljust(6_000_000, b"\0"))
        for path, content in golden_index(name, index).items():
            (root / "index").mkdir(exist_ok=True)
            (root / "index" / path).write_bytes(content)
    slots, entries = INDEX_GEOMETRY[name]
    return StoreSettings(
        mapped_file_size_commit_log=SEGMENT_SIZES[name], max_hash_slot_num=slots, max_index_num=entries
    )


def queue_entries(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """Every entry of every queue of a running store."""
    found = {}
    for topic, queue_id in store.queues():
        queue = store._queues.find(topic, queue_id)
        assert queue is not None
        count = queue.max_queue_offset - queue.min_queue_offset
        if entries := list(queue.entries(queue.min_queue_offset, count)):
            found[topic, queue_id] = entries
    return found


def worked() -> Message:
    """The record that the format's description works out byte by byte."""
    return Message(
        topic="TopicTest", queue_id=1, queue_offset=3, physical_offset=4096, total_size=122, flag=0, sys_flag=0,
        body_crc=907060870, born_timestamp=1700000000000, born_host=pack_host("10.0.0.9", 5000),
        store_timestamp=1700000000001, store_host=pack_host("10.0.0.1", 10911), reconsume_times=0,
        prepared_transaction_offset=0, body=b"hello", properties=b"TAGS\x01TagA\x02KEYS\x01k1",
    )  # fmt: skip


def in_loop(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(scenario)
    def test(*args: object, **values: object) -> None:
        asyncio.run(scenario(*args, **values))  # type: ignore[arg-type]

    return test


async def master(root: Path, **settings: Any) -> MessageStore:
    store = open_store(root, small_settings(**settings))
    await store.start()
    await store.become_master()
    return store


def dispatch_all(store: MessageStore) -> None:
    store.set_confirm_offset(store.max_offset())
    while store.dispatch():
        pass


def names(root: Path, folder: str) -> list[int]:
    return sorted(int(path.name) for path in (root / folder).iterdir() if path.is_file())


async def saved(store: MessageStore) -> None:
    """Confirm and dispatch all, and save the checkpoint."""
    dispatch_all(store)
    await store.flush()
    await store._saved.sync()
    await store._saved.save_checkpoint()


async def filled(root: Path, segments: int = 5, **settings: Any) -> MessageStore:
    """A master with `segments` full segments and a partial one; queue 1 ends with the first segment."""
    store = await master(root, max_index_num=16, max_hash_slot_num=5, **settings)
    store.append([message(b"old", queue_id=1, properties=b"KEYS\x01old\x02") for _ in range(3)])
    while store.max_offset() < segments * SEGMENT + 1_000:
        store.append([message(bytes(400), properties=b"KEYS\x01k\x02")])
    await saved(store)
    return store
