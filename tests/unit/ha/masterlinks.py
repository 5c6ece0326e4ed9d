"""A master's end of a link, with the intervals that upstream takes by default."""

from __future__ import annotations

from ha.master.link import MasterLink, MasterView


def link_of(master: MasterView, transfer_batch_size: int = 400) -> MasterLink:
    return MasterLink(
        master,
        transfer_batch_size=transfer_batch_size,
        heartbeat_interval_ms=5000,
        housekeeping_interval_ms=20000,
        handshake_timeout_ms=5000,
        now_ms=0,
    )
