"""A Java controller's store opened by ours: it keeps its state, or it is rejected and not changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from controller.adoption import store_root
from controller.events import decode
from controller.server import ControllerApp
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from dledger.raft.errors import LogDamaged
from dledger.raft.snapshot import Snapshot
from dledger.storage.entry import ENTRY_HEADER, ENTRY_HEADER_BYTES
from dledger.storage.inspection import inspect
from dledger.storage.memberfolder import read_folder
from dledger.storage.snapshot import Origin
from dledger.storage.snapshotfile import SnapshotFile
from mqruntime.realruntime import real_runtime
from mqruntime.settings import SettingsError
from mqruntime.slices import whole
from tests.unit.dledger.ledgergroup import free_ports

VECTORS = Path(__file__).parents[2] / "vectors" / "dledger"
ROWS = [json.loads(line) for line in (VECTORS / "entries.jsonl").read_text().splitlines()]
FILE_BYTES = 1 << 20
FIRST = "00000000000000000000"


def java_store(root: Path) -> Path:
    """Lay out the store of a killed Java controller; return the file of its entries."""
    folder = root / "dledger-n0"
    for part in ("data", "index"):
        (folder / part).mkdir(parents=True)
        content = (VECTORS / f"{part}-{FIRST}").read_bytes()
        (folder / part / FIRST).write_bytes(content.ljust(FILE_BYTES, b"\0"))
    for name in ("currterm", "checkpoint"):
        (folder / name).write_bytes((VECTORS / name).read_bytes())
    return folder / "data" / FIRST


def snapshot_of_java(root: Path) -> Path:
    """A snapshot folder as DLedger 0.3.2 and later leave it: without any state."""
    folder = root / "dledger-n0" / "snapshot" / "snapshot_1311"
    folder.mkdir(parents=True)
    (folder / "snapshot_meta").write_text('{"lastIncludedIndex":1311,"lastIncludedTerm":2}')
    return folder / "snapshot_meta"


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def opened(root: Path, file_bytes: int = FILE_BYTES) -> ReplicasState:
    """The state of a controller that leads alone on the store and has applied all entries."""

    async def live() -> ReplicasState:
        (port,) = free_ports(1)
        settings = ControllerSettings.load(
            None,
            [
                "controllerDLegerGroup=group1",
                f"controllerDLegerPeers=n0-127.0.0.1:{port}",
                "controllerDLegerSelfId=n0",
                f"controllerStorePath={root}",
                f"mappedFileSize={file_bytes}",
            ],
        )
        app = ControllerApp(settings, real_runtime(root))
        await app.start()
        while not app.node.is_active:
            await asyncio.wait([asyncio.create_task(asyncio.sleep(0.01))])
        await app.stop()
        return app.state

    return asyncio.run(live())


def test_the_state_of_a_java_store_is_restored_at_each_start(tmp_path: Path) -> None:
    file = java_store(tmp_path)
    java = file.read_bytes()[:4601]
    expected = ReplicasState()

    for row in ROWS:
        body = java[row["pos"] + 48 : row["pos"] + row["size"]]
        if body:
            event = decode(body)
            assert event is not None
            expected.apply(event)
    assert expected.replicas
    for _ in range(2):
        state = opened(tmp_path)
        assert (state.replicas, state.sync_states) == (expected.replicas, expected.sync_states)
    assert file.read_bytes()[:4601] == java


def test_the_snapshot_folder_of_java_5_4_is_ignored_and_kept(tmp_path: Path) -> None:
    java_store(tmp_path / "former")
    java_store(tmp_path / "newer")
    meta = snapshot_of_java(tmp_path / "newer")
    assert opened(tmp_path / "newer").replicas == opened(tmp_path / "former").replicas
    assert meta.exists(), "Java can open the store again"


def test_the_first_snapshot_moves_the_java_snapshot_folder_aside(tmp_path: Path) -> None:
    async def written_twice() -> list[Snapshot | None]:
        found = []
        runtime = real_runtime(tmp_path)
        file = SnapshotFile(runtime.files, "dledger-n0/snapshot")
        for last in (9, 10):
            await file.store(Snapshot(last, 1, b"state"), Origin.MADE)
            found.append(await file.load())
        runtime.files.close()
        return found

    meta = snapshot_of_java(tmp_path)
    assert asyncio.run(written_twice()) == [Snapshot(9, 1, b"state"), Snapshot(10, 1, b"state")]
    assert not meta.exists()
    assert (tmp_path / "dledger-n0" / "java" / "snapshot" / "snapshot_1311" / "snapshot_meta").exists()


HOLED_FROM, HOLED_FIRST, HOLE = 288_349, 1308, 1311


def holed_store(root: Path, member: str) -> None:
    """Entries 1308 to 1316 of a controller of 5.5.1, after as many bytes of other entries as it had."""
    file = java_store(root)
    row = next(row for row in ROWS if row["bodySize"])
    event = file.read_bytes()[row["pos"] + ENTRY_HEADER_BYTES : row["pos"] + row["size"]]
    part = (VECTORS / "5.5.1" / f"{member}-data-288349-289661.bin").read_bytes()
    room = bytearray(FILE_BYTES)
    at = 0
    for index in range(HOLED_FIRST):
        body = b"" if index < HOLED_FIRST - 1 else event.ljust(HOLED_FROM - at - ENTRY_HEADER_BYTES)
        size = ENTRY_HEADER_BYTES + len(body)
        room[at : at + size] = ENTRY_HEADER.pack(1, size, index, 1, at, 0, 0, 0, len(body)) + body
        at += ENTRY_HEADER_BYTES + len(body)
    assert at == HOLED_FROM
    room[at : at + len(part)] = part
    file.write_bytes(room)
    (file.parent.parent / "index" / FIRST).write_bytes(bytes(FILE_BYTES))
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=1310\nendIndex=1310\n")


def test_a_gap_written_by_java_5_4_is_reported_with_entry_and_cause(tmp_path: Path) -> None:
    holed_store(tmp_path / "n1", "n1")
    found = whole(inspect(read_folder(tmp_path / "n1")))
    assert (found.damage, found.last_index, found.tail) == ("", 1316, "")
    holed_store(tmp_path / "n0", "n0")
    snapshot_of_java(tmp_path / "n0")
    before = contents(tmp_path)
    with pytest.raises(
        LogDamaged, match=f"entry {HOLE} at byte .* is unreadable, but entry 131[2-6], .*DLedger 0.3.2"
    ):
        opened(tmp_path / "n0")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("row", [row for row in ROWS if row["bodySize"]], ids=lambda row: str(row["index"]))
def test_a_damaged_event_is_rejected_with_its_position_and_changes_nothing(
    tmp_path: Path, row: dict[str, int]
) -> None:
    """Java's files have no checksum of a body: damage shows only when it cannot be decoded."""
    file = java_store(tmp_path)
    data = bytearray(file.read_bytes())
    data[row["pos"] + 50] = ord("?")  # its opening brace
    file.write_bytes(data)
    before = contents(tmp_path)
    why = f"^dledger-n0/data/{FIRST}: entry {row['index']} at byte {row['pos']} is of no kind that is known; nothing was"
    with pytest.raises(LogDamaged, match=why):
        opened(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", ["middle", "end", "no term", "other size"])
def test_a_store_that_cannot_be_opened_is_not_changed(tmp_path: Path, damage: str) -> None:
    file = java_store(tmp_path)
    data = bytearray(file.read_bytes())
    match damage:
        case "middle":
            data[ROWS[9]["pos"]] = 7
        case "end":
            data[ROWS[26]["pos"] :] = bytes(FILE_BYTES - ROWS[26]["pos"])
        case "no term":
            (tmp_path / "dledger-n0" / "currterm").unlink()
    file.write_bytes(data)
    before = contents(tmp_path)
    why = {
        "middle": f"entry 9 at byte {ROWS[9]['pos']} is unreadable, but entry 10",
        "end": f"ends before entry 26 at byte {ROWS[26]['pos']}, but entries up to 27 are committed; nothing was changed",
        "no term": "currterm: is missing although there is a log",
        "other size": f"its files have {FILE_BYTES} bytes: set mappedFileSize={FILE_BYTES}",
    }[damage]
    with pytest.raises(LogDamaged, match=why):
        opened(tmp_path, FILE_BYTES * (2 if damage == "other size" else 1))
    assert contents(tmp_path) == before


def test_a_java_store_in_upstreams_default_folder_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream has no separate folder for each id."""
    monkeypatch.setenv("HOME", str(tmp_path))
    lines = [
        "controllerDLegerGroup=g",
        "controllerDLegerPeers=n0-127.0.0.1:9878",
        "controllerDLegerSelfId=n0",
    ]
    default = tmp_path / "DLedgerController"
    assert store_root(ControllerSettings.load(None, lines)) == default / "n0"
    java_store(default)
    with pytest.raises(SettingsError, match=f"set controllerStorePath={default} to use it"):
        store_root(ControllerSettings.load(None, lines))
    assert store_root(ControllerSettings.load(None, [*lines, f"controllerStorePath={default}"])) == default
    (default / "n0" / "dledger-n0").mkdir(parents=True)
    assert store_root(ControllerSettings.load(None, lines)) == default / "n0"
