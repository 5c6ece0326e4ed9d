"""The sessions of these tests on a loaded machine."""

from __future__ import annotations

import pytest

from tests.spark.sessions import NOT_CONNECTED, again_where_python_was_slow


def test_a_spark_call_is_repeated_only_after_a_slow_python_start() -> None:
    outcomes = [RuntimeError(f"x {NOT_CONNECTED}."), RuntimeError(NOT_CONNECTED), 7, ValueError("other"), 8]
    left = iter(outcomes)

    def call(argument: str) -> int:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    patient = again_where_python_was_slow(call)
    assert patient("a") == 7
    with pytest.raises(ValueError, match="other"):
        patient("a")
    left = iter([RuntimeError(NOT_CONNECTED)] * 6)
    with pytest.raises(RuntimeError):
        patient("a")
    assert len(list(left)) == 1
