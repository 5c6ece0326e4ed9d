"""The servers that the certificate at the other end of a connection speaks for.

A certificate speaks for every port of the host names and IP addresses among its subjectAltNames. If some of those names are
URIs `rocketmq://HOST:PORT`, it speaks only for these addresses: so servers that share a host have separate identities. A
wildcard speaks for no server, or one member's certificate would speak for the others.

URIs `rocketmq:broker/SET`, `rocketmq:controller` and `rocketmq:namesrv` are roles: a certificate with roles is for no other
server, for example for no broker of another set. Without them it is for all. Names: RFC 5280, section 4.2.1.6. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

ADDRESS_SCHEME, ROLE_SCHEME = "rocketmq://", "rocketmq:"
CONTROLLER, NAME_SERVER, BROKER = "controller", "namesrv", "broker/"


def broker_role(broker_name: str) -> str:
    """The role of the brokers of a set."""
    return BROKER + quote(broker_name)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """What is known of the other end. `was_asked`: the port asks for certificates; where it does not, everybody may claim every
    address."""

    was_asked: bool
    hosts: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()

    def speaks_for(self, address: str) -> bool:
        """Whether the other end may be the server at `address`, "host:port"."""
        if not self.was_asked:
            return True
        if self.addresses:
            return _plain(address) in self.addresses
        return _plain_host(address.rpartition(":")[0]) in self.hosts

    def may_be(self, role: str) -> bool:
        """Whether the other end may have this role."""
        return not self.was_asked or not self.roles or role in self.roles

    def speaks_for_one_of(self, addresses: Iterable[str]) -> bool:
        return any(map(self.speaks_for, addresses))

    @property
    def is_of_server(self) -> bool:
        """Whether the other end may be some server: a client's certificate has none of the names."""
        return not self.was_asked or bool(self.addresses or self.hosts)

    def contradicts(self, address: str) -> bool:
        """Whether it speaks for single addresses, but not for `address`."""
        return bool(self.addresses) and _plain(address) not in self.addresses


NOT_ASKED = PeerCertificate(was_asked=False)
MISSING = PeerCertificate(was_asked=True)


def names_in(certificate: Mapping[str, Any]) -> PeerCertificate:
    """The names in a verified certificate, as `SSLSocket.getpeercert` returns it."""
    hosts, addresses, roles = set(), set(), set()
    for kind, name in certificate.get("subjectAltName", ()):
        if kind in ("DNS", "IP Address"):
            hosts.add(_plain_host(name))
        elif kind == "URI" and name.startswith(ADDRESS_SCHEME):
            addresses.add(_plain(name.removeprefix(ADDRESS_SCHEME).rstrip("/")))
        elif kind == "URI" and name.startswith(ROLE_SCHEME):
            roles.add(name.removeprefix(ROLE_SCHEME))
    named = frozenset(host for host in hosts if "*" not in host)
    return PeerCertificate(True, named, frozenset(addresses), frozenset(roles))


def certificate_of(transport: Any) -> PeerCertificate:
    """Of the other end of `transport`, an asyncio transport."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None or not tls.context.verify_mode:
        return NOT_ASKED
    certificate = tls.getpeercert()
    return names_in(certificate) if certificate else MISSING


def _plain(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{_plain_host(host)}:{port}"


def _plain_host(host: str) -> str:
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return str(ip_address(bare))
    except ValueError:
        return ascii_name(bare)


def ascii_name(host: str) -> str:
    """A host name as certificates have it: names with other letters in their ASCII form."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host
