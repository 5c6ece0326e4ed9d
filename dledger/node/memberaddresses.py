"""Where the members speak from: the addresses of the hosts in the peer list.

Invariant: a host that is an address stands for itself, and every loopback address for each other (a member is
reached there under any of them); a name stands for what it resolves to, asked again at most every RESOLVE_EVERY_MS when a
caller is not among the addresses known."""

from __future__ import annotations

import asyncio
import socket
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from mqruntime.clock import Clock

RESOLVE_EVERY_MS = 5000

Address = IPv4Address | IPv6Address


@lru_cache(maxsize=1024)
def parsed(host: str) -> Address | None:
    """None for a name. An IPv4 address in IPv6 clothes is the IPv4 address."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


class MemberAddresses:
    """What is known of hosts, whoever they are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, frozenset[Address]] = {}
        """Name -> what it resolved to last."""
        self._asked_ms: dict[str, int] = {}

    async def is_host(self, host: str, remote_address: str) -> bool:
        """Whether a connection from `remote_address` ("ip:port") comes from `host`, a name or an address."""
        remote = parsed(remote_address.rpartition(":")[0])
        if remote is None:
            return False
        own = parsed(host)
        if own is not None:
            return same(own, remote)
        return self._is_known(host, remote) or (await self._resolved(host) and self._is_known(host, remote))

    def _is_known(self, host: str, remote: Address) -> bool:
        return any(same(known, remote) for known in self._known.get(host, ()))

    async def _resolved(self, host: str) -> bool:
        """Asks what a name stands for, unless it was asked a moment ago. False when nothing new is known."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms.get(host, -RESOLVE_EVERY_MS) < RESOLVE_EVERY_MS:
            return False
        self._asked_ms[host] = now_ms
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return False
        addresses = (parsed(str(sockaddr[0])) for *_, sockaddr in found)
        self._known[host] = frozenset(address for address in addresses if address is not None)
        return True


def same(one: Address, other: Address) -> bool:
    return one == other or (one.is_loopback and other.is_loopback)
