"""The compiled send path stores, answers and counts the same as the pure one, with any input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messagestore.batch import MEMBER_HEADER, PROPERTIES_LENGTH, SENT_MEMBERS_MAX
from messagestore.record import check
from nativepath import presence
from remoting.frame import FrameReader
from remoting.plainsends import commands_of
from tests.unit.nativepath.sendbench import (
    ANSWERED_MS,
    LONG_TOPICS,
    MESSAGE_BYTES_MAX,
    SEGMENT_BYTES,
    MemoryLedger,
    MemoryLog,
    SendBench,
)

pytestmark = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")

VECTORS = Path(__file__).parents[2] / "vectors" / "remoting"
PLAIN_PROPERTIES = "KEYS\x01k1 k2\x02UNIQ_KEY\x010A0102030A5C18B4\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    length = 4 + len(header) + len(body)
    return length.to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big") + header + body


def header(opaque: int = 7, code: int = 310, flag: int = 0, **fields: str) -> dict[str, Any]:
    ext = {
        "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795256518702", "h": "0",
        "i": PLAIN_PROPERTIES, "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    return {
        "code": code, "extFields": ext | fields, "flag": flag, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip


def send(opaque: int = 7, body: bytes = b"body", code: int = 310, flag: int = 0, **fields: str) -> bytes:
    return frame(orjson.dumps(header(opaque, code, flag, **fields)), body)


def member(body: bytes, properties: bytes, flag: int = 3, size: int = 0) -> bytes:
    size += MEMBER_HEADER.size + len(body) + PROPERTIES_LENGTH.size + len(properties)
    head = MEMBER_HEADER.pack(size, 0, 0, flag, len(body))
    return head + body + PROPERTIES_LENGTH.pack(len(properties)) + properties


def batch(*members: bytes, opaque: int = 7, code: int = 320, flag: int = 0, **fields: str) -> bytes:
    return send(opaque, b"".join(members), code, flag, m="true", **fields)


def alike(use: Callable[[SendBench], None], **how: Any) -> SendBench:
    """Checks that `use` has the same result on both paths and both logs; returns the compiled bench."""
    compiled = [leaves_the_same(use, log=log, **how) for log in (MemoryLedger, MemoryLog)]
    assert len({bench.store.plain > 0 for bench in compiled}) == 1
    return compiled[-1]


def leaves_the_same(use: Callable[[SendBench], None], **how: Any) -> SendBench:
    pure, compiled = SendBench(compiled=False, **how), SendBench(compiled=True, **how)
    for bench in (pure, compiled):
        use(bench)
    assert pure.state() == compiled.state()
    return compiled


def test_a_plain_send_takes_the_compiled_path_with_the_same_result() -> None:
    def use(bench: SendBench) -> None:
        bench.receive(
            send(1) + send(2, b"", e="3", b="others", i="UNIQ_KEY\x01a") + send(3, e="0", b="others")
        )
        bench.replication.acked = 1 << 40
        bench.receive(send(4))

    compiled = alike(use)
    assert compiled.store.plain == 1, (
        "the queue 3 of others does not exist, so its receive takes the pure path"
    )
    assert b'"opaque":4' in b"".join(compiled.client.written)


def test_frames_of_java_producers_are_plain() -> None:
    index = json.loads((VECTORS / "index.json").read_text())
    content = (VECTORS / "frames.bin").read_bytes()
    assert presence.native is not None
    taken = 0
    for entry in index:
        data = content[entry["offset"] : entry["offset"] + entry["length"]]
        sends = presence.native.read_sends(memoryview(data), 0, len(data), 1 << 24, 1 << 16)
        if sends is not None:
            (command,) = FrameReader().receive(data)
            (same,) = commands_of(sends)
            same.body = bytes(same.body or b"") or None
            assert same == command and command.code in (310, 320)
            taken += 1
    assert taken >= 3, "Java's own"


def test_a_receive_with_very_many_topics_takes_the_pure_path() -> None:
    """In a receive of 16 MiB, a linear search for each send's topic takes seconds."""
    assert presence.native is not None
    read = presence.native.read_sends
    names = [f"topic-{number}" for number in range(64)]
    few = b"".join(send(number, b=name) for number, name in enumerate([*names, *names]))
    sends = read(memoryview(few), 0, len(few), 1 << 24, 1 << 16)
    assert sends is not None and sends.topics == [name.encode() for name in names] and sends.end == len(few)
    many = few + send(64, b="topic-64")
    assert read(memoryview(many), 0, len(many), 1 << 24, 1 << 16) is None
    alike(lambda bench: bench.receive(many))


