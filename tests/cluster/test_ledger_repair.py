"""Flipped bits in the log of a Raft-mode member: corrupt entries are fetched from another member."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest

from dledger.storage.entry import ENTRY_HEADER, ENTRY_HEADER_BYTES
from messagestore.queues.ends import FILE as ENDS_FILE
from raftstore.mending import closed
from remoting.errors import NotSent
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.groupset import GroupSet
from tests.cluster.mixedset import moved, old_files

SCRUB = {"scrubBytesPerSecond": 64 << 20, "scrubInterval": 1_000, "yieldAfterMillis": 60_000}
SMALL = {**SCRUB, "mappedFileSizeCommitLog": 32 << 10}
"""Small segments, so that a few messages fill files."""
MAGIC = bytes.fromhex("daa320a7")
"""The magic of a record, which follows its size."""
BODY_AT = 150
"""An offset within an entry, in the body of its message."""


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
    """(place in the file, size of the body) of each entry, and of the closing blank, whose size is -1."""
    at, found = 0, []
    while at + ENTRY_HEADER_BYTES <= len(content):
        magic, size, _, _, position, *_, body_size = ENTRY_HEADER.unpack_from(content, at)
        if magic != 1:
            return [*found, (at, -1)]
        assert position == start + at
        found.append((at, body_size))
        at += size
    return found


def is_intact(group: GroupSet, node: Node) -> bool:
    return not group.app(node).store.integrity.damages


def restarted(group: GroupSet, node: Node) -> None:
    """Restarts the member, so that the corrupt page is read again."""
    node.kill()
    group.start(node)


def test_corrupt_entries_are_restored_from_other_members_on_leader_and_followers(world: World) -> None:
    group = GroupSet(world, **SMALL)
    group.start_up()
    sent = messages("some", 200)
    group.run(group.send_all(sent))
    world.run_until(group.caught_up, 20_000)
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
        store.integrity.begin_again(store.segment_size_bytes)
        group.world.run_until(lambda store=store: store.integrity.repairs == 4, 30_000)
        group.world.run_until(lambda node=node: is_intact(group, node), 10_000)
        for name, before in kept.items():
            assert ledger_files(node)[name][: len(before.rstrip(b"\0"))] == before.rstrip(b"\0")
            assert node.disk.durable_part(path, 0, len(content)) == content
    assert group.master is leader, "no member had to yield"
    assert group.bodies() == sorted(sent)


def test_corrupt_records_of_the_old_log_are_fetched_too(world: World) -> None:
    group = moved(world, messages("before", 250), **SCRUB)
    group.start_all()
    group.wait_for_master()
    for node in (group.master, group.slaves[0]):
        kept = old_files(node)
        first, last = min(kept), max(kept)
        blank = len(kept[last].rstrip(b"\0")) - 8
        bodies = [kept[first].index(b"xxxxxxxx", at) for at in (5_000, 10_000)]
        for path, at in ((first, bodies[0]), (first, bodies[1]), (last, blank + 5)):
            node.disk.flip_bit(path, at, 1)
        store = group.app(node).store
        assert store.first_message_offset() == 0
        store.integrity.begin_again(store.segment_size_bytes * len(kept))
        world.run_until(lambda store=store: store.integrity.repairs == 3, 30_000)
        assert old_files(node) == kept
        world.run_until(lambda node=node: is_intact(group, node), 10_000)
        assert node.disk.durable_part(first, 0, len(kept[first])) == kept[first]
    assert len(group.run(group.read_all())) == 250


@pytest.mark.parametrize("entry", [0, 8])
def test_a_member_with_one_corrupt_entry_header_starts(world: World, entry: int) -> None:
    """A start reads the terms of the 1st, 2nd, 4th, 8th entry behind the first, and so on."""
    group = GroupSet(world, **SMALL)
    group.start_up()
    group.run(group.send_all(messages("some", 150)))
    world.run_until(group.caught_up, 20_000)
    world.run_for_ms(10_000)
    node = group.slaves[0]
    path, was = next(iter(ledger_files(node).items()))
    node.kill(power_cut=True)
    node.disk.flip_bit(path, entries_of(was, int(path[-20:]))[entry][0] + 29, 2)
    group.start(node)
    world.run_until(lambda: node.app is not None and group.app(node).store.integrity.repairs == 1, 60_000)
    assert ledger_files(node)[path] == was


def test_no_entry_is_taken_from_a_peer_with_a_different_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Its address may belong to another group by now: a file ends there where this one has an entry."""
    group = GroupSet(world, **SMALL)
    group.start_up()
    group.run(group.send_all(messages("some", 150)))
    world.run_until(group.caught_up, 20_000)
    node = group.slaves[0]
    path, was = next(iter(ledger_files(node).items()))
    at = entries_of(was, int(path[-20:]))[4][0]
    store = group.app(node).store

    async def closed_there(member: str, offset: int, size: int) -> bytes:
        return closed(store.left_at(offset))

    honest, store._member.piece = store._member.piece, closed_there
    node.disk.flip_bit(path, at + BODY_AT, 0)
    store.integrity.begin_again(store.segment_size_bytes)
    world.run_until(lambda: "damaged record not repaired, retrying" in caplog.text, 30_000)
    corrupt = bytearray(was)
    corrupt[at + BODY_AT] ^= 1
    assert ledger_files(node)[path] == corrupt
    store._member.piece = honest
    world.run_until(lambda: ledger_files(node)[path] == was, 30_000)


