"""A member's files: Java's bytes, recovery, cuts, and damage that must not count as a torn tail."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.errors import LogDamaged, LogOfAnother, MembersChanged
from dledger.storage.entry import CHECK_START, decode_entry, encode_index_unit
from dledger.storage.entrylog import read_entries
from dledger.storage.keyvalues import BadKeyValues
from dledger.storage.store import Store
from tests.unit.dledger.smallstore import SETTINGS, entries, step, store

VECTORS = Path(__file__).parents[2] / "vectors" / "dledger"
DATA = "n/data/00000000000000000000"


@dataclass
class Found:
    """The state that opening a store found, with its entries read from the disk."""

    vote: Vote
    entries: list[Entry]
    committed_index: int


async def read_all(opened: Store) -> list[Entry]:
    assert opened.log is not None
    found: list[Entry] = []
    while len(found) <= opened.log.end_index:
        found += await read_entries(opened.log, len(found), 7, 2000)
    return found


def lives(root: Path, *batches: PersistThenSend, committed: int = -1, clean: bool = False) -> Found:
    """Open the store, persist each batch, end as a kill or cleanly; return what opening found."""

    async def live() -> Found:
        opened = store(root)
        recovered = await opened.open()
        entries = await read_all(opened)
        assert [recovered.log.term_at(entry.index) for entry in entries] == [entry.term for entry in entries]
        assert recovered.log.last_index == len(entries) - 1
        for batch in batches:
            await opened.persist([batch])
        if committed >= 0:
            await opened.save_checkpoint(committed)
        if clean:
            await opened.close(committed)
        return Found(recovered.vote, entries, recovered.committed_index)

    return asyncio.run(live())


def patch(root: Path, offset: int, data: bytes, name: str = DATA) -> None:
    with (root / name).open("r+b") as file:
        file.seek(offset)
        file.write(data)


def position_of(root: Path, index: int) -> int:
    data = (root / DATA).read_bytes()
    return data.index(f"body {index} of".encode()) - 48


def java_store(root: Path) -> None:
    for folder, size in (("data", SETTINGS.data_file_bytes), ("index", SETTINGS.index_file_bytes)):
        content = (VECTORS / f"{folder}-00000000000000000000").read_bytes()
        (root / "n" / folder).mkdir(parents=True)
        (root / "n" / folder / "00000000000000000000").write_bytes(content.ljust(size, b"\0"))
    for name in ("currterm", "checkpoint"):
        (root / "n" / name).write_bytes((VECTORS / name).read_bytes())


def test_a_store_of_the_java_controller_is_read_entry_by_entry(tmp_path: Path) -> None:
    java_store(tmp_path)
    found = lives(tmp_path)
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in (VECTORS / "entries.jsonl").read_text().splitlines()
    ]
    assert [(entry.index, entry.term, len(entry.body)) for entry in found.entries] == [
        (row["index"], row["term"], row["bodySize"]) for row in rows
    ]
    assert [entry.body[2:].decode() for entry in found.entries if entry.body] == [
        row["json"] for row in rows if "json" in row
    ]
    assert (found.vote, found.committed_index) == (Vote(2, "n2"), 27)


def test_a_store_of_the_java_controller_is_continued(tmp_path: Path) -> None:
    java_store(tmp_path)
    before = (tmp_path / DATA).read_bytes()
    lives(tmp_path, step(*entries(28, 3, term=3)), clean=True)
    assert (tmp_path / DATA).read_bytes()[:4601] == before[:4601]
    assert lives(tmp_path).entries[27:] == [lives(tmp_path).entries[27], *entries(28, 3, term=3)]


def test_index_units_have_the_bytes_of_java(tmp_path: Path) -> None:
    units = (VECTORS / "index-00000000000000000000").read_bytes()
    java_store(tmp_path)
    rows = [json.loads(line) for line in (VECTORS / "entries.jsonl").read_text().splitlines()]
    found = lives(tmp_path).entries
    assert (
        b"".join(encode_index_unit(entry, row["pos"]) for entry, row in zip(found, rows, strict=True))
        == units
    )
    (tmp_path / "n/index/00000000000000000000").unlink()
    lives(tmp_path, clean=True)
    assert (tmp_path / "n/index/00000000000000000000").read_bytes()[: len(units)] == units


def test_an_entry_has_these_bytes(tmp_path: Path) -> None:
    lives(tmp_path, step(Entry(0, 5, b"body-0"), vote=Vote(5)))
    data = (tmp_path / DATA).read_bytes()
    assert data[:36].hex() == "0000000100000036000000000000000000000000000000050000000000000000" + "00000000"
    assert data[40:54].hex() == "0000000000000006" + b"body-0".hex()
    stored = decode_entry(memoryview(data), 0, 0)
    assert stored is not None and stored.check == int.from_bytes(data[36:40], "big") != 0


def test_entries_over_several_files_are_found_after_a_restart(tmp_path: Path) -> None:
    bodies = [
        Entry(index, 1 + index // 30, bytes([index % 251]) * (index * 13 % 1000)) for index in range(90)
    ]
    lives(tmp_path, step(*bodies[:40], vote=Vote(1, "n")), step(*bodies[40:]), committed=80)
    found = lives(tmp_path)
    assert found == Found(Vote(1, "n"), bodies, 80)
    assert len(list((tmp_path / "n/data").iterdir())) > 4
    assert lives(tmp_path, clean=True).entries == bodies


def test_a_cut_and_the_entries_that_replace_it_survive_a_restart(tmp_path: Path) -> None:
    old = entries(0, 200)
    lives(tmp_path, step(*old, vote=Vote(1)))
    lives(tmp_path, step(*entries(50, 2, term=2), cut=50))
    assert lives(tmp_path).entries == [*old[:50], *entries(50, 2, term=2)]
    assert len(list((tmp_path / "n/data").iterdir())) == 1
    assert b"body 53 of term 1" not in (tmp_path / DATA).read_bytes()


def test_entries_of_an_announced_cut_do_not_come_back(tmp_path: Path) -> None:
    lives(tmp_path, step(*entries(0, 9), vote=Vote(1)))
    (tmp_path / "n/checkpoint").write_text("endIndex=4\ncommittedIndex=2\ncutFrom=5\n")
    patch(tmp_path, position_of(tmp_path, 6), b"\0" * 60)
    assert lives(tmp_path).entries == entries(0, 5)
    assert lives(tmp_path).entries == entries(0, 5)
    assert "cutFrom" not in (tmp_path / "n/checkpoint").read_text()


@pytest.mark.parametrize("torn", [6, 7, 8])
def test_a_torn_tail_of_the_last_sync_is_discarded(tmp_path: Path, torn: int) -> None:
    lives(tmp_path, step(*entries(0, 6), vote=Vote(1)), step(*entries(6, 3)))
    patch(tmp_path, position_of(tmp_path, torn) + 50, b"\0")
    assert lives(tmp_path).entries == entries(0, torn)
    lives(tmp_path, step(*entries(torn, 1, term=2)))
    assert lives(tmp_path).entries == [*entries(0, torn), *entries(torn, 1, term=2)]


def test_damage_before_a_later_sync_is_refused(tmp_path: Path) -> None:
    lives(tmp_path, step(*entries(0, 6), vote=Vote(1)), step(*entries(6, 3)))
    patch(tmp_path, position_of(tmp_path, 3) + 50, b"\0")
    with pytest.raises(LogDamaged, match="entry 3 is unreadable, but entry 6"):
        lives(tmp_path)


def test_damage_below_the_committed_index_is_refused(tmp_path: Path) -> None:
    lives(tmp_path, step(*entries(0, 6), vote=Vote(1)), committed=4)
    patch(tmp_path, position_of(tmp_path, 4) + 50, b"\0")
    with pytest.raises(LogDamaged, match="entries up to 4 are committed"):
        lives(tmp_path)


def vouched(root: Path, *later: PersistThenSend) -> None:
    """Persist entries 0 to 99 of terms 1 to 4, committed up to 49, with a checkpoint of all; then `later`,
    and a kill."""

    async def live() -> None:
        opened = store(root)
        await opened.open()
        for term in range(1, 5):
            first = 25 * (term - 1)
            await opened.persist([step(*entries(first, 25, term), vote=Vote(term))])
        await opened.sync_index()
        await opened.save_checkpoint(49)
        for each in later:
            await opened.persist([each])

    asyncio.run(live())


def recovered_from(root: Path) -> int:
    """The first entry that a start reads into memory."""

    async def live() -> int:
        return (await store(root).open()).log.recent_from

    return asyncio.run(live())


def test_a_start_reads_only_entries_after_the_checkpoint(tmp_path: Path) -> None:
    vouched(tmp_path, step(*entries(100, 3, 4)))
    assert b"syncedIndex=99\n" in (tmp_path / "n/checkpoint").read_bytes()
    assert recovered_from(tmp_path) == 99
    found = lives(tmp_path, clean=True)
    assert [entry.term for entry in found.entries] == [1 + min(index, 99) // 25 for index in range(103)]
    assert recovered_from(tmp_path) == 102


@pytest.mark.parametrize("what", ["index", "unit", "checkpoint"])
def test_a_start_without_checkpoint_or_index_reads_the_whole_log(tmp_path: Path, what: str) -> None:
    vouched(tmp_path)
    if what == "index":
        for path in (tmp_path / "n/index").iterdir():
            path.unlink()
    elif what == "unit":
        patch(tmp_path, 3 * 32 + 7, b"\x01", "n/index/00000000000000003072")
    else:  # as Java writes it
        (tmp_path / "n/checkpoint").write_text("endIndex=99\ncommittedIndex=49\n")
    assert recovered_from(tmp_path) == 0
    assert len(lives(tmp_path).entries) == 100


def test_damage_below_the_checkpoint_is_reported_when_it_is_read(tmp_path: Path) -> None:
    vouched(tmp_path)
    patch(tmp_path, position_of(tmp_path, 30) + 50, b"\0")
    assert recovered_from(tmp_path) == 99
    with pytest.raises(LogDamaged, match="entry 30, which was durable, .* remove its folder index"):
        lives(tmp_path)


def test_a_log_that_ends_below_its_checkpoint_is_rejected(tmp_path: Path) -> None:
    vouched(tmp_path)
    patch(tmp_path, position_of(tmp_path, 99) + 50, b"\0")
    with pytest.raises(LogDamaged, match="ends before entry 99, but entries up to 99 are durable"):
        lives(tmp_path)


def test_a_cut_lowers_the_synced_index_of_the_checkpoint(tmp_path: Path) -> None:
    vouched(tmp_path, step(*entries(80, 2, 5), vote=Vote(5), cut=80))
    assert b"syncedIndex=79\n" in (tmp_path / "n/checkpoint").read_bytes()
    assert [entry.term for entry in lives(tmp_path).entries[75:]] == [4] * 5 + [5] * 2


def test_a_read_interrupted_by_a_cut_returns_nothing(tmp_path: Path) -> None:
    vouched(tmp_path)

    async def live() -> None:
        opened = store(tmp_path)
        await opened.open()
        assert opened.log is not None
        reading = asyncio.create_task(read_entries(opened.log, 60, 30, 1 << 20))
        await asyncio.sleep(0)
        await opened.log.cut(70)
        assert await reading == []
        assert [entry.index for entry in await read_entries(opened.log, 60, 30, 1 << 20)] == list(
            range(60, 70)
        )

    asyncio.run(live())


@pytest.mark.parametrize(
    ("entries_max", "bytes_max", "count"), [(3, 1 << 20, 3), (9, 1, 1), (9, 40, 2), (500, 1 << 20, 95)]
)
def test_a_read_keeps_its_limits_and_ends_with_the_data_file(
    tmp_path: Path, entries_max: int, bytes_max: int, count: int
) -> None:
    vouched(tmp_path, step(*entries(100, 100, 4)))

    async def live() -> None:
        opened = store(tmp_path)
        await opened.open()
        assert opened.log is not None
        found = await read_entries(opened.log, 30, entries_max, bytes_max)
        assert found == [*entries(30, 20, 2), *entries(50, 25, 3), *entries(75, 125, 4)][:count]

    asyncio.run(live())


def test_a_log_without_its_term_file_is_refused(tmp_path: Path) -> None:
    lives(tmp_path, step(*entries(0, 1), vote=Vote(1)))
    (tmp_path / "n/currterm").unlink()
    with pytest.raises(LogDamaged, match="currterm: is missing although there is a log"):
        lives(tmp_path)


def test_a_missing_or_resized_data_file_is_refused(tmp_path: Path) -> None:
    lives(tmp_path, step(*entries(0, 300), vote=Vote(1)))
    (tmp_path / "n/data/00000000000000008192").unlink()
    with pytest.raises(LogDamaged, match="00000000000000008192 with 8192 bytes should be here"):
        lives(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "currTerm=\n",
        "currTerm=-1\n",
        "currTerm=1_0\n",
        "currTerm=9223372036854775808\n",
        "currTerm=٣\n",
        "x\n",
        "\0\0\0",
    ],
)
def test_a_term_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "n").mkdir()
    (tmp_path / "n/currterm").write_text(text)
    with pytest.raises(BadKeyValues, match="n/currterm"):
        lives(tmp_path)


def test_entries_of_a_failed_sync_are_not_trusted(tmp_path: Path) -> None:
    async def live() -> None:
        opened = store(tmp_path)
        await opened.open()
        await opened.persist([step(*entries(0, 3), vote=Vote(1))])
        assert opened.log is not None

        async def fails(start: int, end: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        opened.log.data.files[0].sync = fails  # type: ignore[method-assign]
        with pytest.raises(OSError, match="Input/output error"):
            await opened.persist([step(*entries(3, 2))])
        await opened.close(2)

    asyncio.run(live())
    assert lives(tmp_path).entries == entries(0, 3)


def test_an_old_entry_behind_the_end_is_not_read_as_the_next_one(tmp_path: Path) -> None:
    lives(tmp_path, step(*entries(0, 9), vote=Vote(1)))
    old = (tmp_path / DATA).read_bytes()
    lives(tmp_path, step(*entries(4, 1, term=2), cut=4))
    after = position_of(tmp_path, 4) + 48 + len(entries(4, 1)[0].body)
    patch(tmp_path, after, old[after : after + 400])
    assert lives(tmp_path).entries == [*entries(0, 4), *entries(4, 1, term=2)]


def test_a_folder_with_another_members_log_is_refused(tmp_path: Path) -> None:
    """It would start there without its votes; two exchanged disks are two emptied members."""
    lives(tmp_path, step(*entries(0, 1), vote=Vote(1)))
    (tmp_path / "n").rename(tmp_path / "dledger-n1")
    with pytest.raises(LogOfAnother, match="dledger-n1, which is another member's, and no n; mount"):
        lives(tmp_path)
    assert not (tmp_path / "n").exists()
    (tmp_path / "dledger-n1").rename(tmp_path / "n")
    (tmp_path / "dledger-n2").mkdir()
    assert lives(tmp_path).entries == entries(0, 1)


def test_the_newcomer_flag_and_the_members_are_stored_with_the_term(tmp_path: Path) -> None:
    assert lives(tmp_path, step(vote=Vote(3, None, newcomer=True))).vote == Vote(newcomer=True)
    assert (tmp_path / "n/currterm").read_bytes() == b"voteLeader=\ncurrTerm=3\nmembers=m,n\nnewcomer=true\n"
    assert lives(tmp_path, step(vote=Vote(3, "m"))).vote == Vote(3, None, newcomer=True)
    assert (tmp_path / "n/currterm").read_bytes() == b"voteLeader=m\ncurrTerm=3\nmembers=m,n\n"
    assert lives(tmp_path).vote == Vote(3, "m")


def test_a_member_of_another_list_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    (tmp_path / "n/currterm").write_bytes(b"voteLeader=\ncurrTerm=3\nmembers=l,m,n\n")
    with pytest.raises(
        MembersChanged,
        match="n/currterm: this member voted as one of l,m,n, and .* names m,n; correct",
    ):
        lives(tmp_path)


def test_an_implausibly_high_term_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    (tmp_path / "n/currterm").write_bytes(b"voteLeader=\ncurrTerm=%d\n" % ((1 << 62) - 1))
    with pytest.raises(BadKeyValues, match="no election reaches"):
        lives(tmp_path)


def test_entries_after_a_cut_have_the_positions_of_a_log_that_was_never_cut(tmp_path: Path) -> None:
    """Also when the first cut entry began a file: the blank before it is removed too."""

    def body(index: int, term: int, size: int) -> Entry:
        return Entry(index, term, b"x" * size)

    before = [body(index, 1, 1000) for index in range(7)]
    behind = [body(7, 2, 20), body(8, 2, 1000)]
    too_large = body(7, 1, 1000)  # does not fit into the first file any more
    lives(tmp_path / "cut", step(*before, vote=Vote(2, None)), step(too_large), step(*behind, cut=7))
    lives(tmp_path / "never", step(*before, vote=Vote(2, None)), step(*behind))
    for folder in ("cut", "never"):
        assert lives(tmp_path / folder).entries == [*before, *behind]
    names = [DATA, DATA.replace("0" * 20, f"{8192:020d}")]
    contents = [[(tmp_path / folder / name).read_bytes() for name in names] for folder in ("cut", "never")]
    assert without_checks(contents[0]) == without_checks(contents[1])


def without_checks(files: list[bytes]) -> list[tuple[int, int]]:
    """The number of entries of 1000 bytes in each file, and the position of the entry of 20."""
    return [(file.count(b"x" * 1000), file.rfind(b"x" * 20)) for file in files]


def cut_over(root: Path, index: int, at: int, *, synced_apart: bool = True) -> LogDamaged | None:
    """Corrupt a bit of the header of `index` in a live log of entries 0 to 5, cut at 4, and return the
    error."""

    async def play() -> LogDamaged | None:
        member = store(root)
        await member.open()
        await member.persist([step(*entries(0, 2), vote=Vote(1, "n"))])
        for part in (entries(2, 2), entries(4, 2)) if synced_apart else (entries(2, 4),):
            await member.persist([step(*part)])
        assert member.log is not None
        member.log.data.rest_of_file(position_of(root, index))[at] ^= 4
        try:
            await member.persist([step(*entries(4, 3, term=2), cut=4)])
        except LogDamaged as error:
            assert member.log.end_index == 5, "nothing was cut"
            return error
        finally:
            member.log.close()
        return None

    return asyncio.run(play())


@pytest.mark.parametrize("at", [0, 5, 13, 20, 27, 44])
def test_a_cut_after_a_corrupted_header_uses_the_checksum_of_the_next_entry(tmp_path: Path, at: int) -> None:
    assert cut_over(tmp_path, 3, at) is None
    patch(tmp_path, position_of(tmp_path, 3), header_of_three(tmp_path, at))
    assert lives(tmp_path).entries == [*entries(0, 4), *entries(4, 3, term=2)], (
        "new entries are chained to the old ones"
    )


def header_of_three(root: Path, at: int) -> bytes:
    position = position_of(root, 3)
    header = bytearray((root / DATA).read_bytes()[position : position + 48])
    header[at] ^= 4
    return bytes(header)


@pytest.mark.parametrize("synced_apart", [True, False])
def test_a_cut_without_a_valid_checksum_to_continue_from_changes_nothing(
    tmp_path: Path, synced_apart: bool
) -> None:
    """An entry that was synced with the cut ones looks torn, and other members may have counted it."""
    error = cut_over(tmp_path, 3, CHECK_START, synced_apart=synced_apart)
    where = f"offset {position_of(tmp_path, 3)} of n/data/00000000000000000000"
    assert error is not None and where in str(error) and "start it empty" in str(error)

    async def end_found() -> int:
        again = store(tmp_path)
        found = await again.open()
        assert again.log is not None
        again.log.close()
        return found.log.last_index

    assert asyncio.run(end_found()) == 5


def test_an_announced_cut_does_not_hide_damage_below_it(tmp_path: Path) -> None:
    lives(tmp_path, step(*entries(0, 2), vote=Vote(1, "n")), step(*entries(2, 2)), step(*entries(4, 2)))
    (tmp_path / "n" / "checkpoint").write_text("endIndex=4\ncommittedIndex=-1\ncutFrom=5\n")
    patch(tmp_path, position_of(tmp_path, 2) + 50, b"!")
    with pytest.raises(
        LogDamaged, match="entry 2 is unreadable, but entry 4, written later, is intact: offset"
    ):
        lives(tmp_path)