def test_batches_are_stored_member_by_member_and_answered_with_all_their_ids() -> None:
    def use(bench: SendBench) -> None:
        members = [member(b"m%d" % n, b"TAGS\x01t%d\x02" % n) for n in range(5)]
        bench.receive(batch(*members, opaque=1) + batch(member(b"", b""), opaque=2, e="2"))
        bench.receive(send(3))
        bench.pending.acknowledged(bench.store.log.max_offset)

    compiled = alike(use)
    assert compiled.store.plain == 2 and compiled.processor.stored == 7


def test_batches_without_a_unique_key_get_one_as_on_the_pure_path() -> None:
    def use(bench: SendBench) -> None:
        some = member(b"a", b"b"), member(b"c", b"")
        bench.receive(batch(*some, opaque=1, i="WAIT\x01true\x02") + batch(*some, opaque=2, i=""))
        bench.receive(batch(*some, opaque=4, flag=2, i="TAGS\x01x\x02") + batch(*some, opaque=5))
        bench.receive(batch(b"damaged", opaque=6, i="") + batch(*some, opaque=7, i=""))
        bench.receive(batch(*some, opaque=8, i=""))
        bench.pending.acknowledged(bench.store.log.max_offset)

    compiled = alike(use)
    assert compiled.store.plain == 3 and compiled.processor._admission.unique_keys_given == 6


def test_sends_and_batches_of_one_receive_are_stored_in_their_order() -> None:
    def use(bench: SendBench) -> None:
        first = b"".join(batch(member(b"b%d" % n, b""), member(b"c", b""), opaque=n) for n in range(3))
        bench.receive(first + send(3, code=320, m="false", e="2") + batch(member(b"d", b""), opaque=4))
        bench.receive(send(5) + batch(member(b"e", b""), opaque=6))
        bench.pending.acknowledged(bench.store.log.max_offset)

    compiled = alike(use)
    assert compiled.store.plain == 1, "of one code; a receive that mixes 310 and 320 takes the pure path"
    assert compiled.processor.stored == 10


def test_a_batch_is_stored_completely_in_one_segment() -> None:
    def use(bench: SendBench) -> None:
        four = [member(bytes([n]) * 900, b"TAGS\x01t\x02") for n in range(4)]
        for number in range(40):
            bench.receive(batch(*four, opaque=number))
        bench.pending.acknowledged(bench.store.log.max_offset)

    compiled = alike(use)
    assert compiled.processor.stored == 40 * 4 and compiled.store.log.max_offset > 2 * SEGMENT_BYTES
    assert compiled.store.plain == 38, "one takes the pure path at the end of each segment"


@pytest.mark.parametrize(
    ("end", "plain"),
    [
        (b"own\x01v\x02__CRC32#\x010987654321\x02", False),
        (b"__CRC32#\x0110987654321", False),
        (b"my__CRC32#\x010987654321\x02", False),
        (b"__CRC32#\x010987654321\x02TAGS\x01t\x02", True),
        (b"__CRC32#\x01098765432\x02", True),
        (b"_CRC32#\x010987654321\x02", True),
    ],
)
def test_properties_that_look_like_a_record_crc_take_the_pure_path(end: bytes, plain: bool) -> None:
    """Else the record would contradict itself and count as damaged."""

    def use(bench: SendBench) -> None:
        bench.receive(batch(member(b"one", b"TAGS\x01t\x02"), member(b"two", end)))
        bench.pending.acknowledged(bench.store.log.max_offset)

    compiled = alike(use)
    assert compiled.store.plain == int(plain) and compiled.processor.stored == 2
    log, at = bytes(compiled.store.log.content), 0
    for _ in range(2):
        size = check(log, at, SEGMENT_BYTES - at, at, verify_record=True)
        assert size > 0
        at += size
    assert at == compiled.store.log.max_offset


@pytest.mark.parametrize(
    ("properties", "plain"),
    [
        (b"DELAY\x013\x02", False),
        (b"KEYS\x01k\x02DELAY\x014x", False),
        (b"KEYS\x01k\x02TRAN_MSG\x01true\x02", False),
        (b"TIMER_DELIVER_MS\x0199\x02KEYS\x01k\x02", False),
        (b"XDELAY\x013\x02DELAYS\x013\x02TIMER\x013\x02DELAY", True),
        (b"\x02\x02T\x02D\x02TRAN_MSG", True),
    ],
)
def test_batch_messages_with_special_properties_take_the_pure_path(properties: bytes, plain: bool) -> None:
    def use(bench: SendBench) -> None:
        bench.receive(batch(member(b"DELAY\x013\x02", b"TAGS\x01t\x02"), member(b"two", properties)))
        bench.pending.acknowledged(bench.store.log.max_offset)

    assert alike(use).store.plain == int(plain)


