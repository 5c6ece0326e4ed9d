"""Hosts and addresses in settings and options, checked before any attempt to connect.

Invariant: an accepted text is an IP address or a name that a resolver could know, with a port; so `a:1,b:2` (a comma instead
of a semicolon), `http://a:1` and an address without a port are rejected by name, and none of them is ever resolved. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
NAME_LENGTH_MAX = 253
PORT_MAX = 65_535
RANGE = re.compile(r"[0-9a-fA-F.:]+(?:/[0-9]{1,3})?")


class AddressRanges:
    """The IP addresses of a list `ADDRESS,ADDRESS/BITS`, also with ; between."""

    def __init__(self, text: str = "") -> None:
        """Raises ValueError with the reason if an entry is neither."""
        self._networks = [_range(part.strip()) for part in re.split("[,;]", text) if part.strip()]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, host: str) -> bool:
        """Whether the IP address `host` is one of them; an IPv4-mapped IPv6 address is the IPv4 address."""
        address = ip_address(host.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)

    @property
    def have_all_of_a_family(self) -> bool:
        """Whether all IPv4 or all IPv6 addresses are among them."""
        return any(network.prefixlen == 0 for network in self._networks)


def check_host(text: str) -> str:
    """`text`, a host. Raises ValueError with the reason if it is none."""
    if (why := _why_no_host(text)) is not None:
        raise ValueError(f"{text!r} is no host: {why}")
    return text


def check_address(text: str) -> str:
    """`text`, one HOST:PORT. Raises ValueError with the reason if it is none."""
    host, colon, port = text.rpartition(":")
    why = _why_no_text(text)
    if why is None and not (colon and host):
        why = "the port is missing" if text else "it is empty"
    if why is None and not (port.isascii() and port.isdigit() and 0 < int(port[:9]) <= PORT_MAX):
        why = f"{port!r} is no port from 1 to {PORT_MAX}"
    if why is None:
        why = _why_no_host(host)
    if why is not None:
        raise ValueError(f"{text!r} is not HOST:PORT ({why}); several are separated by ;")
    return text


def addresses_in(text: str) -> list[str]:
    """The entries of a `HOST:PORT;HOST:PORT` list, blanks and empty parts dropped. Raises ValueError."""
    return [check_address(part.strip()) for part in text.split(";") if part.strip()]


def _why_no_text(text: str) -> str | None:
    if "://" in text:
        return f"without {text.partition('://')[0]}://"
    if "," in text:
        return "a comma where ; is due"
    if any(character.isspace() for character in text):
        return "it has a blank in it"
    return None


def _why_no_host(host: str) -> str | None:
    if (why := _why_no_text(host)) is not None:
        return why
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in bare:
        return None if _is_ip(IPv6Address, bare) else "it is no IPv6 address"
    labels = bare.removesuffix(".").split(".")
    if all(label.isascii() and label.isdigit() for label in labels):
        return None if _is_ip(IPv4Address, bare) else "it is no IPv4 address"
    try:
        name = bare if bare.isascii() else bare.encode("idna").decode()
    except UnicodeError:
        return "it is no name of a host"
    labels = name.removesuffix(".").split(".")
    if len(name) > NAME_LENGTH_MAX or not all(map(LABEL.fullmatch, labels)):
        return "it is no name of a host"
    return None


def _range(text: str) -> IPv4Network | IPv6Network:
    if not RANGE.fullmatch(text):
        raise ValueError(f"{text!r} is neither ADDRESS nor ADDRESS/BITS, of IP addresses")
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is neither ADDRESS nor ADDRESS/BITS: {error}") from None
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError(f"{text!r} must be written as IPv4")
    return network


def _is_ip(kind: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
