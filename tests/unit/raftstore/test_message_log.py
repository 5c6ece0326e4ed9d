"""The messages in a Raft-mode broker's log, one by one, and the report about a damaged log."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger.raft.membership import Members, encode_members
from dledger.raft.snapshot import Begin
from dledger.storage.snapshot import encode_snapshot, snapshot_at
from messagestore.record import decode, encode
from messagestore.walker import SegmentWalk, Stop
from mqruntime.slices import run_without_loop
from raftstore.cli import raftstore
from raftstore.folder import read_log
from raftstore.framing import PlacedMessage, facts_of, moved
from raftstore.placing import stretches
from tests.unit.raftstore.raftstores import (
    FILE_BYTES,
    StoreOfMessages,
    bodies_filled,
    lay_out,
    message,
    messages_in,
)

RAFT_BODIES = [
    *(f"first {number} ".encode().ljust(200, b".") for number in range(3)),
    *bodies_filled([f"m{number}" for number in range(20)]),
    *bodies_filled([f"x{number}" for number in range(20)]),
]
OLD_BODIES = [b"old 0 ".ljust(200, b"."), *bodies_filled([f"o{number}" for number in range(40)])]


def test_every_message_of_a_java_store_is_read(tmp_path: Path) -> None:
    for name, bodies in ("killed", RAFT_BODIES), ("mixed", OLD_BODIES + RAFT_BODIES):
        found, damage = messages_in(lay_out(name, tmp_path / name))
        assert damage == ""
        records = [decode(each.content) for each in found]
        assert [record.body for record in records] == bodies
        assert [record.physical_offset for record in records] == [each.offset for each in found]


def test_messages_of_a_java_store_have_upstreams_offsets(tmp_path: Path) -> None:
    found, _ = messages_in(lay_out("mixed", tmp_path))
    assert [each.offset for each in found[:2]] == [0, 411]
    divided = [each.offset for each in found if each.offset >= 3 * FILE_BYTES]
    assert divided[0] == 3 * FILE_BYTES + 48
    assert divided[1] - divided[0] == len(found[-len(divided)].content) + 48
    assert any(offset % FILE_BYTES == 48 for offset in divided[1:])  # after a blank


def test_a_message_follows_the_header_of_its_entry() -> None:
    record = message(7, b"body", 2)
    record.physical_offset = 348
    content = encode(record)
    facts = facts_of(content, 300)
    assert facts is not None and (facts.topic, facts.queue_offset, facts.size) == (b"Orders", 2, len(content))
    assert facts_of(content, 299) is None
    assert facts_of(content + b"\0", 300) is None
    assert decode(moved(content, facts, 11)).physical_offset == 11
    assert moved(content, facts, 348) == content


def test_a_moved_record_gets_the_crc_of_its_new_offset(tmp_path: Path) -> None:
    store = StoreOfMessages(tmp_path)
    store.add(message(0, b"sealed", 0), sealed=True)
    ((offset, content, facts),), damage = messages_in(store.write())
    assert (offset, damage) == (48, "")
    there = moved(content, facts, 4048)
    assert facts_of(there, 4000) is not None
    assert facts_of(content[:28] + there[28:36] + content[36:], 4000) is None  # the old CRC at the new offset


def test_a_log_shortened_by_retention_begins_with_its_first_file(tmp_path: Path) -> None:
    store = StoreOfMessages(tmp_path, begin=4096, first_index=70)
    for number in range(3):
        store.add(message(number, b"kept", 500 + number))
    found, damage = messages_in(store.write())
    assert damage == ""
    assert [each.facts.queue_offset for each in found] == [500, 501, 502]
    assert found[0].offset == 4144


def three(root: Path) -> StoreOfMessages:
    store = StoreOfMessages(root)
    for number in range(3):
        store.add(message(number, b"body", number))
    return store


def test_a_gap_in_queue_offsets_is_damage(tmp_path: Path) -> None:
    store = three(tmp_path)
    store.add(message(3, b"late", 4))
    found, damage = messages_in(store.write())
    assert len(found) == 3
    assert damage == (
        "dledger-n0/data/00000000000000000000: entry 3 at byte 459 has queue offset 4 of Orders/0, where 3 is due"
    )


def test_a_queue_of_a_complete_log_begins_at_0(tmp_path: Path) -> None:
    store = StoreOfMessages(tmp_path)
    store.add(message(0, b"late", 4))
    assert "where 0 is due" in messages_in(store.write())[1]


def test_an_unknown_entry_is_damage_and_a_no_op_is_not(tmp_path: Path) -> None:
    store = three(tmp_path)
    store.add_body(b"")
    store.add_body(encode_members(Members({"n0": "127.0.0.1:1"})))
    assert messages_in(store.write())[1] == ""
    store.add_body(b"\0\1{}")
    found, damage = messages_in(store.write())
    assert len(found) == 3
    assert "entry 5 at byte" in damage and "is no message that is whole" in damage


def test_a_flipped_bit_in_a_body_is_damage_of_its_entry(tmp_path: Path) -> None:
    root = three(tmp_path).write()
    file = root / "dledger-n0/data/00000000000000000000"
    data = bytearray(file.read_bytes())
    second = data.index(b"body", data.index(b"body") + 1)
    data[second] ^= 1
    file.write_bytes(data)
    found, damage = messages_in(root)
    assert len(found) == 1
    assert "entry 1 at byte 153 is no message that is whole" in damage


def test_a_missing_committed_entry_is_damage(tmp_path: Path) -> None:
    root = three(tmp_path).write()
    (root / "dledger-n0/checkpoint").write_text("committedIndex=3\nendIndex=3\n")
    assert "ends before entry 3" in messages_in(root)[1]


@pytest.mark.parametrize("lost_bytes", [10, 80, 120])
@pytest.mark.parametrize("committed", [1, 2])
def test_a_torn_end_is_damage_only_if_it_was_committed(
    tmp_path: Path, committed: int, lost_bytes: int
) -> None:
    """The header may be complete, partial, or missing."""
    store = three(tmp_path)
    root = store.write()
    file = root / "dledger-n0/data/00000000000000000000"
    file.write_bytes(file.read_bytes()[: store.end - lost_bytes].ljust(2048, b"\0"))
    (root / "dledger-n0/checkpoint").write_text(f"committedIndex={committed}\nendIndex=2\n")
    log = read_log(root)
    assert len(list(log.messages())) == 2
    assert (log.census.damage == "") == (committed == 1)
    assert log.census.found.last_index == 1 or committed == 2
    if committed == 1:
        assert log.census.found.tail


def test_entries_cut_by_a_later_leader_are_not_part_of_the_log(tmp_path: Path) -> None:
    """Java leaves the bytes of cut entries: an entry of an older term follows one of a newer term."""
    store = three(tmp_path)
    store.add(message(3, b"newer", 3), term=5)
    store.add(message(4, b"older", 4), term=4)
    store.write()
    (tmp_path / "dledger-n0/checkpoint").write_text("committedIndex=3\nendIndex=3\n")
    log = read_log(tmp_path)
    assert len(list(log.messages())) == 4
    assert (log.census.damage, log.census.found.last_term) == ("", 5)
    assert "entry 4 of term 4" in log.census.found.tail and "cut by a leader" in log.census.found.tail


@pytest.mark.parametrize("lost", ["00000000000000000000", "00000000000000016384", "00000000000000032768"])
def test_a_gap_in_the_old_log_is_damage_except_at_its_start(tmp_path: Path, lost: str) -> None:
    root = lay_out("mixed", tmp_path)
    (root / "commitlog" / lost).unlink()
    found, damage = messages_in(root)
    if lost == "00000000000000000000":
        assert damage == "" and found[0].offset == 16_384
    else:
        assert damage.startswith("commitlog")


def test_a_store_with_only_a_plain_log_is_not_read_as_empty(tmp_path: Path) -> None:
    root = lay_out("mixed", tmp_path)
    shutil.rmtree(root / "dledger-n0/data")
    (root / "dledger-n0/checkpoint").unlink()
    found, damage = messages_in(root)
    assert not found and "nothing was stored in Raft mode yet" in damage


def test_a_controllers_store_is_not_read_as_a_broker_store(tmp_path: Path) -> None:
    store = three(tmp_path)
    (store.write() / "dledger-n0/snapshot").write_bytes(b"x")
    assert "no store of a Raft-mode broker" in messages_in(tmp_path)[1]


def test_inspect_shows_members_and_the_longest_log(tmp_path: Path) -> None:
    stores = [three(tmp_path / "n0"), three(tmp_path / "n1")]
    stores[1].add(message(3, b"more", 3))
    roots = [str(store.write()) for store in stores]
    said = CliRunner().invoke(raftstore, ["inspect", *roots])
    assert said.exit_code == 0
    assert "messages 3 in 1 queues, from 0 on, stored 2023-11-14 22:13:20+00:00 to" in said.output
    assert "most is held by dledger-n0: up to entry 3 of term 3" in said.output
    (tmp_path / "n0/dledger-n0/currterm").unlink()
    said = CliRunner().invoke(raftstore, ["inspect", *roots])
    assert said.exit_code == 1 and "DAMAGED  currterm" in said.output


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=40),
    file_bytes=st.integers(1000, 4000),
    files_before=st.integers(0, 3),
)
def test_a_commit_log_made_of_any_raft_log_has_the_same_messages(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], file_bytes: int, files_before: int
) -> None:
    begin = files_before * file_bytes
    store = StoreOfMessages(tmp_path_factory.mktemp("store"), file_bytes, begin, 5 * files_before)
    for number, size in enumerate(sizes):
        store.add(message(number, b"b" * size, number))
    found, damage = messages_in(store.write())
    assert (len(found), damage) == (len(sizes), "")
    pieces = list(stretches(found, file_bytes, begin))
    made = b"".join(pieces)
    end = begin + len(made)
    walked: list[PlacedMessage] = []
    for start in range(begin, end, file_bytes):
        segment = made[start - begin :][:file_bytes].ljust(file_bytes, b"\0")
        steps = SegmentWalk(segment, start, start, end)
        for offset, size in steps:
            content = segment[offset - start :][:size]
            facts = facts_of(content, offset - 48)
            assert facts is not None
            walked.append(PlacedMessage(offset, content, facts))
        assert steps.stop in (Stop.END_OF_SEGMENT, Stop.LIMIT)
    assert [each.facts for each in walked] == [each.facts for each in found]
    assert [decode(each.content).body for each in walked] == [decode(each.content).body for each in found]


def test_a_log_is_read_from_the_start_in_its_snapshot(tmp_path: Path) -> None:
    """A log written by this product: retention deleted its start, and a crash left one file too many."""
    store = StoreOfMessages(tmp_path, begin=4096, first_index=9)
    for number in range(20):
        store.add(message(number, b"x" * 300, 30 + number))
    folder = store.write() / "dledger-n0"
    log = read_log(tmp_path)
    begins = {each.offset - 48 for each in log.messages() if each.offset % 2048 == 48}
    assert len(begins) > 3
    second = min(begins - {4096})
    index = 9 + sum(1 for each in read_log(tmp_path).messages() if each.offset < second)
    place = snapshot_at(Begin(index - 1, 3, second, 0), ())
    (folder / "snapshot").write_bytes(run_without_loop(encode_snapshot(place)))
    log = read_log(tmp_path)
    offsets = [each.offset for each in log.messages()]
    assert (log.census.found.damage, log.census.found.first_index) == ("", index)
    assert offsets[0] == second + 48 and len(offsets) == 20 - (index - 9)
    (folder / "snapshot").write_bytes(run_without_loop(encode_snapshot(replace(place, replaces_files=True))))
    assert list(read_log(tmp_path).messages()) == []
