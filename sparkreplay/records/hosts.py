"""A stored host as text. The stored bytes are an IP (4 or 16 bytes) and a port (4 bytes).

Invariant: an IP is written as in Java (InetAddress.getHostAddress): IPv6 with all eight groups, and an IPv4 address in IPv6
as the IPv4 address."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def host_text(raw: bytes | memoryview) -> str:
    """A host as stored in a record, as `10.0.0.1:10911` or `[0:0:0:0:0:0:0:1]:10911`."""
    address = ip_address(bytes(raw[:-4]))
    port = int.from_bytes(raw[-4:], "big")
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        groups = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
        return f"[{groups}]:{port}"
    return f"{getattr(address, 'ipv4_mapped', None) or address}:{port}"
