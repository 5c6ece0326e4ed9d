"""Limits at which a connection, or all connections of a server together, are slowed down or cut."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server or client; the defaults suit a broker.

    While more than `unsent_bytes_high` bytes are unsent, requests of this end wait, and nothing is read from the peer unless
    `reads_on`. A connection with more than `unsent_bytes_max` unsent bytes is cut."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = HEADER_BYTES_MAX
    begun_bytes_max: int = (
        512 << 20
    )  # of all connections together, in buffers of long frames that have not ended
    unsent_bytes_high: int = 1 << 20
    unsent_bytes_max: int = 64 << 20
    unsent_of_all_max: int = 2 << 30  # of all connections that are behind together
    reads_on: bool = False  # for clients: if both ends stopped reading, neither would continue
    idle_ms_max: int = 120_000  # neither bytes read nor written
    stall_ms_max: int = 120_000  # a frame is begun and not ended, or replies wait and the peer reads none
    connections_max: int = 20_000
    running_max: int = 50_000  # number of handlers that answer later
    running_of_one_max: int = 5_000  # the same of one connection; at this limit nothing more is read from it