def test_no_record_is_taken_from_a_member_with_a_different_old_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Members with different old logs share no group, and do not repair each other."""
    group = moved(world, messages("before", 250), **SCRUB)
    corrupt, other, away = group.brokers
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
    group.start(corrupt)
    group.start(other)
    world.run_for_ms(3_000)
    was = old_files(corrupt)[path]
    assert was[start + 16 : at] == bytes(content)[start + 16 : at], "the same record except for its body"
    corrupt.disk.flip_bit(path, at, 0)
    store = group.app(corrupt).store
    store.integrity.begin_again(store.segment_size_bytes * len(old_files(corrupt)))
    world.run_until(lambda: "damaged record not repaired, retrying" in caplog.text, 30_000)
    assert (
        old_files(corrupt)[path][start : at + 8]
        == was[start:at] + bytes([was[at] ^ 1]) + was[at + 1 : at + 8]
    )


def test_a_record_corrupt_on_all_members_is_logged_and_requested_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    group = GroupSet(world, **SMALL)
    group.start_up()
    group.run(group.send_all(messages("some", 150)))
    world.run_until(group.caught_up, 20_000)
    node = group.master
    path, was = next(iter(ledger_files(node).items()))
    at = entries_of(was, int(path[-20:]))[4][0] + BODY_AT
    for one in group.brokers:
        one.disk.flip_bit(one_path(one, path), at, 0)
    store = group.app(node).store
    store.integrity.begin_again(store.segment_size_bytes)
    world.run_until(lambda: "damaged record not repaired, retrying" in caplog.text, 30_000)
    assert ledger_files(node)[path] != was, "a copy that is corrupt, too, is not taken"
    assert "is damaged" in caplog.text and len(store.integrity.damages) == 1
    healthy = next(one for one in group.brokers if one is not node)
    healthy.disk.flip_bit(one_path(healthy, path), at, 0)  # a sector that is readable again
    group.app(healthy).store.integrity.damages.clear()
    restarted(group, healthy)
    world.run_until(lambda: ledger_files(node)[path] == was, 60_000)


def one_path(node: Node, path: str) -> str:
    """The same file on another member's disk."""
    return f"dledger-n{int(node.name[-1])}/{path.partition('/')[2]}"


def queue_files(node: Node) -> dict[str, bytes]:
    return {
        path: bytes(inode.data)
        for path, inode in node.disk.entries.items()
        if path.startswith("consumequeue/")
    }


