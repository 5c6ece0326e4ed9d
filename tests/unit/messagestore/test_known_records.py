"""The facts that a master keeps of appended records equal its log and produce the same entries."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from messagestore import record
from messagestore.dispatch.dispatcher import KNOWN_MAX
from messagestore.messages import MessageToStore
from messagestore.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, pack_host
from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.storehelp import (
    RECORD_CRC_BYTES,
    dispatch_all,
    encode_batch,
    master,
    message,
)

pytestmark = pytest.mark.usefixtures("pure")  # the compiled module reads everything from the log

HOSTS = [pack_host("10.0.0.9", 5000), pack_host("fd00::9", 5000)]
PROPERTIES = [
    b"",
    b"TAGS\x01a\x02",
    b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02TAGS\x01\x02TAGS\x01b\x02",
    b"KEYS\x01no end",
    b"DELAY\x013\x02",
]


def sends(seed: int) -> list[list[MessageToStore]]:
    """Groups of sends of all kinds, some of them refused."""
    choose = random.Random(seed)

    def one() -> MessageToStore:
        members = [(number, b"m" * choose.randrange(40), choose.choice(PROPERTIES)) for number in range(5)]
        batch = choose.random() < 0.2
        return message(
            encode_batch(members) if batch else bytes(choose.randrange(200)),
            topic=choose.choice(["TopicTest", "T" * 130, "SCHEDULE_TOPIC_XXXX", ""]),
            queue_id=choose.randrange(3),
            properties=choose.choice(PROPERTIES),
            flag=choose.choice([0, 0, 0, 1 << 31]),
            sys_flag=0
            if batch
            else choose.choice([0, 0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK]),
            born_host=choose.choice(HOSTS),
            batch=batch,
        )

    return [[one() for _ in range(choose.randrange(1, 12))] for _ in range(30)]


def in_log(store: MessageStore, position: int, crcs: bool) -> record.QueueFacts:
    size = store.segment_size_bytes
    facts = record.queue_facts(store.read(position, size), 0, size - position % size, position)
    assert not isinstance(facts, int)
    return without_crc(facts, crcs)


def without_crc(facts: record.QueueFacts, crcs: bool) -> record.QueueFacts:
    return facts._replace(properties=facts.properties[:-RECORD_CRC_BYTES]) if crcs else facts


def entries(root: Path) -> dict[str, bytes]:
    """The files that dispatch wrote; index files are numbered, because their names are times."""
    found = {}
    for folder in ("consumequeue", "index"):
        for number, path in enumerate(sorted((root / folder).rglob("[0-9]*"))):
            if path.is_file():
                name = str(path.relative_to(root)) if folder == "consumequeue" else f"index {number}"
                found[name] = path.read_bytes()
    return found


def end_of_first(content: bytes) -> int:
    return record.PREFIX.unpack_from(content)[0]


@pytest.mark.parametrize("crcs", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_known_facts_equal_the_log_and_produce_the_same_entries(
    tmp_path: Path, seed: int, crcs: bool
) -> None:
    made: list[dict[str, bytes]] = []

    async def scenario(root: Path, *, knows: bool) -> None:
        store = await master(root, enabled_append_prop_crc=crcs)
        store._clock.now_ms = lambda: 1_700_000_000_000  # type: ignore[method-assign]
        known = store._dispatcher.known
        for group in sends(seed):
            store.append(group)
            assert all(in_log(store, position, crcs) == without_crc(facts, crcs) for position, facts in known)
            if not knows:
                known.clear()
            dispatch_all(store)
            assert store.dispatched_offset() == store.max_offset() and not known
        await store.stop()
        made.append(entries(root))

    asyncio.run(scenario(tmp_path / "knows", knows=True))
    asyncio.run(scenario(tmp_path / "reads", knows=False))
    assert made[0] == made[1] and len(made[0]) > 10


def test_older_records_are_read_from_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        count = 3 * KNOWN_MAX
        for number in range(count):
            assert store.append([message(b"%d" % number)])[0].error is None
        known = store._dispatcher.known
        assert len(known) == KNOWN_MAX
        confirmed = known[KNOWN_MAX // 2][0]
        for confirm in (known[0][0] - 1, confirmed + 1, store.max_offset()):
            store.set_confirm_offset(confirm)
            while store.dispatch():
                pass
            assert store.dispatched_offset() <= confirm
        assert store.max_queue_offset("TopicTest", 0) == count and not known
        await store.stop()

    asyncio.run(scenario())


def test_truncated_records_are_no_longer_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        former, store = await master(tmp_path / "former"), await master(tmp_path / "other")
        former.append([message(b"shared")])
        former.append([message(b"cut off!", topic="Former")])
        store.append([message(b"shared"), message(b"kept now", topic="Latter")])
        content = bytes(store.read(0, 4096))
        former.become_slave()
        shared = await former.truncate(end_of_first(content))
        former.write_view(shared, len(content) - shared)[:] = content[shared:]
        former.advance(len(content))
        former.set_confirm_offset(len(content))
        while former.dispatch():
            pass
        assert (former.max_queue_offset("Former", 0), former.max_queue_offset("Latter", 0)) == (0, 1)
        await former.stop()
        await store.stop()

    asyncio.run(scenario())
