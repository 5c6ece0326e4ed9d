from __future__ import annotations

import gc
import weakref

from simulation.kernel.garbage import SELDOM, seldom_collected


def test_a_world_is_seldom_collected_and_nothing_is_left_of_that_after_it() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold() == SELDOM
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


class Left:
    def __init__(self) -> None:
        self.itself = self


def test_what_a_former_world_left_is_gone() -> None:
    with seldom_collected():
        left = weakref.ref(Left())
        assert left() is not None
    with seldom_collected():
        assert left() is None
