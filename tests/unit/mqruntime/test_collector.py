from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

from mqruntime.collector import GcTuner

KEPT_MIN = 100


class Heap:
    """Plays the module `gc`: a full collection looks at what is not frozen, and frees the `ended` of it."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[str, dict[str, int]], None]] = []
        self.new = self.frozen = self.ended = 0
        self.looked_at: list[int] = []

    def freeze(self) -> None:
        self.frozen, self.new = self.frozen + self.new, 0

    def unfreeze(self) -> None:
        self.frozen, self.new = 0, self.frozen + self.new

    def get_freeze_count(self) -> int:
        return self.frozen

    def get_objects(self, generation: int | None = None) -> list[object]:
        return [None] * self.new

    def collect(self, made: int) -> None:
        self.new += made
        self.looked_at.append(self.new)
        if not self.frozen:
            self.new, self.ended = self.new - self.ended, 0
        for callback in self.callbacks:
            callback("start", {"generation": 2})
            callback("stop", {"generation": 2})


def collected(heap: Heap) -> Heap:
    GcTuner(heap, KEPT_MIN).start()
    return heap


def test_a_collection_examines_only_new_objects() -> None:
    heap = collected(Heap())
    for _ in range(8):
        heap.collect(made=10)
    assert heap.looked_at == [10] * 8


def test_a_full_collection_runs_when_the_kept_objects_have_doubled() -> None:
    heap = collected(Heap())
    for _ in range(60):
        heap.collect(made=10)
    whole = [looked_at for looked_at in heap.looked_at if looked_at > 10]
    assert whole == [120, 260, 540]


def test_dead_cycles_among_the_kept_objects_are_found() -> None:
    heap = collected(Heap())
    for _ in range(1000):
        heap.collect(made=10)
        heap.ended += 10
    assert heap.frozen + heap.new <= 2 * KEPT_MIN


def test_kept_objects_freed_by_reference_counting_start_no_full_collection() -> None:
    heap = collected(Heap())
    for _ in range(100):
        heap.collect(made=10)
        heap.frozen -= 10
    assert heap.looked_at == [10] * 100


PROCESS = f"""
import gc
from mqruntime.collector import GcTuner
gc.disable()
GcTuner().start()
kept = [[] for _ in range({KEPT_MIN})]
gc.collect()
assert gc.get_freeze_count() >= {KEPT_MIN}
assert not gc.get_objects(generation=2)
"""


def test_python_leaves_frozen_objects_out_of_later_collections() -> None:
    before = gc.get_freeze_count()
    subprocess.run([sys.executable, "-c", PROCESS], check=True)
    assert gc.get_freeze_count() <= before, "what was frozen may have ended meanwhile, and nothing was"
