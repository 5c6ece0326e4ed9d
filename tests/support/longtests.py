"""Which values of a test are left to `scripts/test --long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def long(values: Iterable[Any]) -> list[Any]:
    """Parameters of tests that only such a run has."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
