"""Stores of Java brokers: they are read, encoded to the same bytes, and dispatched to the same queues."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from messagestore import record
from messagestore.checkpoint import CHECKPOINT, decode_checkpoint
from messagestore.errors import StoreCorrupted
from messagestore.walker import order_segments, walk
from tests.unit.messagestore.storehelp import (
    GOLDEN,
    SEGMENT_SIZES,
    format_host,
    golden_index,
    golden_lines,
    golden_queues,
    golden_segments,
    lay_out,
    open_store,
    queue_entries,
    record_crc,
    record_crc_property,
)

SETS = sorted(SEGMENT_SIZES)


@pytest.mark.parametrize("name", SETS)
def test_every_java_record_decodes_as_in_java_and_encodes_to_the_same_bytes(
    name: str,
) -> None:
    segments = golden_segments(name)
    for line in golden_lines(name):
        if line["record"] == "BLANK":
            continue
        content = segments[line["file"]]
        message = record.decode(content, line["pos"])
        assert record.encode(message) == content[line["pos"] : line["pos"] + line["size"]]
        assert message.magic == line["magic"] % (1 << 32)
        assert (message.topic, message.queue_id, message.queue_offset) == (
            line["topic"], line["queueId"], line["queueOffset"],
        )  # fmt: skip
        assert (message.physical_offset, message.total_size) == (line["physicalOffset"], line["size"])
        assert (message.flag, message.sys_flag, message.body_crc) == (
            line["flag"], line["sysFlag"], line["bodyCRC"],
        )  # fmt: skip
        assert (message.born_timestamp, message.store_timestamp) == (
            line["bornTimestamp"],
            line["storeTimestamp"],
        )
        assert message.prepared_transaction_offset == line["preparedTransactionOffset"]
        assert message.reconsume_times == line["reconsumeTimes"]
        assert format_host(message.store_host) == line["storeHost"].removeprefix("/")
        assert message.message_id == line["offsetMsgId"]
        assert len(message.body) == line["bodyLength"]
        assert message.body.hex() == line.get("bodyHex", message.body.hex())
        assert message.property_map == line["properties"]


@pytest.mark.parametrize("name", SETS)
def test_a_walk_over_a_java_log_finds_every_record_and_stops_at_the_limit(name: str) -> None:
    contents = golden_segments(name)
    segments = order_segments("commitlog", [(key, len(value)) for key, value in contents.items()])
    lines = [line for line in golden_lines(name) if line["record"] != "BLANK"]
    end = lines[-1]["physicalOffset"] + lines[-1]["size"]

    found = [(offset, size) for _, _, offset, size in walk(segments, lambda s: contents[s.name], 0, end)]
    assert found == [(line["physicalOffset"], line["size"]) for line in lines]

    inside_last = end - 1
    without_last = [offset for _, _, offset, _ in walk(segments, lambda s: contents[s.name], 0, inside_last)]
    assert without_last == [offset for offset, _ in found[:-1]]
    with pytest.raises(StoreCorrupted):
        list(walk(segments, lambda s: contents[s.name], 0, end + 1))


def test_a_record_crc_of_java_equals_ours() -> None:
    (content,) = golden_segments("non-controller-record-crc").values()
    for line in golden_lines("non-controller-record-crc"):
        stored = content[line["pos"] : line["pos"] + line["size"]]
        assert stored.endswith(record_crc_property(record_crc(stored)))


@pytest.mark.parametrize("name", ["clean-shutdown", "after-kill-9"])
def test_dispatch_builds_the_queues_that_java_built(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = lay_out(name, tmp_path, queues=False)
        (tmp_path / "abort").touch()
        store = open_store(tmp_path, settings)
        report = await store.start()
        last = golden_lines(name)[-1]
        assert not report.clean
        assert report.max_offset == report.confirm_offset == last["physicalOffset"] + last["size"]
        assert queue_entries(store) == golden_queues(name)
        (built,) = (tmp_path / "index").iterdir()
        assert [built.read_bytes()] == list(golden_index(name, "index-5.5.1").values())
        assert (report.cut_bytes, report.walked_records) == (0, len(golden_lines(name)) - 1)
        await store.stop()

    asyncio.run(scenario())


def test_a_store_that_java_stopped_cleanly_opens_without_rebuilding_its_queues(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = lay_out("clean-shutdown", tmp_path, queues=True)
        before = {
            path: path.read_bytes() for path in (tmp_path / "consumequeue").rglob("0*") if path.is_file()
        }
        store = open_store(tmp_path, settings)
        report = await store.start()
        assert report.clean
        assert report.dispatched_offset == report.confirm_offset == report.max_offset == 369867
        assert report.walked_from == 262144
        assert queue_entries(store) == golden_queues("clean-shutdown")
        await store.stop()
        assert {path: path.read_bytes() for path in before} == before
        assert not (tmp_path / "abort").exists()
        stored = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
        assert stored.confirm_phy_offset == 369867
        for name, content in golden_segments("clean-shutdown").items():
            assert zlib.crc32((tmp_path / "commitlog" / name).read_bytes()) == zlib.crc32(content)

    asyncio.run(scenario())


def test_a_java_store_without_a_confirm_offset_keeps_its_log(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        settings = lay_out("non-controller-record-crc", tmp_path, queues=True)
        store = open_store(tmp_path, settings)
        report = await store.start()
        assert (report.confirm_offset, report.max_offset) == (0, 3002)
        assert queue_entries(store) == {}
        await store.become_master()
        assert store.append([]) == []
        store.set_confirm_offset(3002)
        while store.dispatch():
            pass
        assert queue_entries(store) == golden_queues("non-controller-record-crc")
        await store.stop()

    asyncio.run(scenario())


def test_java_checkpoints_are_read() -> None:
    checkpoint = decode_checkpoint((GOLDEN / "clean-shutdown" / "checkpoint").read_bytes())
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == 1795257401249
    assert checkpoint.confirm_phy_offset == 369867
    golden = (GOLDEN / "clean-shutdown" / "checkpoint").read_bytes()
    assert checkpoint.encode()[: CHECKPOINT.size] == golden[: CHECKPOINT.size]