def hostile_bodies() -> Iterator[bytes]:
    """A valid batch of three, cut at any byte, or with a wrong number."""
    good = (
        member(b"first", b"TAGS\x01t\x02")
        + member(b"", b"")
        + member(b"third" * 9, b"KEYS\x01k\x02", flag=-1)
    )
    yield from (good[:size] for size in range(len(good)))
    lies = (
        0,
        1,
        19,
        21,
        23,
        len(good),
        len(good) + 1,
        4 << 20,
        (4 << 20) + 1,
        0x7FFFFFFF,
        0x80000000,
        0xFFFFFFFF,
    )
    for at in range(len(good) - 3):
        yield from (good[:at] + lie.to_bytes(4, "big") + good[at + 4 :] for lie in lies)
    for at in range(0, len(good) - 1):
        yield from (
            good[:at] + lie.to_bytes(2, "big") + good[at + 2 :] for lie in (0, 1, 0x7FFF, 0x8000, 0xFFFF)
        )


def test_a_batch_of_too_many_messages_is_not_plain() -> None:
    assert presence.native is not None
    read = presence.native.read_sends

    def sizes(members: int) -> list[int] | None:
        data = batch(*[member(b"", b"")] * members)
        sends = read(memoryview(data), 0, len(data), 1 << 24, 1 << 16)
        return sends.measured(b"", 4 << 20, 4 << 20) if sends is not None else []

    allowed = sizes(SENT_MEMBERS_MAX)
    assert allowed is not None and len(allowed) == SENT_MEMBERS_MAX
    assert sizes(SENT_MEMBERS_MAX + 1) is None


def test_hostile_batches_have_the_same_result_as_on_the_pure_path() -> None:
    bodies = list(hostile_bodies())

    def use(bench: SendBench) -> None:
        for number, body in enumerate(bodies):
            bench.receive(batch(body, opaque=number))
            bench.pending.acknowledged(bench.store.log.max_offset)

    compiled = alike(use)
    assert 900 < compiled.store.plain < 1_800 < len(bodies), "magic, CRC, flag and content may be anything"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x" * 30, member(b"a", b"b\0c"), member(b"a", b"b") + b"rest", member(b"a", b"b", size=1),
        member(b"a", b"b")[:-1], member(b"x" * MESSAGE_BYTES_MAX, b""), MEMBER_HEADER.pack(22, 0, 0, 0, -1) + b"\0\0",
        MEMBER_HEADER.pack(22, 0, 0, 0, 2**31 - 1) + b"\0\0", MEMBER_HEADER.pack(22, 0, 0, 0, 0) + b"\xff\xff",
    ],
)  # fmt: skip
def test_a_batch_with_contradicting_sizes_is_refused(body: bytes) -> None:
    compiled = alike(lambda bench: bench.receive(batch(body, opaque=1) + batch(member(b"a", b"b"), opaque=2)))
    assert compiled.store.plain == 0 and compiled.client.written


