"""How long a test waits for what must happen: far beyond what a busy machine takes, so that only what never comes fails."""

from __future__ import annotations

WAIT_S = 300
WAIT_MS = WAIT_S * 1000
NOBODY_IS_LATE = {"controllerHeartBeatTimeoutMills": str(WAIT_MS)}
"""Settings of brokers: controllers miss one that has ended, by its connection, and none that only waits for its turn."""