def stopped_with_corrupt_entries_and_no_queues(
    group: GroupSet, node: Node
) -> tuple[str, bytes, dict[str, bytes]]:
    """Stops the member, corrupts an old entry and a later one, and deletes its consume queues."""
    path, was = next(iter(ledger_files(node).items()))
    some = [at for at, size in entries_of(was, int(path[-20:])) if size > BODY_AT]
    group.world.run_for_ms(10_000)  # a checkpoint
    node.kill()
    queues = queue_files(node)
    for queue in queues:
        node.disk.drop(queue)
    node.disk.flip_bit(path, some[5] + 24, 3)  # its position
    topic = was.index(b"orders", some[12])
    node.disk.flip_bit(path, topic, 0)  # the message gets another topic, its body is unchanged
    return path, was, queues


@pytest.mark.parametrize("scrub_bytes", [0, 64 << 20])
def test_queues_are_rebuilt_over_corrupt_entries_once_these_are_repaired(
    world: World, caplog: pytest.LogCaptureFixture, scrub_bytes: int
) -> None:
    group = GroupSet(world, **{**SMALL, "scrubBytesPerSecond": scrub_bytes})
    group.start_up()
    sent = messages("some", 150)
    group.run(group.send_all(sent))
    world.run_until(group.caught_up, 20_000)
    node = group.master
    path, was, queues = stopped_with_corrupt_entries_and_no_queues(group, node)
    others = [one for one in group.brokers if one is not node]
    for other in others:
        other.kill()  # no other member can serve it for now
    group.start(node)
    world.run_for_ms(10_000)
    assert node.failure is None, "it waits for the repair"
    assert caplog.text.count("dispatch waits: an entry of the log is damaged on disk") == 1
    assert group.app(node).store.dispatched_offset() < was.index(b"some 40 ")
    for other in others:
        group.start(other)
    world.run_until(lambda: ledger_files(node)[path][: len(was)] == was, 60_000)
    world.run_until(group.caught_up, 20_000)
    assert caplog.text.count("dispatch continues, damage repaired") >= 1
    group.wait_for_master()
    assert group.bodies() == sorted(sent)
    rebuilt = queue_files(node)
    assert {name: rebuilt[name] for name in queues if "/orders/" in name} == {
        name: content for name, content in queues.items() if "/orders/" in name
    }
    assert not [name for name in rebuilt if name.split("/")[1] == "nrders"]


@pytest.mark.parametrize("scrub_bytes", [0, 64 << 20])
@pytest.mark.parametrize("entry", [5, 12, 30])
def test_a_log_scan_at_start_creates_no_queue_for_a_corrupt_topic_name(
    world: World, entry: int, scrub_bytes: int
) -> None:
    """The file of queue ends is missing, so the log is read for them before it is verified."""
    group = GroupSet(world, **{**SMALL, "scrubBytesPerSecond": scrub_bytes})
    group.start_up()
    sent = messages("some", 150)
    group.run(group.send_all(sent))
    world.run_until(group.caught_up, 20_000)
    world.run_for_ms(10_000)  # a checkpoint
    node = group.master
    path, was = next(iter(ledger_files(node).items()))
    node.kill()
    node.disk.drop(ENDS_FILE)
    queues = queue_files(node)
    some = [at for at, size in entries_of(was, int(path[-20:])) if size > BODY_AT]
    node.disk.flip_bit(path, was.index(b"orders", some[entry]), 0)
    group.start(node)
    world.run_until(lambda: ledger_files(node)[path][: len(was)] == was, 60_000)
    world.run_until(group.caught_up, 20_000)
    group.wait_for_master()
    assert group.bodies() == sorted(sent)
    assert queue_files(node).keys() == queues.keys()