@pytest.mark.parametrize(
    "fields",
    [
        {"i": PLAIN_PROPERTIES + "DELAY\x013\x02"}, {"i": PLAIN_PROPERTIES + "TIMER_DELAY_SEC\x013\x02"},
        {"i": PLAIN_PROPERTIES + "TRAN_MSG\x01true\x02"}, {"i": PLAIN_PROPERTIES + "WAIT\x01false\x02"},
        {"i": "KEYS\x01k\x02"}, {"i": ""}, {"i": "UNIQ_KEY\x01a\x02XUNIQ_KEY\x01b\x02"}, {"i": "UNIQ_KEY\x01\xe9\x02"},
        {"i": 'UNIQ_KEY\x01a"b\x02'}, {"i": "UNIQ_KEY\x01a\0b\x02"}, {"i": "UNIQ_KEY\x01" + "u" * 40_000},
        {"e": "-1"}, {"e": "4"}, {"e": "x"}, {"e": ""}, {"e": str(2**31)}, {"e": "١"}, {"e": "+1"}, {"e": " 1"},
        {"f": "4"}, {"f": "8"}, {"f": str(2**40)}, {"h": str(-(2**31))}, {"g": str(2**70)}, {"d": "x"}, {"j": "1_0"},
        {"b": ""}, {"b": "none"}, {"b": "SCHEDULE_TOPIC_XXXX"}, {"b": "%RETRY%CG"}, {"b": "T" * 130}, {"b": "caf\xe9"},
        {"m": "1"}, {"AccessKey": ""}, {"AccessKey": "caf\xe9"}, {"AccessKey": "user", "_UNIQUE_KEY_QUERY": "true"},
    ],
)  # fmt: skip
def test_special_sends_take_the_pure_path(fields: dict[str, str]) -> None:
    def use(bench: SendBench) -> None:
        bench.receive(send(1, **fields) + send(2, **fields))
        bench.pending.acknowledged(bench.store.log.max_offset)

    assert alike(use).store.plain == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"i": "UNIQ_KEY\x01a"}, {"i": PLAIN_PROPERTIES + "XDELAY\x013\x02"}, {"i": PLAIN_PROPERTIES + 'q\x01"\\/\b\n\x02'},
        {"i": "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02"}, {"i": "UNIQ_KEY\x01\x02WAIT\x01true"}, {"f": "1"}, {"f": str(0x31)},
        {"h": "-5"}, {"j": "3"}, {"g": "0"}, {"m": "yes"}, {"z": "whatever"}, {"l": "16"},
        {"AccessKey": "user", "SecurityToken": "", "Signature": "A" * 27 + "="}, {"Signature": ""},
        {"_UNIQUE_KEY_QUERY": "true"},
    ],
)  # fmt: skip
def test_plain_sends_take_the_compiled_path(fields: dict[str, str]) -> None:
    def use(bench: SendBench) -> None:
        bench.receive(send(1, **fields) + send(-2, b"", **fields))
        bench.pending.acknowledged(bench.store.log.max_offset)

    assert alike(use).store.plain == 1


def test_one_way_sends_are_stored_and_not_answered() -> None:
    def use(bench: SendBench) -> None:
        bench.receive(send(1, flag=2) + send(2) + send(3, flag=2))
        bench.pending.acknowledged(1 << 40)
        bench.receive(send(4, flag=2))

    compiled = alike(use)
    assert compiled.store.plain == 2 and len(compiled.client.written) == 1


