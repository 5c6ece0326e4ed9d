"""The servers of this layer's clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.forkedcommands import ForkedCommands
from tests.support.forkedservers import forked_servers
from tests.support.patientclients import patient_clients


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    with forked_servers():
        yield


@pytest.fixture(scope="session")
def commands() -> Iterator[ForkedCommands]:
    with ForkedCommands() as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """For this layer only, because the digest of a simulation depends on every timeout."""
    with patient_clients():
        yield
