"""Many walkers at once find the same record boundaries as one walker, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from messagestore.bulk.lockstep import boundaries_in_step, likely_records
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read
from sparkreplay.records.decode import decode_chunk
from sparkreplay.records.walk import chunks_of
from sparkreplay.store.framing import RECORD_SIZE_MAX
from tests.unit.sparkreplay.storefolder import StoreFolder, record

BASE = 5_000_000


def log_of(sizes: list[int]) -> tuple[bytearray, list[int]]:
    """Records with bodies of these sizes from physical offset BASE on, and where each begins in the buffer."""
    log, starts = bytearray(), []
    for size in sizes:
        starts.append(len(log))
        log += record(BASE + len(log), body=bytes(size))
    return log, starts


def forged_from(offset: int, count: int) -> bytes:
    """Records inside a body, with the physical offsets that they have there."""
    made = bytearray()
    for _ in range(count):
        made += record(offset + len(made), body=b"forged")
    return bytes(made)


def in_step(log: bytearray, strip_bytes: int = 4096) -> list[int] | None:
    found = boundaries_in_step(log, len(log), BASE, strip_bytes=strip_bytes, size_max=RECORD_SIZE_MAX)
    return None if found is None else found.tolist()


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 200)), min_size=1, max_size=10),
    st.sampled_from((700, 4096, 10000)),
)
def test_walkers_find_a_prefix_of_the_record_boundaries(
    runs: list[tuple[int, int]], strip_bytes: int
) -> None:
    log, starts = log_of([size for size, times in runs for _ in range(times)])
    found = in_step(log, strip_bytes)
    assert found is None or found == starts[: len(found)]
    walkers = likely_records(log, len(log), BASE, strip_bytes)
    assert set(walkers.tolist()) <= set(starts)
    if len(walkers) > 1:
        assert found is not None and found[-1] == walkers[-1]


def test_a_walker_at_a_forged_record_falls_back_to_a_sequential_walk() -> None:
    log, _ = log_of([100] * 200)
    at = len(log) + 88
    log += record(BASE + len(log), body=forged_from(BASE + at, 80))
    end = len(log)
    for _ in range(200):
        log += record(BASE + len(log), body=bytes(100))
    assert set(likely_records(log, len(log), BASE, 4096).tolist()) & set(range(at, end))
    assert in_step(log) is None


def test_a_damaged_size_or_magic_falls_back_to_a_sequential_walk() -> None:
    log, starts = log_of([100] * 400)
    assert in_step(log) == starts[: len(in_step(log) or [])]
    for place in (0, 1, 2, 3, 4, 7):
        damaged = bytearray(log)
        damaged[starts[150] + place] ^= 0x55
        assert in_step(damaged) is None


def test_a_record_with_an_oversized_length_is_found_at_the_last_walker_too() -> None:
    log, starts = log_of([100] * 400)
    last = (in_step(log) or [])[-1]
    damaged = bytearray(log)
    damaged[starts[starts.index(last) - 1] + 2] += 1  # its size, by 256
    assert in_step(damaged) is None


def test_rows_are_correct_after_the_fallback_to_a_sequential_walk(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, 1 << 20)
    for number in range(600):
        if number % 100 == 50:
            at = len(store.log) + 88
            store.add(body=forged_from(at, 60))
        store.add(body=bytes(60))
    read = plan_read(read_options({"path": store.write(), "columns": "physical_offset"}))
    source = read.sources[0]
    (chunk,) = chunks_of(source.store.files, read.stretches[0])
    starts = [0, *store.ends[:-1]]
    assert chunk.positions.tolist() == starts
    assert np.asarray(decode_chunk(chunk, source.selection, "path").column(0)).tolist() == starts
