"""The header between the brokers of one group: 906."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.headers.header import Header
from remoting.wirefields import I64


@dataclass(slots=True)
class ExchangeHAInfoHeader(Header):
    """906, request and reply. A request without `master_ha_address` asks; one with it says "I am your
    master".
    """

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None
