"""Hosts and addresses in settings and options, checked before any attempt to connect.

Invariant: an accepted text is an IP address or a name that a resolver could know, with a port; so `a:1,b:2` (a comma instead
of a semicolon), `http://a:1` and an address without a port are rejected by name, and none of them is ever resolved. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
NAME_LENGTH_MAX = 253
PORT_MAX = 65_535


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


def _is_ip(kind: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