def test_a_lone_member_with_corrupt_entries_stops_and_names_the_offset(world: World) -> None:
    group = GroupSet(world, **SMALL)
    for node in group.brokers[1:]:
        node.kill()
    alone = group.brokers[0]
    alone.kill()
    alone.disk.wipe()
    only = {"dLegerPeers": "n0-10.0.2.1:40911"}
    group.start(alone, **only)
    world.run_until(lambda: len(group.masters) == 1, 20_000)
    world.run_for_ms(500)
    group.create_topic()
    group.run(group.send_all(messages("some", 150)))
    world.run_for_ms(10_000)
    stopped_with_corrupt_entries_and_no_queues(group, alone)
    group.start(alone, **only)
    world.run_until(lambda: alone.failure is not None, 20_000)
    assert "commit log at " in str(alone.failure) and "restore this store from a copy" in str(alone.failure)


@pytest.mark.parametrize("what", [b"due 7 ", b"REAL_TOPIC\x01orders"])
def test_a_delayed_message_corrupted_after_its_check_is_delivered_as_it_was_sent(
    world: World, what: bytes
) -> None:
    """The delivered copy has its own CRC, so no later check would notice."""
    group = GroupSet(world, **{**SCRUB, "scrubBytesPerSecond": 0})
    group.start_up()
    sent = [b"due %d " % number + b"y" * 200 for number in range(20)]

    async def send() -> None:
        async with group.client() as client:
            for body in sent:
                await client.producer("producers").send("orders", body, properties={"DELAY": "2"})

    group.run(send())
    node = group.master
    path, was = next(iter(ledger_files(node).items()))
    at = was.index(what, was.index(b"due 7 "))
    node.disk.flip_bit(path, at + len(what) - 2, 0)
    world.run_for_ms(20_000)
    assert group.master is node and group.app(node).store.integrity.repairs == 1
    assert group.bodies() == sorted(sent)
    assert ledger_files(node)[path][: len(was.rstrip(b"\0"))] == was.rstrip(b"\0")


def test_the_remedy_named_for_corrupt_last_entries_works(world: World) -> None:
    """A start reads those entries before it can ask another member."""
    group = GroupSet(world, **SMALL)
    group.start_up()
    sent = messages("some", 150)
    group.run(group.send_all(sent))
    world.run_until(group.caught_up, 20_000)
    world.run_for_ms(10_000)
    node = group.slaves[0]
    path, was = next(item for item in ledger_files(node).items() if b"some 149 " in item[1])
    node.kill(power_cut=True)
    place = entries_of(was, int(path[-20:]))[-2 if was.endswith(b"\0") else -1][0]
    node.disk.flip_bit(path, place + 29, 2)
    group.start(node)
    world.run_until(lambda: node.failure is not None, 20_000)
    said = str(node.failure)
    assert f"offset {place} of {path}" in said and "all of storePathRootDir, and start it empty" in said
    node.disk.wipe()
    group.start(node)
    world.run_until(group.caught_up, 60_000)
    assert group.bodies() == sorted(sent)


def test_corrupt_records_beyond_the_verified_part_are_not_dispatched(world: World) -> None:
    """One step over a mapped file may take hundreds of large records."""
    large = {"mappedFileSizeCommitLog": 4 << 20, "maxMessageSize": 64 << 10}
    group = GroupSet(world, **{**SCRUB, "scrubBytesPerSecond": 0, **large})
    group.start_up()
    sent = [b"some %d " % number + b"x" * 16_000 for number in range(150)]
    group.run(group.send_all(sent))
    world.run_until(group.caught_up, 20_000)
    node = group.master
    path, was = next(iter(ledger_files(node).items()))
    world.run_for_ms(10_000)  # a checkpoint
    node.kill()
    for queue in queue_files(node):
        node.disk.drop(queue)
    node.disk.flip_bit(path, was.index(b"orders", was.index(b"some 120 ")), 0)
    group.start(node)
    world.run_until(group.caught_up, 60_000)
    group.wait_for_master()
    assert group.bodies() == sorted(sent)
    assert not [name for name in queue_files(node) if name.split("/")[1] == "nrders"]


