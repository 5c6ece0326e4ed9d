"""How long a test waits for an event: far longer than a busy machine needs, so only an event that never comes is a failure."""

from __future__ import annotations

WAIT_S = 300
WAIT_MS = WAIT_S * 1000
NOBODY_IS_LATE = {"controllerHeartBeatTimeoutMills": str(WAIT_MS)}
"""Settings of brokers. Controllers notice a broker that has ended by its connection, and do not take a slow broker for dead."""
