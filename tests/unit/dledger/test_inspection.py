"""Read-only inspection of a member's files: intact, torn and damaged ones of a Java controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.cli import dledger
from dledger.raft.actions import PersistThenSend, Vote
from dledger.raft.entries import Entry
from dledger.raft.errors import LogDamaged
from dledger.raft.settings import DLedgerSettings
from dledger.storage.entry import ENTRY_HEADER, INDEX_UNIT
from dledger.storage.inspection import Inspection, differences, inspect
from dledger.storage.keyvalues import BadKeyValues
from dledger.storage.memberfolder import NoMember, read_folder
from dledger.storage.store import Store
from mqruntime.segments import RealSegmentDirectory
from mqruntime.slices import whole
from mqruntime.smallfiles import RealSmallFiles

VECTORS = Path(__file__).parents[2] / "vectors" / "dledger"
ROWS = [json.loads(line) for line in (VECTORS / "entries.jsonl").read_text().splitlines()]
NAME = "dledger-n0"
FIRST = "00000000000000000000"
DATA_BYTES, INDEX_BYTES = 8192, 2048
SETTINGS = DLedgerSettings(data_file_bytes=DATA_BYTES, index_file_bytes=1024, entry_bytes_max=1024)
END = 4601
COMMITTED = 27


class JavaStore:
    """A copy of the store of a killed Java controller: entries 0 to 27 of terms 1 and 2, all committed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / NAME
        self.data = self.folder / "data" / FIRST
        self.index = self.folder / "index" / FIRST
        for file, size in ((self.data, DATA_BYTES), (self.index, INDEX_BYTES)):
            file.parent.mkdir(parents=True)
            content = (VECTORS / f"{file.parent.name}-{FIRST}").read_bytes()
            file.write_bytes(content.ljust(size, b"\0"))
        for name in ("currterm", "checkpoint"):
            (self.folder / name).write_bytes((VECTORS / name).read_bytes())

    def put(self, at: int, data: bytes, file: Path | None = None) -> None:
        with (file or self.data).open("r+b") as opened:
            opened.seek(at)
            opened.write(data)

    def knew_decided(self, index: int) -> None:
        (self.folder / "checkpoint").write_text(f"committedIndex={index}\nendIndex={index}\n")

    def found(self) -> Inspection:
        before = self.contents()
        found = whole(inspect(read_folder(self.folder)))
        assert self.contents() == before
        return found

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def opened(self) -> int:
        """The last index that the store itself recovers."""

        async def last() -> int:
            store = Store(
                RealSmallFiles(self.root), RealSegmentDirectory(self.root), NAME, SETTINGS, ["n0", "n1", "n2"]
            )
            return (await store.open()).log.last_index

        return asyncio.run(last())


@pytest.fixture
def java(tmp_path: Path) -> JavaStore:
    return JavaStore(tmp_path)


def java_entry(index: int, term: int, pos: int, body: bytes = b"") -> bytes:
    size = ENTRY_HEADER.size + len(body)
    return ENTRY_HEADER.pack(1, size, index, term, pos, 0, 0, 0, len(body)) + body


def test_an_intact_java_store_is_reported(java: JavaStore) -> None:
    found = java.found()
    assert (found.term, found.voted_for, found.committed_index) == (2, "n2", COMMITTED)
    assert (found.first_index, found.last_index, found.of_java, found.units) == (0, 27, 28, 28)
    assert found.terms == [(0, 1), (23, 2)]
    assert (found.tail, found.damage) == ("", "")
    found.refuse()


@pytest.mark.parametrize("row", ROWS[:-1], ids=lambda row: str(row["index"]))
@pytest.mark.parametrize("field", [0, 4, 8, 24, 36, 44])
def test_a_damaged_header_is_reported_with_index_and_position(
    java: JavaStore, row: dict[str, int], field: int
) -> None:
    """Also when it was not known to be committed: a later intact entry shows that it existed."""
    java.knew_decided(-1)
    at = row["pos"] + field + 3
    java.put(at, bytes([java.data.read_bytes()[at] ^ 0x55]))
    found = java.found()
    assert found.place == f"data/{FIRST}" and found.damage.startswith(
        f"entry {row['index']} at byte {row['pos']} is unreadable, but entry "
    )
    with pytest.raises(LogDamaged, match=f"^{NAME}/data/{FIRST}: entry {row['index']} at byte"):
        found.refuse()


@pytest.mark.parametrize("index", [0, 5, 26])
def test_a_damaged_header_is_reported_without_the_index_file(java: JavaStore, index: int) -> None:
    java.knew_decided(-1)
    java.index.unlink()
    java.put(ROWS[index]["pos"], b"\xff")
    assert java.found().damage.startswith(f"entry {index} at byte {ROWS[index]['pos']} is unreadable, but")


def test_a_missing_committed_end_is_reported(java: JavaStore) -> None:
    java.put(ROWS[-1]["pos"], bytes(ROWS[-1]["size"]))
    found = java.found()
    assert (
        found.damage == f"ends before entry 27 at byte {ROWS[27]['pos']}, but entries up to 27 are committed"
    )
    assert found.place == f"data/{FIRST}"
    assert found.tail == "entry 27 in the index alone: this machine went down before its data was written"
    java.knew_decided(26)
    assert java.found().damage == ""


@pytest.mark.parametrize("kept", [0, 5, 47])
def test_a_torn_tail_ends_the_log(java: JavaStore, kept: int) -> None:
    """The process was killed during an append, or the machine lost power."""
    java.put(END, java_entry(28, 2, END, b"a body")[:kept])
    assert java.found().tail == (f"a torn entry 28 at byte {END} of data/{FIRST}" if kept else "")
    assert java.found().damage == ""
    assert java.opened() == 27


