"""The contracts that seeds run under: what an acknowledgement promises, and so what faults may take away.

B: whoever is in the set holds it; the last member acknowledges alone, and its memory must not be lost. C: two hold it, and
while only one of them loses its memory nothing is lost, in any order of deaths."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contract:
    name: str
    members_min: int = 2
    flush: str = "ASYNC_FLUSH"

    @property
    def survives_lost_memory(self) -> bool:
        return self.members_min > 1


CONTRACTS = (
    Contract("B", 1),
    Contract("C"),
    Contract("C"),
    Contract("C"),
    Contract("C, synced by the master", flush="SYNC_FLUSH"),
)
