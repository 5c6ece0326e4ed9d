"""Bytes for the replication port of a set's master. The master must not act on them, whatever sender they name. Pure."""

from __future__ import annotations

from ha.classic.frames import REPORT, PairTransferHeader
from ha.frames import ACK, ADDRESS_HANDSHAKE, HANDSHAKE, TRANSFER, TransferHeader
from simulation.hostile.frames import I32_MAX, I64_MAX, OTHER_PROTOCOLS


def handshake(broker_id: int, state: int = 1, kind: int = 0) -> bytes:
    return HANDSHAKE.pack(state, 0, kind, broker_id)


def ack(end: int, state: int = 2) -> bytes:
    return ACK.pack(state, end)


def to_masters(stranger: int, master: int) -> dict[str, bytes]:
    """Valid and invalid messages of a slave. `stranger` is an unused id, and `master` is the master's id."""
    found = dict(OTHER_PROTOCOLS)
    for state in (-1, 0, 2, 3, 4, 5, I32_MAX):
        found[f"handshake in state {state}"] = handshake(stranger, state)
    for end in (I64_MAX, -1, -I64_MAX - 1, 0, 2**62):
        found[f"ack of {end} without handshake"] = ack(end)
        found[f"handshake of a stranger, ack of {end}"] = handshake(stranger) + ack(end)
        found[f"handshake as the master, ack of {end}"] = handshake(master) + ack(end) * 2
    for broker_id in (-1, 0, I64_MAX, -I64_MAX - 1):
        found[f"handshake of {broker_id}"] = handshake(broker_id) + ack(0)
    found["two handshakes"] = handshake(stranger) * 2
    found["ack that falls"] = handshake(stranger) + ack(4096) + ack(0)
    found["unknown kind"] = handshake(stranger, kind=-1)
    found["half a handshake"] = handshake(stranger)[:11]
    for size in (-1, I32_MAX, 1_025, 12):
        found[f"an address of {size} bytes"] = ADDRESS_HANDSHAKE.pack(1, 0, 0, size) + b"\xff/../\0" * 4
    found["a master's frame"] = TransferHeader(I32_MAX, 0, 1, 0, I64_MAX).encode()
    found["an empty frame without end"] = TRANSFER.pack(2, 0, 0, -1, -1, -1) * 100
    return found


def to_pair_masters(log_end: int) -> dict[str, bytes]:
    """Bytes that are no valid report of a slave to a pair's master whose log ends at or above `log_end`. Any sender of valid
    reports is a slave, because this protocol has no names."""
    far = {"": REPORT.pack(I64_MAX), " but one": REPORT.pack(I64_MAX - 1), " below": REPORT.pack(-1)}
    found = dict(OTHER_PROTOCOLS) | {f"the furthest report{name}": data for name, data in far.items()}
    found["the lowest report"] = REPORT.pack(-I64_MAX - 1)
    found["a report beyond the log"] = REPORT.pack(log_end + (1 << 30))
    found["a report that falls"] = REPORT.pack(log_end) + REPORT.pack(0)
    found["a report above what was sent"] = REPORT.pack(log_end) + REPORT.pack(log_end + (1 << 20))
    found["half a report"] = REPORT.pack(log_end)[:5]
    found["a handshake of the other protocol"] = handshake(1) + ack(log_end)
    found["a master's frame"] = PairTransferHeader(log_end, I32_MAX).encode()
    return found
