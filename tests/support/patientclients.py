"""Our clients in a test's own process, which wait for a name server as long as the test does.

Brokers are given up as soon as ever: tests judge whether a client leaves one that hangs. No test lets name
servers stand still, so an answer of theirs that is late says only that the machine is busy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mqclient import routetable
from scripts.peers.waits import WAIT_MS


@contextmanager
def patient_clients() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(routetable, "NAMESRV_TIMEOUT_MS", WAIT_MS)
        yield
