"""A master's end of a link, with the intervals that upstream takes by default."""

from __future__ import annotations

from collections.abc import Callable

from ha.master.link import MasterLink, MasterView
from ha.master.pace import Pace


def link_of(
    master: MasterView,
    transfer_batch_size: int = 400,
    limit: Callable[[], int | None] = lambda: None,
    heartbeat_interval_ms: int = 5000,
) -> MasterLink:
    return MasterLink(
        master,
        transfer_batch_size=transfer_batch_size,
        heartbeat_interval_ms=heartbeat_interval_ms,
        housekeeping_interval_ms=20000,
        handshake_timeout_ms=5000,
        pace=Pace(limit),
        now_ms=0,
    )
