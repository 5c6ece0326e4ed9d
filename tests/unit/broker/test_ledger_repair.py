"""Bits that flip in a member's log, in Raft mode: what rotted is fetched from another member, whoever leads."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest

from dledger.entry import ENTRY_HEADER, ENTRY_HEADER_BYTES
from raftstore.mending import closed
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.unit.broker.groupset import GroupSet
from tests.unit.broker.mixedset import moved, old_files

SCRUB = {"scrubBytesPerSecond": 64 << 20, "scrubInterval": 1_000, "yieldAfterMillis": 60_000}
MAGIC = bytes.fromhex("daa320a7")
"""Of a record, behind its size."""
BODY_AT = 150
"""Of an entry: in the body of its message."""


@pytest.fixture
def world() -> Iterator[World]:
    with World(37) as world:
        yield world


def messages(name: str, count: int) -> list[bytes]:
    return [b"%s %d " % (name.encode(), number) + b"x" * (100 + number * 37 % 500) for number in range(count)]


def ledger_files(node: Node) -> dict[str, bytes]:
    return {
        path: bytes(inode.data)
        for path, inode in sorted(node.disk.entries.items())
        if path.startswith("dledger-") and "/data/" in path
    }


def entries_of(content: bytes, start: int) -> list[tuple[int, int]]:
    """(place in the file, size of the body) of each, and of the blank that closes it, whose size is -1."""
    at, found = 0, []
    while at + ENTRY_HEADER_BYTES <= len(content):
        magic, size, _, _, position, *_, body_size = ENTRY_HEADER.unpack_from(content, at)
        if magic != 1:
            return [*found, (at, -1)]
        assert position == start + at
        found.append((at, body_size))
        at += size
    return found


def is_sound(group: GroupSet, node: Node) -> bool:
    return not group.app(node).store.soundness.damages


def restarted(group: GroupSet, node: Node) -> None:
    """The page that rotted is read anew."""
    node.kill()
    group.start(node)


def test_what_rotted_is_fetched_whoever_leads_and_stands_as_it_was_written(world: World) -> None:
    group = GroupSet(world, **SCRUB)
    group.start_up()
    sent = messages("some", 400)
    group.run(group.send_all(sent))
    world.run_until(group.level, 20_000)
    leader = group.master
    for node in group.brokers:
        kept = ledger_files(node)
        path, content = next(iter(kept.items()))
        found = entries_of(content, int(path[-20:]))
        some = [at for at, size in found if size > BODY_AT]
        blank = found[-1]
        assert blank[1] == -1
        for at in (
            some[3] + BODY_AT,
            some[9] + 24,
            some[-1] + 45,
            blank[0],
        ):  # body, position, body size, blank
            node.disk.flip_bit(path, at, 3)
        assert ledger_files(node) != kept
        store = group.app(node).store
        store.soundness.begin_again(store.segment_size_bytes)
        group.world.run_until(lambda store=store: store.soundness.repairs == 4, 30_000)
        group.world.run_until(lambda node=node: is_sound(group, node), 10_000)
        for name, before in kept.items():
            assert ledger_files(node)[name][: len(before.rstrip(b"\0"))] == before.rstrip(b"\0")
            assert node.disk.durable_part(path, 0, len(content)) == content
    assert group.master is leader, "nobody had to yield"
    assert sorted(bytes(one.body) for one in group.run(group.read_all())) == sorted(sent)


def test_what_rotted_before_the_divide_is_fetched_too(world: World) -> None:
    group = moved(world, messages("before", 250), **SCRUB)
    group.start_all()
    group.wait_for_master()
    for node in (group.master, next(node for node in group.brokers if node is not group.master)):
        kept = old_files(node)
        first, last = min(kept), max(kept)
        blank = len(kept[last].rstrip(b"\0")) - 8
        bodies = [kept[first].index(b"xxxxxxxx", at) for at in (5_000, 10_000)]
        for path, at in ((first, bodies[0]), (first, bodies[1]), (last, blank + 5)):
            node.disk.flip_bit(path, at, 1)
        store = group.app(node).store
        assert store.first_message_offset() == 0
        store.soundness.begin_again(store.segment_size_bytes * len(kept))
        world.run_until(lambda store=store: store.soundness.repairs == 3, 30_000)
        assert old_files(node) == kept
        world.run_until(lambda node=node: is_sound(group, node), 10_000)
        assert node.disk.durable_part(first, 0, len(kept[first])) == kept[first]
    assert len(group.run(group.read_all())) == 250


def test_one_header_that_rotted_keeps_no_member_from_starting(world: World) -> None:
    """A start asks for the terms of the 1st, 2nd, 4th, 8th entry behind the first, and so on."""
    group = GroupSet(world, **SCRUB)
    group.start_up()
    group.run(group.send_all(messages("some", 300)))
    world.run_until(group.level, 20_000)
    world.run_for_ms(10_000)
    node = next(one for one in group.brokers if one is not group.master)
    path, was = next(iter(ledger_files(node).items()))
    node.kill(power_cut=True)
    node.disk.flip_bit(path, entries_of(was, int(path[-20:]))[8][0] + 29, 2)
    group.start(node)
    world.run_until(lambda: node.app is not None and group.app(node).store.soundness.repairs == 1, 60_000)
    assert ledger_files(node)[path] == was


def test_nothing_is_taken_of_a_peer_whose_log_is_another_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Its address may be that of another group's member by now: what ends a file there is an entry here."""
    group = GroupSet(world, **SCRUB)
    group.start_up()
    group.run(group.send_all(messages("some", 300)))
    world.run_until(group.level, 20_000)
    node = next(one for one in group.brokers if one is not group.master)
    path, was = next(iter(ledger_files(node).items()))
    at = entries_of(was, int(path[-20:]))[4][0]
    store = group.app(node).store

    async def closed_there(member: str, offset: int, size: int) -> bytes:
        return closed(store.left_at(offset))

    honest, store._member.piece = store._member.piece, closed_there
    node.disk.flip_bit(path, at + BODY_AT, 0)
    store.soundness.begin_again(store.segment_size_bytes)
    world.run_until(lambda: "damaged record not repaired, trying on" in caplog.text, 30_000)
    rotten = bytearray(was)
    rotten[at + BODY_AT] ^= 1
    assert ledger_files(node)[path] == rotten
    store._member.piece = honest
    world.run_until(lambda: ledger_files(node)[path] == was, 30_000)