def one_corrupt(group: GroupSet) -> tuple[Node, str, bytes]:
    """A follower whose fifth entry is corrupt."""
    group.start_up()
    group.run(group.send_all(messages("some", 150)))
    group.world.run_until(group.caught_up, 20_000)
    group.world.run_for_ms(10_000)  # a checkpoint
    node = group.slaves[0]
    path, was = next(iter(ledger_files(node).items()))
    node.disk.flip_bit(path, entries_of(was, int(path[-20:]))[4][0] + BODY_AT, 0)
    store = group.app(node).store
    store.integrity.begin_again(store.segment_size_bytes)
    return node, path, was


def test_a_peer_removed_during_a_repair_does_not_stop_the_repairing_member(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    group = GroupSet(world, **SMALL)
    node, path, was = one_corrupt(group)
    member = group.app(node).store._member
    honest, present = member.piece, dict(member.node.peers)

    async def nothing_and_the_next_one_leaves(asked: str, offset: int, size: int) -> bytes:
        if asked != member.others()[0]:
            return await honest(asked, offset, size)
        del member.node.peers[member.others()[1]]
        raise NotSent(asked, "it does not answer")

    member.piece = nothing_and_the_next_one_leaves
    world.run_until(lambda: "damaged record not repaired, retrying" in caplog.text, 30_000)
    assert node.failure is None
    member.piece = honest
    member.node.peers.update(present)
    world.run_until(lambda: ledger_files(node)[path] == was, 30_000)


@pytest.mark.parametrize("longer_from", [0, 1])
def test_a_peer_that_returns_too_many_bytes_is_ignored_and_stops_no_member(
    world: World, caplog: pytest.LogCaptureFixture, longer_from: int
) -> None:
    """A record of the old log contains its own length: a longer one would overwrite the next record."""
    group = moved(world, messages("before", 250), **SCRUB)
    group.start_all()
    group.wait_for_master()
    node = group.slaves[0]
    kept = old_files(node)
    first = min(kept)
    store = group.app(node).store
    at = kept[first].index(b"xxxxxxxx", 5_000)
    begin = kept[first].rindex(MAGIC, 0, at) - 4
    behind = begin + int.from_bytes(kept[first][begin : begin + 4], "big")
    honest = store._member.piece
    asked = 0

    async def longer(member: str, offset: int, size: int) -> bytes:
        nonlocal asked
        found = await honest(member, offset, size)
        if offset == 0 and size == 0:
            return found
        asked += 1
        return found if asked <= longer_from else found + kept[first][offset + size : behind + 600]

    store._member.piece = longer
    node.disk.flip_bit(first, at, 1)
    store.integrity.begin_again(store.segment_size_bytes * len(kept))
    world.run_until(lambda: node.failure or "damaged record not repaired, retrying" in caplog.text, 30_000)
    assert node.failure is None
    store._member.piece = honest
    world.run_until(lambda: old_files(node) == kept, 30_000)


def test_corrupt_entries_are_repaired_on_a_full_disk(world: World) -> None:
    group = GroupSet(world, **SMALL)
    node, path, was = one_corrupt(group)
    node.disk.capacity_bytes = node.disk.used_bytes()
    world.run_until(lambda: node.disk.durable_part(path, 0, len(was)) == was, 30_000)
    assert node.running


def test_an_entry_corrupt_on_two_disks_is_fetched_from_the_third_under_the_next_leader(world: World) -> None:
    """The body on one disk, the check value on the disk of the leader, which dies during the repair."""
    group = GroupSet(world, **SMALL)
    node, path, was = one_corrupt(group)
    master, place = group.master, entries_of(was, 0)[4][0]
    theirs = one_path(master, path)
    theirs_was = ledger_files(master)[theirs]
    master.disk.flip_bit(theirs, place + 37, 3)
    store = group.app(master).store
    store.integrity.begin_again(store.segment_size_bytes)
    world.run_until(lambda: not is_intact(group, node) and not is_intact(group, master), 10_000)
    master.kill()
    world.run_until(lambda: ledger_files(node)[path] == was, 30_000)
    group.start(master)
    world.run_until(lambda: ledger_files(master)[theirs] == theirs_was, 60_000)
