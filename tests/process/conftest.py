"""Where servers of this layer's clusters come from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.forkedservers import forked_servers
from tests.patientclients import patient_clients


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    with forked_servers():
        yield


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Of this layer alone: a simulation's digest hangs on every time-out."""
    with patient_clients():
        yield
