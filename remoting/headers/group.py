"""Headers between the brokers of one group: 905, 906, 908."""

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


@dataclass(slots=True)
class NotifyMinBrokerIdChangeHeader(Header):
    """905, name server to broker, in acting-master mode only."""

    min_broker_id: I64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@dataclass(slots=True)
class ResetMasterFlushOffsetHeader(Header):
    """908"""

    master_flush_offset: I64
