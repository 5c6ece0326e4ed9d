"""Any log survives the conversion from Raft mode to a commit log and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messagestore.record import decode
from messagestore.walker import segment_name
from mqruntime.realruntime import real_runtime
from raftstore.folder import plain_log, read_log
from raftstore.framing import PlacedMessage
from raftstore.givingback import give_back
from raftstore.placing import stretches
from tests.unit.raftstore.raftstores import StoreOfMessages, message


def whole(root: Path) -> list[PlacedMessage]:
    log = read_log(root)
    found = list(log.messages())
    assert log.census.damage == ""
    return found


def write_plain(root: Path, messages: list[PlacedMessage], segment_bytes: int) -> int:
    """Write `messages` as segments of a commit log below `root`, and return its end."""
    log = b"".join(stretches(messages, segment_bytes, 0))
    (root / "commitlog").mkdir(parents=True)
    for start in range(0, len(log), segment_bytes):
        content = log[start : start + segment_bytes].ljust(segment_bytes, b"\0")
        (root / "commitlog" / segment_name(start)).write_bytes(content)
    return len(log)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 600), min_size=1, max_size=30),
    file_bytes=st.integers(1000, 3000),
    back_bytes=st.integers(1000, 3000),
    sealed=st.booleans(),
)
def test_adopt_and_give_back_keep_every_message(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], file_bytes: int, back_bytes: int, sealed: bool
) -> None:
    home = tmp_path_factory.mktemp("stores")
    store = StoreOfMessages(home / "java", file_bytes)
    for number, size in enumerate(sizes):
        store.add(message(number, bytes([number]) * size, number), sealed=sealed)
    first = whole(store.write())
    end = write_plain(home / "ours", first, file_bytes)
    between = list(plain_log(home / "ours", end))
    count = asyncio.run(give_back(between, {}, real_runtime(home / "back"), "n0", back_bytes))
    again = whole(home / "back")
    assert count == len(sizes) == len(again)
    for one, other in zip(first, again, strict=True):
        before, after = decode(one.content), decode(other.content)
        assert after.physical_offset == other.offset
        assert (after.body, after.queue_offset, after.store_timestamp) == (
            before.body,
            before.queue_offset,
            before.store_timestamp,
        )
    if back_bytes == file_bytes:
        assert [each.offset for each in again] == [each.offset for each in first]
    assert write_plain(home / "once more", again, file_bytes) == end
    for path in (home / "ours/commitlog").iterdir():
        assert (home / "once more/commitlog" / path.name).read_bytes() == path.read_bytes()