def test_the_end_of_a_segment_and_a_full_disk_take_the_pure_path() -> None:
    def use(bench: SendBench) -> None:
        for number in range(3 * SEGMENT_BYTES // 3_000):
            bench.store.log.is_full = number % 7 == 5
            bench.receive(send(number, bytes(number % 256 for _ in range(2_900))))
        bench.pending.acknowledged(bench.store.log.max_offset)

    compiled = alike(use)
    assert compiled.store.log.max_offset > 2 * SEGMENT_BYTES and compiled.store.plain > 40


@pytest.mark.parametrize("how", [{"crcs": True}, {"address": "[fd00::9]:5000"}])
def test_record_crcs_and_other_hosts_take_the_pure_path(how: dict[str, Any]) -> None:
    assert alike(lambda bench: bench.receive(send(1) + batch(member(b"a", b"b"))), **how).store.plain == 0


def test_a_run_of_sends_is_answered_as_its_offsets_are_confirmed() -> None:
    def use(bench: SendBench) -> None:
        bench.receive(b"".join(send(number, b"b" * number) for number in range(9)))
        bench.clock.ms += 10
        bench.receive(b"".join(send(number) for number in range(9, 12)))
        size = bench.store.log.max_offset // 12
        for share in (0.5, 3.2, 3.2, 6):
            bench.pending.acknowledged(int(size * share))
        bench.pending.expire(bench.clock.monotonic_ms() + ANSWERED_MS - 5, size * 8)
        bench.pending.give_up()

    compiled = alike(use)
    assert compiled.store.plain == 2 and len(compiled.pending) == 0
    answers = b"".join(compiled.client.written)
    assert answers.count(b'"code":0,') and answers.count(b'"code":10,') and answers.count(b'"code":12,')


def test_each_send_reports_an_unreachable_slave() -> None:
    def use(bench: SendBench) -> None:
        bench.replication.reached = 800
        bench.receive(b"".join(send(number) for number in range(9)))
        bench.pending.acknowledged(0, lambda: 1_000)
        bench.pending.acknowledged(1 << 40, lambda: 1 << 40)

    compiled = alike(use)
    assert compiled.store.plain == 1 and b'"code":11,' in b"".join(compiled.client.written)


texts = st.text(st.characters(max_codepoint=0x250) | st.sampled_from('\x01\x02"\\ /'), max_size=12)
pieces = st.builds(
    lambda name, value, end: f"{name}\x01{value}{end}",
    st.sampled_from(["KEYS", "TAGS", "WAIT", "UNIQ_KEY", "UNIQ_KEY", "XUNIQ_KEY", "DELAY", "TIMER_DELAY_MS", "TRAN_MSG", "q"]),
    st.sampled_from(["true", "3", "a b", "", "0A0102030A5C"]) | texts,
    st.sampled_from(["\x02", "\x02", "\x02", ""]),
)  # fmt: skip
numbers = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "7",
        "-1",
        "00",
        "-0",
        "",
        " 1",
        "12345678901234567890",
        "2147483647",
        "-2147483648",
        "48",
        "x",
    ]
)
fields = st.fixed_dictionaries(
    {
        "i": st.just(PLAIN_PROPERTIES)
        | st.lists(pieces, max_size=5).map("".join)
        | st.lists(pieces, max_size=3).map(lambda some: PLAIN_PROPERTIES + "".join(some))
    },
    optional={
        "b": st.sampled_from(["orders", "orders", "others", "SCHEDULE_TOPIC_XXXX", "%RETRY%CG", "new", "caf\xe9", ""])
        | st.sampled_from(LONG_TOPICS),
        "d": numbers, "e": numbers, "f": numbers, "g": numbers, "h": numbers, "j": numbers,
        "m": st.sampled_from(["true", "false", "1", "yes"]), "n": texts, "zz": texts, "AccessKey": texts, "Signature": texts,
    },
)  # fmt: skip
members = st.builds(
    member,
    st.binary(max_size=30),
    st.sampled_from([b"", b"TAGS\x01a\x02", b"KEYS\x01k", b"a\0b", "caf\xe9".encode()]),
    st.integers(-5, 5),
    st.sampled_from([0, 0, 0, 0, 1, -1, 2**20]),
)
bodies = st.binary(max_size=60) | st.lists(members, max_size=4).map(b"".join)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    code = draw(st.sampled_from([310, 310, 310, 320, 10, 34]))
    made = header(draw(st.integers(-(2**31), 2**31 - 1)), code, draw(st.sampled_from([0, 0, 0, 2, 1])))
    made["extFields"] |= draw(fields)
    for name in draw(st.lists(st.sampled_from([*made, "remark", "x"]), max_size=1)):
        made[name] = draw(st.sampled_from([None, 5, "5", 1.5, -3, [], {}, 2**33]))
    names = list(made)
    if draw(st.booleans()):
        names = draw(st.permutations(names))
    made = {name: made[name] for name in names}
    text = draw(
        st.sampled_from(
            [
                orjson.dumps,
                lambda value: json.dumps(value).encode(),
                lambda value: json.dumps(value, ensure_ascii=False, indent=1).encode(),
                lambda value: orjson.dumps(value).replace(b"u0001", b"U0001").replace(b"/", b"\\/"),
                lambda value: orjson.dumps(value).replace(b"{", b"{ ,"),
            ]
        )
    )(made)
    return frame(text, draw(bodies), draw(st.sampled_from([0] * 12 + [1, 2])))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    received=st.lists(st.lists(frames() | st.just(send(3)), max_size=4).map(b"".join), max_size=4),
    damages=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=2),
    cut=st.integers(0, 400),
    shares=st.lists(st.floats(0, 1), max_size=4),
)
def test_any_received_bytes_are_stored_and_answered_alike(
    received: list[bytes], damages: list[tuple[int, int]], cut: int, shares: list[float]
) -> None:
    content = [bytearray(each) for each in received]
    for at, byte in damages:
        for each in content[:1]:
            if each:
                each[at % len(each)] = byte
    if content and cut:
        del content[-1][-cut:]

    def use(bench: SendBench) -> None:
        for each in content:
            bench.receive(bytes(each))
            bench.clock.ms += 500
        for share in shares:
            bench.pending.acknowledged(int(bench.store.log.max_offset * share))
        bench.pending.expire(bench.clock.monotonic_ms() + ANSWERED_MS - 700, 300)
        bench.pending.give_up()

    alike(use)


@settings(max_examples=300)
@given(data=st.binary(max_size=300), begin=st.integers(0, 20), much=st.booleans())
def test_random_bytes_are_no_sends(data: bytes, begin: int, much: bool) -> None:
    assert presence.native is not None
    good = send(1)
    content = bytearray(good * (3 if much else 1))
    content[begin : begin + len(data)] = data
    view = memoryview(content)
    sends = presence.native.read_sends(view, 0, len(view), 1 << 24, 1 << 16)
    reader = FrameReader()
    commands = reader.receive(bytes(content))
    if sends is not None:
        found = commands_of(sends)
        for each in found:
            each.body = bytes(each.body or b"") or None
        assert reader.failure is None and found == commands
