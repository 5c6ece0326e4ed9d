"""The protocol of a client that speaks another one than its port, by its first bytes. Pure."""

from __future__ import annotations

HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"PRI ", b"DELE", b"CONN", b"PATC")
PREFIX_BYTES = 4
PROXY_HEADER_BEGINS = (b"PROX", b"\r\n\r\n")
UNEXPECTED_PROXY_HEADER = "a PROXY header where none is expected; see proxyProtocolHosts"


def other_protocol(first: bytes) -> str | None:
    """A name for the client that sent `first`, of PREFIX_BYTES or more; None if it may be one of this port's."""
    if first[0] == 0x16 and first[1] == 3:  # a TLS record of a handshake, and its version
        return "a TLS client at a port without TLS; set tls.server.mode here, or turn TLS off there"
    if first[:PREFIX_BYTES] in HTTP_METHODS:
        return "an HTTP client at a port that speaks RocketMQ's protocol"
    if first[:PREFIX_BYTES] in PROXY_HEADER_BEGINS:
        return UNEXPECTED_PROXY_HEADER
    return None