def test_no_record_of_another_plain_log_is_taken(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Members whose plain logs differ share no group, and repair nothing of each other."""
    group = moved(world, messages("before", 250), **SCRUB)
    rotten, other, away = group.brokers
    path = max(old_files(other))
    inode = other.disk.entries[path]
    at = bytes(inode.data).index(b"xxxxxxxx")
    start = bytes(inode.data).rindex(MAGIC, 0, at) - 4
    body = bytes(inode.data).index(b"before ", start)
    size = int.from_bytes(inode.data[body - 4 : body], "big")
    content = bytearray(inode.data)
    content[at : at + 8] = b"yyyyyyyy"
    content[start + 8 : start + 12] = (crc32(content[body : body + size]) & 0x7FFF_FFFF).to_bytes(4, "big")
    other.disk.drop(path)
    other.disk.put(path, bytes(content))
    group.start(rotten)
    group.start(other)
    world.run_for_ms(3_000)
    was = old_files(rotten)[path]
    assert was[start + 16 : at] == bytes(content)[start + 16 : at], "the same record, but for its body"
    rotten.disk.flip_bit(path, at, 0)
    store = group.app(rotten).store
    store.soundness.begin_again(store.segment_size_bytes * len(old_files(rotten)))
    world.run_until(lambda: "damaged record not repaired, trying on" in caplog.text, 30_000)
    assert (
        old_files(rotten)[path][start : at + 8] == was[start:at] + bytes([was[at] ^ 1]) + was[at + 1 : at + 8]
    )


def test_what_nobody_else_has_is_told_and_asked_for_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    group = GroupSet(world, **SCRUB)
    group.start_up()
    group.run(group.send_all(messages("some", 300)))
    world.run_until(group.level, 20_000)
    node = group.master
    path, was = next(iter(ledger_files(node).items()))
    at = entries_of(was, int(path[-20:]))[4][0] + BODY_AT
    for one in group.brokers:
        one.disk.flip_bit(one_path(one, path), at, 0)
    store = group.app(node).store
    store.soundness.begin_again(store.segment_size_bytes)
    world.run_until(lambda: "damaged record not repaired, trying on" in caplog.text, 30_000)
    assert ledger_files(node)[path] != was, "nothing that rotted there too is taken"
    assert "is damaged" in caplog.text and len(store.soundness.damages) == 1
    healthy = next(one for one in group.brokers if one is not node)
    healthy.disk.flip_bit(one_path(healthy, path), at, 0)  # a sector that could not be read, and can be again
    group.app(healthy).store.soundness.damages.clear()
    restarted(group, healthy)
    world.run_until(lambda: ledger_files(node)[path] == was, 60_000)


def one_path(node: Node, path: str) -> str:
    """The same file on another member's disk."""
    return f"dledger-n{int(node.name[-1])}/{path.partition('/')[2]}"
