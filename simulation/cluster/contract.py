"""The contracts under which seeds run. A contract says what an acknowledgement promises, and so which losses faults may cause.

A: the master has the record in memory (its mapped file), and the next master may be missing it. B: all members of the set hold
the record. The last member acknowledges alone, so its memory must not be lost. C: two brokers hold the record. If only one of
them loses its memory, nothing is lost, whatever the order of deaths. D: two brokers have the record on their disks, and all
brokers may lose power at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contract:
    name: str
    members_min: int = 2
    flush: str = "ASYNC_FLUSH"
    waits: bool = True
    """Whether a send waits for the set."""
    on_disk: bool = False
    """Whether a broker counts only for records that are on its disk."""


CONTRACT_A = Contract("A", 1, waits=False)
CONTRACT_D = Contract("D", flush="SYNC_FLUSH", on_disk=True)
CONTRACTS = (
    Contract("B", 1),
    Contract("C"),
    Contract("C"),
    Contract("C"),
    Contract("C, synced by the master", flush="SYNC_FLUSH"),
)
