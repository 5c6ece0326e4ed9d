"""The contracts that seeds run under: what an acknowledgement promises, and so what faults may take away.

A: the master has the record in its mapping; the next master may be missing it. B: all members of the set hold it; the last
member acknowledges alone, and its memory must not be lost. C: two brokers hold it, and while only one of them loses its memory
nothing is lost, in any order of deaths. D: two brokers have it on their disks, and all may lose power at once."""

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
    """Whether a counted broker has the records on its disk."""


CONTRACT_A = Contract("A", 1, waits=False)
CONTRACT_D = Contract("D", flush="SYNC_FLUSH", on_disk=True)
CONTRACTS = (
    Contract("B", 1),
    Contract("C"),
    Contract("C"),
    Contract("C"),
    Contract("C, synced by the master", flush="SYNC_FLUSH"),
)
