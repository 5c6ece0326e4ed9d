"""The header by which a proxy names the client of a connection: HAProxy's PROXY protocol, versions 1 and 2. Pure.

Invariant: while a header is incomplete, all bytes so far belong to it, and there are at most PROXY_BYTES_MAX of them. Bytes
after a header have no influence. So a caller may take the bytes of an incomplete header from the connection at once, and leave
there what follows the header.

Specification: https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import NamedTuple

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""The beginning of version 2."""
LINE_BEGIN, LINE_END = b"PROXY ", b"\r\n"
"""Version 1 is a line of text."""
LINE_BYTES_MAX = 107
PROXY_BYTES_MAX = 536
"""The IPv4 addresses and some extra fields, as the specification recommends. Longer headers are refused."""

FIXED_PART = Struct(
    ">"  #    offset field
    "12s"  #  0 signature
    "B"  #   12 version_and_command  in its upper and lower half
    "B"  #   13 family               of addresses and transport
    "H"  #   14 rest_bytes           after this part: addresses, then fields of type, length and value
)
LOCAL, PROXY = 0x20, 0x21
"""A connection of the proxy itself, and one of a client."""
ADDRESSES = {
    0x11: Struct(">4s4sHH"),  # TCP over IPv4: source and destination, their ports
    0x21: Struct(">16s16sHH"),  # TCP over IPv6
}
UNKNOWN = re.compile(rb"PROXY UNKNOWN(?: .*)?", re.DOTALL)
LINE = re.compile(
    rb"PROXY TCP([46]) ([0-9a-fA-F.:]+) ([0-9a-fA-F.:]+) (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4})"
)
PORT_MAX = 65_535

MISSING = "a connection without a PROXY header, which proxyProtocolHosts demands of this host"


class ProxyHeaderError(ValueError):
    """The bytes do not begin with a header that is served."""


class ClientAddress(NamedTuple):
    """The client's end of a connection."""

    host: str
    port: int


class ProxyHeader(NamedTuple):
    """A whole header."""

    size: int
    source: ClientAddress | None
    """None if the proxy's own address counts: for the proxy's own connections, and for those from its machine."""


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of `data`; None while it is incomplete. Raises ProxyHeaderError."""
    if SIGNATURE.startswith(data[: len(SIGNATURE)]):
        return _read_binary(data)
    if LINE_BEGIN.startswith(data[: len(LINE_BEGIN)]):
        return _read_line(data)
    raise ProxyHeaderError(MISSING)


def _read_line(data: bytes) -> ProxyHeader | None:
    end = data.find(LINE_END, 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise ProxyHeaderError(f"a PROXY line of more than {LINE_BYTES_MAX} bytes")
        return None
    line, size = data[:end], end + len(LINE_END)
    if UNKNOWN.fullmatch(line):
        return ProxyHeader(size, None)
    words = LINE.fullmatch(line)
    if words is None:
        raise ProxyHeaderError("a malformed PROXY line")
    family, *texts = (word.decode() for word in words.groups())
    kind = IPv4Address if family == "4" else IPv6Address
    ports = [int(text) for text in texts[2:]]
    try:
        source, _ = [kind(text) for text in texts[:2]]
    except ValueError:
        raise ProxyHeaderError("a PROXY line with a malformed address") from None
    if max(ports) > PORT_MAX:
        raise ProxyHeaderError("a PROXY line with a malformed port")
    return ProxyHeader(size, _source(source, ports[0]))


def _read_binary(data: bytes) -> ProxyHeader | None:
    if len(data) < FIXED_PART.size:
        return None
    _, version_and_command, family, rest_bytes = FIXED_PART.unpack_from(data)
    size = FIXED_PART.size + rest_bytes
    addresses = ADDRESSES.get(family)
    if version_and_command not in (LOCAL, PROXY):
        raise ProxyHeaderError("a PROXY header of an unknown version or command")
    if size > PROXY_BYTES_MAX:
        raise ProxyHeaderError(f"a PROXY header of {size} bytes; {PROXY_BYTES_MAX} are read")
    if version_and_command == PROXY and addresses is None:
        raise ProxyHeaderError("a PROXY header of another family than TCP over IPv4 or IPv6")
    if version_and_command == PROXY and addresses is not None and rest_bytes < addresses.size:
        raise ProxyHeaderError("a PROXY header too short for its addresses")
    if len(data) < size:
        return None
    if version_and_command == LOCAL or addresses is None:
        return ProxyHeader(size, None)
    source, _, port, _ = addresses.unpack_from(data, FIXED_PART.size)
    return ProxyHeader(size, _source(IPv4Address(source) if len(source) == 4 else IPv6Address(source), port))


def _source(address: IPv4Address | IPv6Address, port: int) -> ClientAddress | None:
    """The source at `address`; an IPv4-mapped IPv6 address is the IPv4 address. A loopback address is one of the proxy's
    machine: the server must not take the client for one of its own machine. Raises ProxyHeaderError."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    plain = mapped or address
    if plain.is_unspecified or plain.is_multicast:
        raise ProxyHeaderError("a PROXY header with a source address that no client can have")
    return None if plain.is_loopback else ClientAddress(str(plain), port)
