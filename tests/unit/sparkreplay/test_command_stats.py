"""mqreplay stats: exact counts, near quantiles, bounded memory, and a page that loads nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkreplay.engine.engine import Done, LocalEngine, Work
from sparkreplay.summary import sizes as sizing
from sparkreplay.summary.sizes import OTHER, bucket_of, largest_in, merge, partial, summaries
from tests.unit.sparkreplay.commandline import log_options, mqreplay, two_days
from tests.unit.sparkreplay.storefolder import StoreFolder


def part(key: str, sizes: list[int]) -> pa.Table:
    return partial(pa.array([key] * len(sizes), pa.string()), np.zeros(len(sizes), np.int64), np.array(sizes))


@given(st.lists(st.integers(91, 1 << 26), min_size=1, max_size=200), st.integers(1, 10))
def test_merged_statistics_equal_those_of_all_messages(sizes: list[int], cut: int) -> None:
    parts = [part("orders", sizes[start::cut]) for start in range(cut) if sizes[start::cut]]
    (row,) = summaries(merge(parts))
    ordered = sorted(sizes)
    assert (row.count, row.bytes, row.least, row.most) == (len(sizes), sum(sizes), ordered[0], ordered[-1])
    for estimate, share in ((row.p50, 0.5), (row.p99, 0.99)):
        exact = ordered[max(1, -int(-len(sizes) * share // 1)) - 1]
        assert exact <= estimate <= exact * 1.04


@given(st.integers(0, 1 << 30))
def test_a_bucket_holds_sizes_that_are_near(size: int) -> None:
    (bucket,) = bucket_of(np.array([size])).tolist()
    largest = largest_in(bucket)
    assert size <= largest <= size + size // 32
    assert bucket_of(np.array([largest])).tolist() == [bucket]
    assert bucket_of(np.array([largest + 1])).tolist() == [bucket + 1]


def test_keys_beyond_the_limit_are_one_key_and_no_message_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "KEYS_MAX", 10)
    found = merge([part(f"host-{number}", [100 + number] * (number + 1)) for number in range(50)])
    rows = {row.key: row for row in summaries(merge([found, part("host-49", [149])]))}
    assert len(rows) == 10 and rows["host-49"].count == 51
    assert sum(row.count for row in rows.values()) == sum(range(1, 51)) + 1
    assert rows[OTHER].least == 100


def test_counts_stay_exact_for_keys_that_a_part_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "KEYS_MAX", 3)
    early = [part(f"host-{number}", [100] * 2) for number in range(20)]
    late = [part("host-7", [100] * 3), part("host-8", [100] * 2)]
    rows = {row.key: row.count for row in summaries(merge([merge(early), merge(late)]))}
    assert rows == {OTHER: 36, "host-7": 5, "host-8": 4}


def test_the_statistics_do_not_depend_on_the_order_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "KEYS_HELD_MAX", 3)
    path = two_days(tmp_path).write()
    before = mqreplay("stats", *log_options(path))

    def last_first(engine: LocalEngine, work: Work, numbers: Sequence[int], done: Done) -> None:
        for number in reversed(numbers):
            done(number, work(number))

    monkeypatch.setattr(LocalEngine, "run", last_first)
    after = mqreplay("stats", *log_options(path))
    assert (before.code, after.code) == (0, 0) and before.out == after.out
    assert OTHER in {row["topic"] for row in before.json["topics"]}


def test_topics_queues_producers_and_hours_are_counted(tmp_path: Path) -> None:
    path = two_days(tmp_path).write()
    done = mqreplay("stats", *log_options(path))
    assert done.code == 0, done.err
    found = done.json
    assert [(row["topic"], row["count"]) for row in found["topics"]] == [
        ("%RETRY%billing", 133), ("orders", 134), ("payments", 133),
    ]  # fmt: skip
    assert len(found["queues"]) == 9 and sum(row["count"] for row in found["queues"]) == 400
    assert [(row["producer"], row["count"]) for row in found["producers"]] == [("10.0.0.9", 400)]
    assert len(found["hours"]) == 24 and found["hours"][0]["hour"] == "2023-11-15T12:00"
    assert sum(row["bytes"] for row in found["hours"]) == sum(row["bytes"] for row in found["topics"])


def test_a_producer_is_counted_by_its_group_if_the_message_has_one(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add(properties="TAGS\x01T\x02PGROUP\x01billing\x02")
    store.add(properties="XPGROUP\x01no\x02")
    store.add(sys_flag=0x10)
    found = mqreplay("stats", *log_options(store.write())).json["producers"]
    assert {row["producer"]: row["count"] for row in found} == {
        "billing": 1,
        "10.0.0.9": 1,
        "[0:0:0:0:0:0:0:1]": 1,
    }


def test_the_page_draws_every_table_and_loads_nothing(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path / "store")
    for number in range(40):
        store.add(topic=f"<script>alert({number})</script>")
    target = tmp_path / "stats.html"
    done = mqreplay("stats", store.write(), "--html", str(target), "--top", "3", "--workers", "1")
    assert done.code == 0 and "and 37 more" in done.out
    text = target.read_text()
    assert "<script" not in text and not re.search(r"(?:src|href|url|@import)\s*[=(]", text)
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 4
    assert [len(list(ElementTree.fromstring(drawing).iter("rect"))) for drawing in drawings] == [30, 30, 1, 1]


def test_nothing_committed_is_an_empty_page(tmp_path: Path) -> None:
    store = two_days(tmp_path / "store")
    target = tmp_path / "stats.html"
    done = mqreplay("stats", store.write(confirm=0), "--html", str(target))
    assert done.code == 0 and "0 messages" in target.read_text()
