"""A stored host as text: IP (4 or 16 bytes), then the port in 4."""

from __future__ import annotations

from ipaddress import ip_address


def host_text(raw: bytes | memoryview) -> str:
    """`10.0.0.1:10911` or `[::1]:10911`; an IP with its port, as stored in a record."""
    address = ip_address(bytes(raw[:-4]))
    port = int.from_bytes(raw[-4:], "big")
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"
