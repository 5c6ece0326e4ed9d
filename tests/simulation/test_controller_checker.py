"""The checker of the simulated controllers finds what it is there to find."""

from __future__ import annotations

import pytest

from controller.events import AlterSyncStateSet, ApplyBrokerId, ElectMaster, Event, encode
from simulation.controllers.world import ControllerChecker, Violation


def applied(broker_id: int, code: str = "x") -> ApplyBrokerId:
    return ApplyBrokerId("c", "a", broker_id, f"h{broker_id}:1", f"h{broker_id}:1;{code}")


SOUND: list[Event] = [applied(1), applied(2), ElectMaster("a", 1), AlterSyncStateSet("a", frozenset({1, 2}))]


def judged(*events: Event) -> ControllerChecker:
    checker = ControllerChecker()
    for event in events:
        checker.take(encode(event))
    return checker


def test_a_sound_history_passes() -> None:
    assert judged(*SOUND, ElectMaster("a", 2), ElectMaster("a", None), ElectMaster("a", 2)).elections == 4


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("M4", ElectMaster("a", 3)),
        ("M1", ElectMaster("b", 1)),
        ("S2", AlterSyncStateSet("a", frozenset({2}))),
        ("S2", AlterSyncStateSet("a", frozenset())),
        ("S2", AlterSyncStateSet("a", frozenset({1, 9}))),
        ("B1", applied(2, "another")),
    ],
)
def test_an_unsound_event_is_found(name: str, event: Event) -> None:
    with pytest.raises(Violation, match=f"^{name}"):
        judged(*SOUND, event)


def test_an_epoch_spent_on_a_set_without_master_is_found() -> None:
    with pytest.raises(Violation, match="^M4"):
        judged(*SOUND, ElectMaster("a", None), ElectMaster("a", None))
