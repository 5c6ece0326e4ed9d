"""A lease: a reader of a store's files asks the broker to keep part of the log for a while.

    holder=spark 7f3a on worker-2
    from=20480               the first byte of the log that it still reads
    until=1700000060000      wall time, ms; renewed while it reads

Each reader has one file in the folder `leases` of the store. Invariant: a lease expires at most LEASE_MS_MAX after the broker
has read the file, so a dead reader or a wrong clock does not keep the log for long. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FOLDER = "leases"
LEASE_MS_MAX = 600_000
_BYTES_MAX = 1024


class LeaseDamaged(ValueError):
    """Bytes that are no lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str
    offset: int
    until_ms: int

    def holds(self, now_ms: int) -> bool:
        """Whether the lease is in force. A lease whose end is too far ahead, because of a wrong clock, is not."""
        return now_ms < self.until_ms <= now_ms + LEASE_MS_MAX

    def encode(self) -> bytes:
        holder = " ".join(self.holder.split())
        return f"holder={holder}\nfrom={self.offset}\nuntil={self.until_ms}\n".encode()


def decode(data: bytes) -> Lease:
    """Raises LeaseDamaged."""
    values: dict[str, str] = {}
    for line in data[:_BYTES_MAX].decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        values[name] = value
    try:
        lease = Lease(values["holder"], int(values["from"]), int(values["until"]))
    except (KeyError, ValueError) as error:
        raise LeaseDamaged("must have the lines holder=, from= and until=") from error
    if lease.offset < 0:
        raise LeaseDamaged(f"from={lease.offset} is no offset")
    return lease