def test_an_entry_without_an_index_unit_counts(java: JavaStore) -> None:
    java.put(END, java_entry(28, 2, END))
    java.put(27 * INDEX_UNIT.size, bytes(INDEX_UNIT.size), java.index)
    found = java.found()
    assert (found.last_index, found.units, found.damage) == (28, 27, "")
    assert java.opened() == 28


def test_entries_that_a_leader_cut_from_a_java_follower_are_no_damage(java: JavaStore) -> None:
    """It leaves the bytes: entries of the older term follow the newer one, intact and in place, and so do
    their units."""
    for number in range(3):
        at = END + 48 * number
        term = 3 if number == 0 else 2
        java.put(at, java_entry(28 + number, term, at))
        java.put((28 + number) * INDEX_UNIT.size, INDEX_UNIT.pack(1, at, 48, 28 + number, 2), java.index)
    found = java.found()
    assert (found.last_index, found.last_term, found.damage) == (28, 3, "")
    assert found.tail == f"entry 29 of term 2 at byte {END + 48} of data/{FIRST}, cut by a leader"
    assert java.opened() == 28


def test_a_file_that_is_missing_or_short_is_named(java: JavaStore) -> None:
    java.data.rename(java.data.with_name(f"{DATA_BYTES:020d}"))
    assert f"data/{DATA_BYTES:020d}" in java.found().place
    java.data.with_name(f"{DATA_BYTES:020d}").rename(java.data)
    (java.folder / "data" / f"{DATA_BYTES:020d}").write_bytes(bytes(100))
    assert java.found().damage.endswith("with 8192 bytes should be here, this file has 100")


def test_small_files_that_cannot_be_read_are_refused(java: JavaStore) -> None:
    (java.folder / "currterm").unlink()
    assert "could vote twice" in java.found().damage
    (java.folder / "currterm").write_bytes(b"\xff\xfe")
    with pytest.raises(BadKeyValues, match=f"{NAME}/currterm: it is not text"):
        java.found()


def test_entries_written_after_the_java_ones_are_reported_too(java: JavaStore) -> None:
    async def go_on() -> None:
        store = Store(
            RealSmallFiles(java.root), RealSegmentDirectory(java.root), NAME, SETTINGS, ["n0", "n1", "n2"]
        )
        await store.open()
        entries = [Entry(index, 5, b"ours") for index in range(28, 200)]
        await store.persist([PersistThenSend(Vote(5, "n0"), None, tuple(entries), ())])
        await store.close(190)

    index_bytes = java.index.stat().st_size
    asyncio.run(go_on())
    found = java.found()
    assert (found.last_index, found.of_java, found.units) == (199, 28, 200)
    assert (found.committed_index, found.synced_index, found.damage) == (190, 199, "")
    second = java.data.with_name(f"{DATA_BYTES:020d}")
    java.put(100, b"!", second)  # in the middle of what one sync wrote, which a crash may tear
    assert java.found().place == f"data/{second.name}"
    assert java.found().damage.endswith(", but entries up to 190 are committed")
    sizes = {path.stat().st_size for path in (java.folder / "index").iterdir()}
    assert sizes == {index_bytes}, "Java accepts only this size"


@pytest.mark.parametrize("damaged", ["body", "term"])
def test_members_of_one_group_are_compared(tmp_path: Path, damaged: str) -> None:
    one, other = (JavaStore(tmp_path / name) for name in ("one", "other"))
    assert differences(one.found(), other.found()) == []
    row = ROWS[3]
    if damaged == "body":
        other.put(row["pos"] + 48 + 20, b"!")
        expected = "entry 3 of term 1 differs: the disk of one of them damaged it"
    else:
        other.put(ROWS[27]["pos"] + 23, b"\x07")
        expected = "entry 27 is committed, and of terms 2 and 7"
    assert differences(one.found(), other.found()) == [expected]
    said = CliRunner().invoke(dledger, ["inspect", str(one.folder), str(other.root)])
    assert said.exit_code == 1 and expected in said.output


def test_differing_uncommitted_tails_are_no_damage(tmp_path: Path) -> None:
    one, other = (JavaStore(tmp_path / name) for name in ("one", "other"))
    one.put(END, java_entry(28, 2, END) + java_entry(29, 2, END + 48))
    other.put(END, java_entry(28, 3, END))
    assert differences(one.found(), other.found()) == []
    said = CliRunner().invoke(dledger, ["inspect", str(one.root), str(other.root)])
    assert said.exit_code == 0, said.output
    assert "most is held by dledger-n0: up to entry 28 of term 3" in said.output


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda root: None, "is no dledger-ID and holds none"),
        (lambda root: [(root / name).mkdir() for name in ("dledger-a", "dledger-b")], "name one of them"),
    ],
)
def test_a_folder_without_one_member_is_rejected(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    make(tmp_path)
    with pytest.raises(NoMember, match=why):
        read_folder(tmp_path)


def test_the_inspect_command_prints_the_damage(java: JavaStore) -> None:
    said = CliRunner().invoke(dledger, ["inspect", str(java.root)])
    assert (
        said.exit_code == 0
        and "entries  0 to 27, 28 of them Java's; terms 1 from 0, 2 from 23" in said.output
    )
    java.put(ROWS[4]["pos"], b"\xff")
    said = CliRunner().invoke(dledger, ["inspect", str(java.root)])
    assert said.exit_code == 1 and f"DAMAGED  data/{FIRST}: entry 4 at byte" in said.output
