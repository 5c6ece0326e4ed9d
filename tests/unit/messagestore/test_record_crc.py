"""The CRC at the end of a record: written as in Java, kept by copies, and checked with the body's CRC."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messagestore import record
from messagestore.bulk.records import ROOM_BYTES, records_in
from messagestore.errors import RecordDamaged, StoreCorrupted
from messagestore.messages import PutStatus
from messagestore.recordcrc import HEAD, RECORD_CRC_BYTES, contradicts, seal, with_room
from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.storehelp import (
    dispatch_all,
    encode_batch,
    golden_lines,
    golden_segments,
    in_loop,
    lay_out,
    master,
    message,
    open_store,
    record_crc,
    record_crc_property,
    small_settings,
)

JAVA = "non-controller-record-crc"


async def opened(root: Path, **values: object) -> MessageStore:
    chosen = {"enabled_append_prop_crc": True, "force_verify_prop_crc": True, "scrub_bytes_per_second": 0}
    store = open_store(root, small_settings(message_index_enable=False, **{**chosen, **values}))
    await store.start()
    return store


def records_of(store: MessageStore, ends: list[int]) -> list[bytes]:
    """The records from 0 on that end at `ends`."""
    return [bytes(store.read(start, end - start)) for start, end in zip([0, *ends], ends, strict=False)]


def flip(root: Path, at: int) -> None:
    path = root / "commitlog" / f"{at - at % 4096:020d}"
    content = bytearray(path.read_bytes())
    content[at % 4096] ^= 1
    path.write_bytes(content)


@in_loop
async def test_a_master_ends_each_record_with_the_crc_of_java(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.become_master()
    batch = encode_batch([(0, b"one", b"KEYS\x01k1"), (0, b"two", b"")])
    appended = store.append(
        [
            message(properties=b"TAGS\x01TagA"),
            message(properties=b"TAGS\x01TagA\x02"),
            message(properties=b""),
            message(topic="%RETRY%" + "g" * 200),
            message(properties=b"__CRC32#\x010123456789\x02TAGS\x01old one\x02"),
            message(batch, batch=True, properties=b"INSTANCE_ID\x01i"),
        ]
    )
    assert [outcome.error for outcome in appended] == [None] * 6
    starts = [outcome.physical_offset for outcome in appended[:5]] + list(appended[5].physical_offsets)
    ends = [*starts[1:], store.max_offset()]
    found = records_of(store, ends)
    for stored, start in zip(found, starts, strict=True):
        assert stored.endswith(record_crc_property(record_crc(stored)))
        assert record.check(stored, 0, 4096, start, verify_record=True) == len(stored)
    texts = [record.decode(stored).properties[:-RECORD_CRC_BYTES] for stored in found]
    assert texts == [
        b"TAGS\x01TagA\x02", b"TAGS\x01TagA\x02", b"", b"", b"TAGS\x01old one\x02",
        b"KEYS\x01k1\x02INSTANCE_ID\x01i\x02", b"INSTANCE_ID\x01i\x02",
    ]  # fmt: skip
    await store.stop()


def test_by_default_a_record_has_no_crc(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message(properties=b"TAGS\x01TagA")])
        assert HEAD not in bytes(store.read(0, 4096))
        await store.stop()

    asyncio.run(scenario())


@in_loop
async def test_the_record_crc_counts_towards_the_property_size(tmp_path: Path) -> None:
    store = await opened(tmp_path, mapped_file_size_commit_log=1 << 17)
    await store.become_master()
    fits = b"K\x01" + b"v" * (record.PROPERTIES_BYTES_MAX - RECORD_CRC_BYTES - 3) + b"\x02"
    one, other = store.append([message(properties=fits), message(properties=fits[:-1] + b"v\x02")])
    assert (one.error, other.error) == (None, PutStatus.PROPERTIES_SIZE_EXCEEDED)
    await store.stop()


def test_the_crc_of_every_java_record_matches_until_a_bit_flips() -> None:
    (content,) = golden_segments(JAVA).values()
    for line in golden_lines(JAVA):
        at, size = line["pos"], line["size"]
        stored = content[at : at + size]
        assert record.check(stored, 0, 65536 - at, at, verify_record=True) == size
        again = bytearray(stored)
        seal(again, 0, size)
        assert again == stored
        for place in (16, 20, 43, 60, size - RECORD_CRC_BYTES - 2, size - 2):  # neither sizes nor the body
            corrupted = bytearray(stored)
            corrupted[place] ^= 1
            assert record.check(corrupted, 0, 65536 - at, at) == size
            assert record.check(corrupted, 0, 65536 - at, at, verify_record=True) == record.INVALID


def test_a_record_without_a_crc_is_valid() -> None:
    for properties in (b"", b"TAGS\x01a\x02", with_room(b"") + b"K\x01v\x02", HEAD + b"12\x02"):
        assert not contradicts(properties, 0, len(properties), len(properties))
    assert contradicts(b"x" + with_room(b""), 0, 1 + RECORD_CRC_BYTES, RECORD_CRC_BYTES)


@pytest.mark.parametrize("verify, confirmed", [(True, True), (True, False), (False, True)])
@in_loop
async def test_a_start_after_a_kill_checks_record_crcs(tmp_path: Path, verify: bool, confirmed: bool) -> None:
    store = await opened(tmp_path)
    await store.become_master()
    appended = store.append([message(bytes([n]) * 50, properties=b"TAGS\x01a") for n in range(8)])
    if confirmed:
        store.set_confirm_offset(store.max_offset())
    while store.dispatch():
        pass
    await store.stop()
    (tmp_path / "abort").touch()
    flip(tmp_path, appended[5].physical_offset + 16)  # the application's flag: no other check covers it
    if verify and confirmed:
        with pytest.raises(StoreCorrupted) as damage:
            await opened(tmp_path)
        assert damage.value.offset == appended[5].physical_offset
        return
    store = await opened(tmp_path, force_verify_prop_crc=verify)
    assert store.max_offset() == (appended[5].physical_offset if verify else appended[7].end_offset)
    await store.stop()


def test_a_bulk_check_ends_before_a_record_with_a_wrong_crc() -> None:
    (content,) = golden_segments(JAVA).values()
    buffer = bytearray(content[:3002] + bytes(ROOM_BYTES))
    assert records_in(buffer, 3002, 0).intact_records() == len(golden_lines(JAVA))
    buffer[golden_lines(JAVA)[3]["pos"] + 43] ^= 1
    records = records_in(buffer, 3002, 0)
    assert (records.intact_bodies(), records.intact_records()) == (len(records), 3)


@in_loop
async def test_a_record_corrupted_outside_its_body_is_not_served_and_is_repaired(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.become_master()
    appended = store.append([message(bytes([n]) * 300, properties=b"TAGS\x01a") for n in range(60)])
    dispatch_all(store)
    await store.stop()
    place = appended[3].physical_offset
    size = appended[3].end_offset - place
    intact = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()[place : place + size]
    flip(tmp_path, place + 43)

    store = await opened(tmp_path)
    with pytest.raises(RecordDamaged, match="the record has another CRC"):
        await store.load(store.get("TopicTest", 0, 3, 1, 1 << 20))
    other = bytearray(intact)
    other[43] ^= 1
    assert not await store.repair(place, bytes(other))
    assert await store.repair(place, intact)
    result = store.get("TopicTest", 0, 3, 1, 1 << 20)
    await store.load(result)
    assert result.buffers == [intact]
    await store.stop()


@in_loop
async def test_a_store_of_java_starts_with_every_record_verified(tmp_path: Path) -> None:
    settings = lay_out(JAVA, tmp_path, queues=True)
    (tmp_path / "abort").touch()
    store = open_store(tmp_path, settings.model_copy(update={"force_verify_prop_crc": True}))
    report = await store.start()
    assert (report.max_offset, report.cut_bytes) == (3002, 0)
    await store.stop()
