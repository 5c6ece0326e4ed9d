"""Reads the events that controllers write into their log from the bytes, without the product's code.

Invariant: this module shares only the format with the code under test: two bytes of kind, big-endian, and a JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass

ALTER, APPLY_ID, ELECT, CLEAN, ADDRESS = 1, 2, 3, 5, 6


@dataclass(frozen=True, slots=True)
class ControllerEntry:
    """One event. `broker_id` is the broker that gets an id, is elected (None: nobody) or moves. `ids` are the new set, or the
    forgotten brokers (None: all). `eligible` are other brokers that may be elected."""

    kind: int
    broker_name: str
    broker_id: int | None = None
    ids: frozenset[int] | None = None
    check_code: str = ""
    address: str = ""
    eligible: frozenset[int] = frozenset()


def read(body: bytes) -> ControllerEntry | None:
    """The event in these bytes; None if they are no event."""
    kind, said = int.from_bytes(body[:2], "big"), json.loads(body[2:])
    name, eligible = said["brokerName"], frozenset(said.get("eligibleReplicas", ()))
    match kind:
        case 1:
            return ControllerEntry(kind, name, ids=frozenset(said["newSyncStateSet"]), eligible=eligible)
        case 2:
            return ControllerEntry(
                kind,
                name,
                said["newBrokerId"],
                check_code=said["registerCheckCode"],
                address=said["brokerAddress"],
            )
        case 3:
            elected = said["newMasterBrokerId"] if said["newMasterElected"] else None
            return ControllerEntry(kind, name, elected, eligible=eligible)
        case 5:
            ids = said.get("brokerIdSetToClean")
            return ControllerEntry(kind, name, ids=frozenset(ids) if ids else None)
        case 6:
            return ControllerEntry(kind, name, said["brokerId"], address=said["brokerAddress"])
    return None
