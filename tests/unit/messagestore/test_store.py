"""The store in use: appending, replication's side of the log, dispatch and reading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from messagestore import record
from messagestore.batch import SENT_MEMBERS_MAX
from messagestore.dispatch.dispatcher import NEW_QUEUES_MAX
from messagestore.log.commitlog import CommitLog
from messagestore.messages import GetStatus, PutStatus, QueueGrew
from messagestore.record import pack_host
from mqruntime import segments
from tests.support.doubles import ManualClock
from tests.unit.messagestore.storehelp import (
    dispatch_all,
    encode_batch,
    format_host,
    golden_segments,
    in_loop,
    master,
    message,
    nothing_cached,
    open_store,
    queue_entries,
    small_settings,
)

pytestmark = pytest.mark.usefixtures("way")

Scenario = Callable[..., Awaitable[None]]


def clock_at(ms: int) -> ManualClock:
    clock = ManualClock()
    clock.wall_ms = ms
    return clock


@in_loop
async def test_appended_messages_get_ordered_offsets_and_are_read_from_their_queue(
    tmp_path: Path,
) -> None:
    store = await master(tmp_path)
    outcomes = store.append([message(b"one"), message(b"two", queue_id=1), message(b"three")])
    assert [(out.queue_offset, out.error) for out in outcomes] == [(0, None), (0, None), (1, None)]
    assert [out.physical_offset for out in outcomes[1:]] == [out.end_offset for out in outcomes[:-1]]
    assert store.max_offset() == outcomes[-1].end_offset

    assert store.get("TopicTest", 0, 0, 32, 4096).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    dispatch_all(store)
    result = store.get("TopicTest", 0, 0, 32, 4096)
    assert (result.status, result.count, result.next_begin_offset) == (GetStatus.FOUND, 2, 2)
    assert [record.decode(view).body for view in result.buffers] == [b"one", b"three"]
    await store.stop()


@in_loop
async def test_adjacent_records_are_returned_as_one_view(tmp_path: Path) -> None:
    store = await master(tmp_path)
    store.append([message(bytes([n])) for n in range(5)])
    dispatch_all(store)
    result = store.get("TopicTest", 0, 1, 3, 4096)
    assert (len(result.buffers), result.count) == (1, 3)
    assert bytes(result.buffers[0]) == bytes(store.read(result.ranges[0][0], result.ranges[0][1]))
    await store.stop()


@in_loop
async def test_consumers_see_only_records_below_the_confirm_offset(tmp_path: Path) -> None:
    store = await master(tmp_path)
    grown: list[QueueGrew] = []
    store.on_arrival(grown.extend)
    outcomes = store.append([message(), message(), message()])
    store.set_confirm_offset(outcomes[1].end_offset - 1)
    assert not store.dispatch()
    assert store.max_queue_offset("TopicTest", 0) == 1
    assert grown == [QueueGrew("TopicTest", 0, 1)]
    assert not store.dispatch()
    store.set_confirm_offset(outcomes[1].end_offset)
    store.dispatch()
    assert grown[1:] == [QueueGrew("TopicTest", 0, 2)]
    assert await store.message_at(outcomes[2].physical_offset) is None
    assert await store.message_at(outcomes[1].physical_offset) is not None
    assert await store.message_at(outcomes[1].physical_offset + 1) is None
    await store.stop()


@in_loop
async def test_bytes_in_a_body_that_look_like_a_record_are_no_listed_record(tmp_path: Path) -> None:
    store = await master(tmp_path)
    (first,) = store.append([message()])
    model = record.decode(store.read(first.physical_offset, first.end_offset - first.physical_offset))
    inner = first.end_offset + record.FIXED_PARTS[0].size
    forged = record.encode(replace(model, topic="secret", body=b"forged", physical_offset=inner))
    (outer,) = store.append([message(forged)])
    dispatch_all(store)
    looks_right = await store.message_at(inner)
    assert looks_right is not None and record.decode(looks_right).topic == "secret"
    assert await store.listed_at(inner) is None
    listed = await store.listed_at(outer.physical_offset)
    assert listed is not None and record.decode(listed).body == forged
    (waits,) = store.append([message()])
    store.set_confirm_offset(waits.end_offset)
    assert await store.listed_at(waits.physical_offset + 1) is None
    await store.stop()


@in_loop
async def test_the_confirm_offset_never_decreases_or_passes_the_log_end(tmp_path: Path) -> None:
    store = await master(tmp_path)
    (out,) = store.append([message()])
    store.set_confirm_offset(1 << 40)
    assert store.confirm_offset() == out.end_offset
    store.set_confirm_offset(1)
    assert store.confirm_offset() == out.end_offset
    await store.stop()


@in_loop
async def test_one_dispatch_step_creates_a_limited_number_of_queues(tmp_path: Path) -> None:
    """A new replica of a set with thousands of queues must answer heartbeats and acknowledge in between."""
    store = await master(tmp_path)
    store.append([message(queue_id=number) for number in range(3 * NEW_QUEUES_MAX)])
    store.set_confirm_offset(store.max_offset())
    made = [len(store.queues())]
    while store.dispatch():
        made.append(len(store.queues()))
    assert max(later - earlier for earlier, later in pairwise(made)) <= NEW_QUEUES_MAX
    assert len(store.queues()) == 3 * NEW_QUEUES_MAX
    await store.stop()


@in_loop
async def test_dispatch_runs_by_itself_when_the_confirm_offset_moves(tmp_path: Path) -> None:
    store = await master(tmp_path)
    arrived = asyncio.Event()
    store.on_arrival(lambda grown: arrived.set())
    store.append([message() for _ in range(2000)])
    store.set_confirm_offset(store.max_offset())
    while store.max_queue_offset("TopicTest", 0) < 2000:
        await arrived.wait()
        arrived.clear()
    assert store.dispatched_offset() == store.confirm_offset()
    await store.stop()


@in_loop
async def test_records_do_not_span_segments_and_a_blank_ends_each(tmp_path: Path) -> None:
    store = await master(tmp_path)
    outcomes = store.append([message(bytes(1000)) for _ in range(9)])
    starts = [out.physical_offset for out in outcomes]
    assert all(
        start // 4096 == (out.end_offset - 1) // 4096 for start, out in zip(starts, outcomes, strict=True)
    )
    assert starts[3] == 4096 and starts[6] == 8192
    view = store.read(0, 4096)
    assert (
        record.check(view, outcomes[2].end_offset, 4096 - outcomes[2].end_offset, 0) == record.END_OF_SEGMENT
    )
    dispatch_all(store)
    assert store.max_queue_offset("TopicTest", 0) == 9
    await store.stop()


@in_loop
async def test_one_callback_notifies_replication_of_a_batch_of_sends(tmp_path: Path) -> None:
    store = await master(tmp_path)
    calls: list[int] = []
    store.on_append(lambda: calls.append(store.max_offset()))
    store.append([message() for _ in range(10)])
    assert calls == [store.max_offset()]
    store.append([message(bytes(5000))])
    assert len(calls) == 1, "nothing was stored"
    await store.stop()


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"body": bytes(3001)}, PutStatus.MESSAGE_ILLEGAL),
        ({"topic": ""}, PutStatus.MESSAGE_ILLEGAL),
        ({"topic": "t" * 256}, PutStatus.MESSAGE_ILLEGAL),
        ({"properties": b"p" * 32768}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        ({"properties": b"K\x01a\0b\x02"}, PutStatus.MESSAGE_ILLEGAL),
        ({"properties": b"p" * 4000}, PutStatus.MESSAGE_ILLEGAL),
        ({"flag": 1 << 31}, PutStatus.MESSAGE_ILLEGAL),
        ({"body": b"no batch", "batch": True}, PutStatus.MESSAGE_ILLEGAL),
        ({"body": encode_batch([(0, bytes(2000), b"")] * 3), "batch": True}, PutStatus.MESSAGE_ILLEGAL),
        (
            {"body": encode_batch([(1, b"a", b""), (2, bytes(2999), b"p" * 1500)]), "batch": True},
            PutStatus.MESSAGE_ILLEGAL,
        ),
    ],
)
@in_loop
async def test_a_refused_message_changes_nothing(
    tmp_path: Path, values: dict[str, Any], status: PutStatus
) -> None:
    store = await master(tmp_path, max_message_size=3000)
    before, refused, after = store.append([message(), message(**values), message()])
    assert refused.error is status and refused.physical_offset == -1
    assert after.queue_offset == 1
    assert after.physical_offset == before.end_offset
    await store.stop()


@in_loop
async def test_a_batch_of_too_many_messages_is_refused(tmp_path: Path) -> None:
    store = await master(tmp_path, mapped_file_size_commit_log=4 << 20)
    many = encode_batch([(0, b"", b"")] * (SENT_MEMBERS_MAX + 1))
    refused, allowed = (store.append([message(each, batch=True)])[0] for each in (many, many[22:]))
    assert (refused.error, refused.physical_offset) == (PutStatus.MESSAGE_ILLEGAL, -1)
    assert refused.why.endswith("more than 16384 messages; send fewer at a time")
    assert (allowed.error, allowed.queue_offset, allowed.count) == (None, 0, SENT_MEMBERS_MAX)
    await store.stop()


@in_loop
async def test_a_topic_longer_than_127_bytes_makes_a_v2_record(tmp_path: Path) -> None:
    store = await master(tmp_path)
    out, two = store.append([message(topic="%RETRY%" + "g" * 150), message(topic="%RETRY%" + "g" * 150)])
    assert record.decode(store.read(out.physical_offset, 4096)).magic == record.MAGIC_V2
    dispatch_all(store)
    assert store.max_queue_offset("%RETRY%" + "g" * 150, 0) == 2
    await store.stop()


@in_loop
async def test_ipv6_hosts_set_flags_in_the_record(tmp_path: Path) -> None:
    store = await master(tmp_path)
    store.store_host = pack_host("::1", 10911)
    (out,) = store.append([message(born_host=pack_host("fe80::1", 5000))])
    stored = record.decode(store.read(out.physical_offset, 4096))
    assert stored.sys_flag == record.BORN_HOST_IPV6 | record.STORE_HOST_IPV6
    assert (format_host(stored.born_host), format_host(stored.store_host)) == (
        "[fe80::1]:5000", "[::1]:10911",
    )  # fmt: skip
    await store.stop()


@in_loop
async def test_half_finished_transactions_have_no_queue_offset(tmp_path: Path) -> None:
    store = await master(tmp_path)
    outcomes = store.append(
        [
            message(),
            message(sys_flag=record.TRANSACTION_PREPARED),
            message(sys_flag=record.TRANSACTION_COMMIT),
        ]
    )
    assert [out.queue_offset for out in outcomes] == [0, 0, 1]
    dispatch_all(store)
    assert [entry[0] for entry in queue_entries(store)["TopicTest", 0]] == [
        outcomes[0].physical_offset, outcomes[2].physical_offset,
    ]  # fmt: skip
    await store.stop()


@in_loop
async def test_a_batch_becomes_records_with_consecutive_offsets_in_one_segment(tmp_path: Path) -> None:
    store = await master(tmp_path)
    store.append([message(bytes(3000))])
    body = encode_batch([(n, bytes([n]) * 300, b"TAGS\x01t") for n in range(3)])
    (out,) = store.append([message(body, batch=True, properties=b"CLUSTER\x01c\x02")])
    assert (out.physical_offset, out.queue_offset, out.count) == (4096, 1, 3)
    stored = [record.decode(store.read(at, 4096)) for at in out.physical_offsets]
    assert [(one.flag, one.queue_offset, one.body[:1]) for one in stored] == [
        (0, 1, b"\0"),
        (1, 2, b"\1"),
        (2, 3, b"\2"),
    ]
    assert {one.properties for one in stored} == {b"TAGS\x01t\x02CLUSTER\x01c\x02"}
    assert out.end_offset == stored[-1].physical_offset + stored[-1].total_size == store.max_offset()
    (following,) = store.append([message()])
    assert following.queue_offset == 4
    await store.stop()


@in_loop
async def test_a_slave_refuses_appends_and_writes_its_masters_bytes(tmp_path: Path) -> None:
    store = open_store(tmp_path, small_settings(mapped_file_size_commit_log=262144))
    await store.start()
    assert store.append([message()])[0].error is PutStatus.SERVICE_NOT_AVAILABLE
    source = b"".join(golden_segments("clean-shutdown").values())[:369867]
    position = 0
    while position < len(source):
        part = source[position : position + 32768]
        while part:
            view = store.write_view(position, len(part))
            view[:] = part[: len(view)]
            position += len(view)
            part = part[len(view) :]
        store.advance(position)
        store.set_confirm_offset(position)
        while store.dispatch():
            pass
    assert store.max_queue_offset("VecTopic", 0) == 33
    await store.become_master()
    (out,) = store.append([message(topic="VecTopic")])
    assert (out.physical_offset, out.queue_offset) == (369867, 33)
    await store.stop()


@in_loop
async def test_a_new_master_truncates_a_torn_end_and_continues_queue_offsets(
    tmp_path: Path,
) -> None:
    store = await master(tmp_path)
    outcomes = store.append([message(topic=topic) for topic in ("A", "A", "B", "%RETRY%" + "g" * 150, "A")])
    store.set_confirm_offset(outcomes[0].end_offset)
    store.dispatch()
    torn = bytes(store.read(outcomes[0].physical_offset, 50))
    store.become_slave()
    store.write_view(store.max_offset(), 70)[:50] = torn
    store.advance(store.max_offset() + 50)

    await store.become_master()
    assert store.max_offset() == outcomes[-1].end_offset
    more = store.append([message(topic=topic) for topic in ("A", "B", "%RETRY%" + "g" * 150, "C")])
    assert [out.queue_offset for out in more] == [3, 1, 1, 0]
    dispatch_all(store)
    assert [store.max_queue_offset(topic, 0) for topic in ("A", "B", "C")] == [4, 2, 1]
    await store.stop()


@in_loop
@pytest.mark.parametrize("whole_stop", [True, False])
async def test_store_timestamps_never_decrease_over_restarts(tmp_path: Path, whole_stop: bool) -> None:
    """At any end of the log in its segment: readers rely on increasing store times."""
    last = 0
    for round_number in range(30):
        store = await master(tmp_path)
        store._clock = clock_at(1_000_000 - round_number)
        for outcome in store.append([message(body=bytes(700))] * 3):
            assert outcome.store_timestamp >= last
            last = outcome.store_timestamp
        if round_number % 2:
            dispatch_all(store)
        await store.stop()
        if not whole_stop:
            (tmp_path / "abort").touch()
    assert last == 1_000_000


@in_loop
async def test_store_timestamps_never_decrease_even_if_the_clock_does(tmp_path: Path) -> None:
    store = await master(tmp_path)
    (first,) = store.append([message()])
    store.become_slave()
    store._clock = clock_at(5)
    await store.become_master()
    (second,) = store.append([message()])
    assert second.store_timestamp == first.store_timestamp
    await store.stop()


@in_loop
async def test_truncation_cuts_log_queues_and_confirm_offset_together(tmp_path: Path) -> None:
    store = await master(tmp_path)
    outcomes = store.append([message(bytes(1000)) for _ in range(9)])
    dispatch_all(store)
    cut = outcomes[4].physical_offset
    store.become_slave()
    await store.truncate(cut)
    assert (store.max_offset(), store.confirm_offset(), store.dispatched_offset()) == (cut, cut, cut)
    assert store.max_queue_offset("TopicTest", 0) == 4
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == [
        "00000000000000000000", "00000000000000004096",
    ]  # fmt: skip
    stored = (tmp_path / "commitlog" / "00000000000000004096").read_bytes()
    assert not any(stored[cut - 4096 :]), "every byte above the cut is zero"
    await store.become_master()
    (out,) = store.append([message()])
    assert (out.physical_offset, out.queue_offset) == (cut, 4)
    await store.stop()


@in_loop
async def test_confirm_whole_records_moves_the_confirm_offset_to_a_record_end(tmp_path: Path) -> None:
    store = await master(tmp_path)
    first, second, _ = store.append([message(bytes(500)) for _ in range(3)])
    store.set_confirm_offset(second.physical_offset + 100)
    store.become_slave()
    await store.confirm_whole_records()
    assert store.confirm_offset() == first.end_offset
    store.set_confirm_offset(second.end_offset)
    await store.confirm_whole_records()
    assert store.confirm_offset() == second.end_offset
    await store.stop()


@in_loop
async def test_record_boundaries_are_found_from_any_offset(tmp_path: Path) -> None:
    store = await master(tmp_path)
    outcomes = store.append([message(bytes(500)) for _ in range(20)])
    for confirm in (0, outcomes[7].end_offset, store.max_offset()):
        store.set_confirm_offset(confirm)
        while store.dispatch():
            pass
        for out in outcomes:
            for offset in (out.physical_offset, out.physical_offset + 1, out.end_offset - 1):
                assert await store._tail.boundary_at_or_below(offset, confirm) == out.physical_offset
        assert await store._tail.boundary_at_or_below(1 << 40, confirm) == store.max_offset()
    await store.stop()


@in_loop
async def test_a_read_returns_upstreams_status_for_every_offset(tmp_path: Path) -> None:
    store = await master(tmp_path)
    store.append([message(properties=b"TAGS\x01%s\x02" % tag) for tag in (b"a", b"b", b"a")])
    dispatch_all(store)

    def get(offset: int, **values: Any) -> tuple[GetStatus, int]:
        result = store.get("TopicTest", 0, offset, 32, 4096, **values)
        return result.status, result.next_begin_offset

    assert get(0) == (GetStatus.FOUND, 3)
    assert get(3) == (GetStatus.OFFSET_OVERFLOW_ONE, 3)
    assert get(4) == (GetStatus.OFFSET_OVERFLOW_BADLY, 3)
    assert get(-1) == (GetStatus.OFFSET_TOO_SMALL, 0)
    assert get(0, tag_filter=lambda code: code == 98) == (GetStatus.FOUND, 3)
    assert get(0, tag_filter=lambda code: code == 99) == (GetStatus.NO_MATCHED_MESSAGE, 3)
    assert store.get("TopicTest", 0, 0, 32, 1).count == 1, "one message is always returned"
    assert store.get("TopicTest", 0, 0, 2, 4096).next_begin_offset == 2
    assert store.get("Other", 0, 0, 32, 4096).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    await store.stop()


@in_loop
async def test_cold_messages_are_read_without_the_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "in_page_cache", nothing_cached)
    store = await master(tmp_path, hot_segments=1)
    outcomes = store.append([message(bytes([n]) * 1500) for n in range(6)])
    dispatch_all(store)
    assert store.is_cold(0) and not store.is_cold(store.max_offset())
    end, tail = store.max_offset(), store.max_offset() - store.max_offset() % store.segment_size_bytes
    assert store.at_hand(0, 100) is None and store.at_hand(tail - 100, 100) is None
    assert store.at_hand(tail, end - tail) == store.read(tail, 1 << 20) and end > tail
    result = store.get("TopicTest", 0, 1, 2, 1 << 20)
    assert result.cold and not result.buffers
    await store.load(result)
    assert [record.decode(view).body[0] for view in result.buffers] == [1, 2]
    found = await store.message_at(outcomes[0].physical_offset)
    assert found is not None and record.decode(found).body[0] == 0
    assert await store.store_time_at("TopicTest", 0, 0) == outcomes[0].store_timestamp
    assert await store.offset_by_time("TopicTest", 0, 0) == 0
    assert await store.offset_by_time("TopicTest", 0, outcomes[-1].store_timestamp + 1) == 6
    await store.stop()


@in_loop
async def test_a_cold_log_is_dispatched_without_the_mapping(tmp_path: Path) -> None:
    store = await master(tmp_path, hot_segments=1)
    store.append([message(bytes(1500)) for _ in range(30)])
    store.set_confirm_offset(store.max_offset())
    arrived = asyncio.Event()
    store.on_arrival(lambda grown: arrived.set())
    while store.dispatched_offset() < store.confirm_offset():
        await arrived.wait()
        arrived.clear()
    assert store.max_queue_offset("TopicTest", 0) == 30
    await store.stop()


@in_loop
async def test_an_empty_slave_may_start_at_the_first_segment_of_its_master(
    tmp_path: Path,
) -> None:
    source = b"".join(golden_segments("clean-shutdown").values())[262144:369867]
    store = open_store(tmp_path, small_settings(mapped_file_size_commit_log=262144))
    await store.start()
    store.write_view(262144, len(source))[:] = source
    store.advance(262144 + len(source))
    dispatch_all(store)
    assert (store.min_offset(), store.max_offset()) == (262144, 369867)
    assert store.min_queue_offset("VecTopic", 0) > 0
    assert store.max_queue_offset("VecTopic", 0) == 33
    await store.stop()
    again = open_store(tmp_path, small_settings(mapped_file_size_commit_log=262144))
    report = await again.start()
    assert (report.min_offset, report.max_offset, report.clean) == (262144, 369867, True)
    assert again.max_queue_offset("VecTopic", 0) == 33
    await again.stop()


@in_loop
async def test_concurrent_flushes_share_their_syncs(tmp_path: Path) -> None:
    store = await master(tmp_path)
    store.append([message()])
    file = store._log._files[0]
    syncs: list[int] = []
    sync = file.sync

    async def counted(start: int, end: int) -> None:
        syncs.append(end)
        await sync(start, end)

    file.sync = counted  # type: ignore[method-assign]
    flushes = [asyncio.create_task(store.flush()) for _ in range(5)]
    await asyncio.sleep(0)
    store.append([message()])
    flushes += [asyncio.create_task(store.flush()) for _ in range(5)]
    flushed = await asyncio.gather(*flushes)
    assert len(syncs) == 2
    assert flushed[-1] == store.flushed_offset() == store.max_offset()
    await store.stop()


@in_loop
async def test_no_segment_is_created_while_a_truncation_deletes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await master(tmp_path)
    delete = segments._delete
    go_on = threading.Event()

    def waits(path: Path) -> None:
        go_on.wait()
        delete(path)

    monkeypatch.setattr(segments, "_delete", waits)
    assert store.append([message(bytes(1000)) for _ in range(4)])[-1].error is None
    cut = asyncio.create_task(store._log.truncate(4096))
    await asyncio.sleep(0)
    assert store.max_offset() == 4096
    wanted = store._log.wants_next()
    go_on.set()
    await cut
    assert not wanted
    assert store._log.wants_next()
    await store.stop()


def test_one_cold_read_has_a_size_limit(tmp_path: Path) -> None:
    """For any number of messages in a pull, at any distance."""
    log = CommitLog(segments.RealSegmentDirectory(tmp_path), 1 << 30, hot_segments=1)
    wanted = [(place, 1000) for place in range(0, 8 << 20, 30 << 10)] + [(16 << 20, 3 << 20)]
    pieces = list(log._close_together(wanted))
    assert [each for piece in pieces for each in piece] == wanted
    assert all(sum(piece[-1]) - piece[0][0] <= 1 << 20 for piece in pieces[:-1])
    assert len(pieces) == 9 and pieces[-1] == [(16 << 20, 3 << 20)]


@in_loop
async def test_cold_messages_close_together_are_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "in_page_cache", nothing_cached)
    store = await master(tmp_path, hot_segments=1, mapped_file_size_commit_log=1 << 17)

    def stored(*sizes: int, topic: str = "TopicTest") -> list[int]:
        return [store.append([message(bytes(size), topic)])[0].physical_offset for size in sizes]

    first = stored(500)
    stored(1000, topic="Other")
    first += stored(600)
    stored(40 << 10, topic="Other")
    apart = stored(700)
    stored(40 << 10, 40 << 10, 40 << 10, topic="Other")
    dispatch_all(store)
    reads: list[int] = []
    read_cold = store._log.read_cold

    async def counted(offset: int, size_max: int) -> bytes:
        reads.append(offset)
        return await read_cold(offset, size_max)

    store._log.read_cold = counted  # type: ignore[method-assign]
    result = store.get("TopicTest", 0, 0, 3, 1 << 20)
    assert result.cold and len(result.ranges) == 3
    await store.load(result)
    assert [len(record.decode(view).body) for view in result.buffers] == [500, 600, 700]
    assert reads == [first[0], *apart]
    await store.stop()
