"""Delayed and half messages near the limits of records: accepted ones can be stored again later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.sends.scheduling import delivered, scheduled
from broker.transactions.records import committed, given_up, half_of, put_back
from messagestore.messages import MessageToStore, PutResult, PutStatus
from messagestore.record import Message, check, decode, pack_host
from messagestore.store.messagestore import MessageStore
from remoting.codes import RequestCode
from remoting.headers.messages import ConsumerSendMsgBackHeader
from remoting.headers.send import SendMessageHeader
from tests.cluster.served import Served
from tests.unit.messagestore.storehelp import encode_batch, open_store, small_settings

SHORT, LONG = "orders", "o" * 127
KEYS = b"UNIQ_KEY\x01k\x02PGROUP\x01PG\x02"
IPV6 = pack_host("fe80::1", 10911)


def delayed(message: MessageToStore) -> MessageToStore:
    return scheduled(message, 5, 18)


def copies_of(stored: Message) -> list[MessageToStore | None]:
    """All copies that the broker may store of it."""
    if stored.topic == "SCHEDULE_TOPIC_XXXX":
        return [delivered(stored)]
    again = put_back(stored, root=10**18 - 1, asks=True)
    held = replace(stored, properties=again.properties)
    return [again, *(copy for half in (stored, held) for copy in (committed(half), given_up(half)))]


async def opened(root: Path, *, crc: bool, size: int = 4096) -> MessageStore:
    settings = small_settings(
        mapped_file_size_commit_log=size, enabled_append_prop_crc=crc, message_index_enable=False
    )
    store = open_store(root, settings)
    await store.start()
    await store.become_master()
    return store


def append(store: MessageStore, message: MessageToStore) -> PutResult:
    (appended,) = store.append([message])
    return appended


def record_of(store: MessageStore, appended: PutResult) -> bytes:
    return bytes(store.read(appended.physical_offset, appended.record_bytes))


def largest(store: MessageStore, make: Callable[[int], MessageToStore], most: int) -> tuple[int, Message]:
    """The largest number up to `most` whose message is accepted, and its record."""
    for number in range(most, 0, -1):
        appended = append(store, make(number))
        if appended.error is None:
            return number, decode(record_of(store, appended))
    raise AssertionError("no message is accepted")


def all_copied(root: Path, stored: Message, size: int = 4096) -> list[PutStatus | None]:
    """The results of storing each copy, with and without CRCs of records, and with IPv4 and IPv6 hosts."""

    async def scenario() -> list[PutStatus | None]:
        errors = []
        for crc in (False, True):
            store = await opened(root / str(crc), crc=crc, size=size)
            for host in (store.store_host, IPV6):
                store.store_host = host
                for copy in copies_of(stored):
                    assert copy is not None
                    appended = append(store, copy)
                    errors.append(appended.error)
                    if appended.error is None:
                        whole = record_of(store, appended)
                        assert check(
                            whole, 0, len(whole), appended.physical_offset, verify_record=True
                        ) == len(whole)
            await store.stop()
        return errors

    return asyncio.run(scenario())


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize(
    ("kept_as", "topic", "body_bytes"),
    [(delayed, SHORT, 3888), (delayed, LONG, 3659), (half_of, SHORT, 3763), (half_of, LONG, 3539)],
)
def test_every_copy_of_an_accepted_delayed_or_half_message_fits_into_a_segment(
    tmp_path: Path,
    kept_as: Callable[[MessageToStore], MessageToStore],
    topic: str,
    body_bytes: int,
    crc: bool,
) -> None:
    def of_size(number: int) -> MessageToStore:
        return kept_as(MessageToStore(topic, 3, bytes(number), KEYS))

    async def scenario() -> tuple[int, Message]:
        store = await opened(tmp_path / "accepted", crc=crc)
        found = largest(store, of_size, 4096)
        assert append(store, of_size(found[0] + 1)).error is PutStatus.MESSAGE_ILLEGAL
        await store.stop()
        return found

    accepted, stored = asyncio.run(scenario())
    assert set(all_copied(tmp_path, stored)) == {None}
    assert accepted == body_bytes


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize(("kept_as", "properties_bytes"), [(delayed, 32_747), (half_of, 32_639)])
def test_properties_of_an_accepted_delayed_or_half_message_leave_room_for_its_copies(
    tmp_path: Path, kept_as: Callable[[MessageToStore], MessageToStore], properties_bytes: int, crc: bool
) -> None:
    def of_size(number: int) -> MessageToStore:
        return kept_as(MessageToStore(SHORT, 3, b"", KEYS + b"own\x01" + b"x" * number + b"\x02"))

    async def scenario() -> tuple[int, Message]:
        store = await opened(tmp_path / "accepted", crc=crc, size=1 << 17)
        found = largest(store, of_size, 32_767)
        assert append(store, of_size(found[0] + 1)).error is PutStatus.PROPERTIES_SIZE_EXCEEDED
        await store.stop()
        return found

    accepted, stored = asyncio.run(scenario())
    assert len(of_size(accepted).properties) == properties_bytes
    assert set(all_copied(tmp_path, stored, 1 << 17)) == {None}


@pytest.mark.parametrize("kept_as", [delayed, half_of])
@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("%RETRY%" + "g" * 248, None),
        ("%RETRY%" + "g" * 249, PutStatus.MESSAGE_ILLEGAL),  # a group may have 255
        ("%RETRY%" + "ü" * 124, None),
        ("%RETRY%" + "ü" * 125, PutStatus.MESSAGE_ILLEGAL),
        ("%RETRY%a\x02b", PutStatus.MESSAGE_ILLEGAL),
        ("%RETRY%a\x01b", None),
    ],
)
def test_a_delayed_or_half_message_is_accepted_only_for_a_topic_name_that_fits_a_record(
    tmp_path: Path,
    kept_as: Callable[[MessageToStore], MessageToStore],
    topic: str,
    error: PutStatus | None,
) -> None:
    async def scenario() -> bytes:
        store = await opened(tmp_path / "accepted", crc=False)
        appended = append(store, kept_as(MessageToStore(topic, 3, b"body", KEYS)))
        assert appended.error is error
        stored = b"" if error else record_of(store, appended)
        await store.stop()
        return stored

    record = asyncio.run(scenario())
    if error is None:
        stored = decode(record)
        assert set(all_copied(tmp_path, stored)) == {None}
        assert (copies_of(stored)[-1] or stored).topic in (topic, "TRANS_CHECK_MAX_TIME_TOPIC")


@pytest.mark.parametrize("kept_as", [delayed, half_of])
def test_copies_of_a_record_with_a_crc_are_valid_in_stores_with_and_without_crcs(
    tmp_path: Path, kept_as: Callable[[MessageToStore], MessageToStore]
) -> None:
    async def scenario() -> Message:
        store = await opened(tmp_path / "accepted", crc=True)
        stored = decode(record_of(store, append(store, kept_as(MessageToStore(SHORT, 3, b"body", KEYS)))))
        await store.stop()
        return stored

    stored = asyncio.run(scenario())
    assert stored.properties[-20:].startswith(b"__CRC32#\x01")
    assert set(all_copied(tmp_path, stored)) == {None}


def test_a_delayed_message_of_java_without_room_for_a_crc_is_delivered_without_one(tmp_path: Path) -> None:
    def stored_by_java() -> Message:
        own = delayed(MessageToStore(SHORT, 3, b"body", KEYS)).properties
        long = own + b"own\x01" + b"x" * (32_767 - len(own) - 5) + b"\x02"
        return Message(
            "SCHEDULE_TOPIC_XXXX", 4, 0, 0, 0, 0, 0, 0, 0, IPV6, 0, IPV6, 0, 0, b"body", long
        )  # fmt: skip

    assert len(stored_by_java().properties) == 32_767
    assert all_copied(tmp_path, stored_by_java(), 1 << 17) == [None] * 4


CRC_OF_ANOTHER = b"own\x01v\x02__CRC32#\x010987654321\x02"


@pytest.mark.parametrize("batch", [False, True])
def test_a_crc_property_sent_by_a_producer_is_not_used_as_the_crc_of_the_record(
    tmp_path: Path, batch: bool
) -> None:
    async def scenario() -> tuple[bytes, int]:
        store = await opened(tmp_path, crc=False)
        body = encode_batch([(0, b"body", CRC_OF_ANOTHER)]) if batch else b"body"
        properties = b"" if batch else CRC_OF_ANOTHER
        appended = append(store, MessageToStore(SHORT, 3, body, properties, batch=batch))
        found = record_of(store, appended), appended.physical_offset
        await store.stop()
        return found

    whole, at = asyncio.run(scenario())
    assert check(whole, 0, len(whole), at, verify_record=True) == len(whole)
    assert decode(whole).properties == b"own\x01v\x02"


DELAYED, HALF = "DELAY\x013\x02", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"


@pytest.mark.parametrize(
    ("kept_as", "own_bytes", "code"),
    [(DELAYED, 32_000, 0), (DELAYED, 32_615, 13), (HALF, 32_000, 0), (HALF, 32_500, 13)],
)
def test_a_delayed_or_half_message_without_room_for_its_copies_is_refused(
    served: Served, kept_as: str, own_bytes: int, code: int
) -> None:
    header = SendMessageHeader(
        producer_group="PG", topic="orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
        sys_flag=0, born_timestamp=1, flag=0, properties=f"{kept_as}own\x01{'x' * own_bytes}\x02",
    )  # fmt: skip
    reply = served.ask(RequestCode.SEND_MESSAGE_V2, header.to_short_ext(), b"body")
    assert reply.code == code
    if code:
        remark = reply.remark or ""
        assert "once it is stored again" in remark and remark.endswith("32767 are allowed")


@pytest.mark.parametrize(
    ("group_bytes", "answer"), [(248, (0, None)), (249, (26, f"subscription group not exist, {'g' * 249}"))]
)
def test_a_send_back_is_refused_if_the_name_of_the_retry_topic_is_too_long(
    served: Served, group_bytes: int, answer: tuple[int, str | None]
) -> None:
    (entry,) = served.master.store.entries("orders", 1, 0, 1)
    header = ConsumerSendMsgBackHeader(entry.physical_offset, "g" * group_bytes, 0)
    reply = served.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    assert (reply.code, reply.remark) == answer
    scheduled_entries = served.master.store.entries("SCHEDULE_TOPIC_XXXX", 2, 0, 1)
    assert len(scheduled_entries) == int(reply.code == 0)
