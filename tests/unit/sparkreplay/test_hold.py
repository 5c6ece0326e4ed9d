"""Leases that a read leaves in a store, as the broker of that store reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.retention.leases import Leases
from messagestore.leases import FOLDER, LEASE_MS_MAX, Lease, LeaseDamaged, decode
from mqruntime.realruntime import real_runtime
from sparkreplay.errors import OptionError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.store.hold import LEASE_MS, RENEW_MS, LogHold, wall_ms
from sparkreplay.stream.request import open_stream
from tests.unit.sparkreplay.storefolder import StoreFolder


def held(root: Path) -> list[int]:
    """The offsets from which on the broker keeps the log."""
    holds = asyncio.run(Leases(real_runtime(root).files).holds(wall_ms()))
    return [hold.offset for hold in holds]


def test_a_lease_is_read_as_it_was_written_and_ends_by_itself() -> None:
    lease = decode(Lease("a read\non worker", 20_480, 5_000).encode())
    assert lease == Lease("a read on worker", 20_480, 5_000)
    assert lease.holds(4_999) and not lease.holds(5_000)
    assert not Lease("x", 0, LEASE_MS_MAX + 1).holds(0)
    for damaged in (b"", b"holder=x\nfrom=-1\nuntil=1\n", b"holder=x\nfrom=a\nuntil=1\n"):
        with pytest.raises(LeaseDamaged):
            decode(damaged)


def test_the_broker_keeps_leased_files_until_the_read_releases_them(tmp_path: Path) -> None:
    hold = LogHold(str(tmp_path), "read-1", 4096)
    hold.take()
    (tmp_path / FOLDER / "read-1.77.tmp").write_bytes(b"holder=ha")
    assert held(tmp_path) == [4096]
    hold.release()
    hold.release()
    assert held(tmp_path) == []


def test_a_reader_renews_its_lease_once_a_minute(tmp_path: Path) -> None:
    hold, path = LogHold(str(tmp_path), "read-1", 4096), tmp_path / FOLDER / "read-1"
    hold.take()
    first = path.read_bytes()
    hold.renew(lambda: wall_ms() + RENEW_MS // 2)
    assert path.read_bytes() == first
    hold.renew(lambda: wall_ms() + RENEW_MS + 1_000)
    assert decode(path.read_bytes()).until_ms > decode(first).until_ms
    path.unlink()
    hold.renew()
    assert decode(path.read_bytes()).until_ms <= wall_ms() + LEASE_MS


def test_a_store_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    with pytest.raises(OptionError, match="holdLog.*leave it out"):
        LogHold(str(tmp_path), "read-1", 0).take()


def test_a_read_takes_a_lease_only_with_the_option_and_releases_it(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path / "store")
    for _ in range(9):
        store.add(body=bytes(900))
    path = store.write()
    plain = plan_read(read_options({"path": path}))
    assert plain.holds == () and not (store.root / FOLDER).exists()
    read = plan_read(read_options({"path": path, "holdLog": "true"}))
    assert held(store.root) == [0]
    assert sum(batch.num_rows for batch in read_all(read)) == 9
    assert held(store.root) == []


def test_a_stream_leases_the_files_of_its_next_batch(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path / "store")
    for _ in range(9):
        store.add(body=bytes(900))
    stream = open_stream(read_options({"path": store.write(), "holdLog": "true"}))
    start = stream.initial()
    end = stream.latest(start)
    assert held(store.root) == [0]
    stream.plan(start, end)
    assert stream.latest(end) is end
    assert held(store.root) == [max(store.ends)]
