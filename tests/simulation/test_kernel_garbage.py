from __future__ import annotations

import gc
import weakref

from simulation.kernel.garbage import SELDOM, seldom_collected


def test_a_world_is_seldom_collected_and_the_collector_is_restored_after_it() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold() == SELDOM
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


class Left:
    def __init__(self) -> None:
        self.itself = self


def test_garbage_of_an_earlier_world_is_collected() -> None:
    with seldom_collected():
        left = weakref.ref(Left())
        assert left() is not None
    with seldom_collected():
        assert left() is None
