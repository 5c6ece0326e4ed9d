"""PROXY headers of both versions: the source that they name, where they end, and those that are refused."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from mqruntime.proxyheader import (
    LINE_BYTES_MAX,
    MISSING,
    PROXY_BYTES_MAX,
    SIGNATURE,
    ClientAddress,
    ProxyHeaderError,
    read_proxy_header,
)

CLIENT = ClientAddress("10.9.1.2", 40_001)
LINE = b"PROXY TCP4 10.9.1.2 10.0.0.1 40001 10911\r\n"
LINE_6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 40001 10911\r\n"
FIELDS = b"\x04\x00\x03abc" + b"\x01\x00\x02h2"


def binary(first: int, family: int, content: bytes, rest_bytes: int | None = None) -> bytes:
    length = len(content) if rest_bytes is None else rest_bytes
    return SIGNATURE + bytes([first, family]) + length.to_bytes(2, "big") + content


def addresses(source: str, destination: str, *ports: int) -> bytes:
    packed = ip_address(source).packed + ip_address(destination).packed
    return packed + b"".join(port.to_bytes(2, "big") for port in ports)


V4 = addresses("10.9.1.2", "10.0.0.1", 40_001, 10_911)
V6 = addresses("2001:db8::7", "2001:db8::1", 40_001, 10_911)
LONGEST = binary(0x21, 0x11, V4.ljust(PROXY_BYTES_MAX - 16, b"\0"))

SERVED: list[tuple[bytes, ClientAddress | None]] = [
    (LINE, CLIENT),
    (LINE_6, ClientAddress("2001:db8::7", 40_001)),
    (b"PROXY TCP4 255.255.255.254 255.255.255.255 65535 0\r\n", ClientAddress("255.255.255.254", 65_535)),
    (b"PROXY TCP6 2001:DB8:0:0:0:0:0:7 ::1 0 1\r\n", ClientAddress("2001:db8::7", 0)),
    (b"PROXY TCP6 ::ffff:10.9.1.2 ::ffff:10.0.0.1 40001 1\r\n", CLIENT),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN 10.9.1.2 any\xff thing\n\r\n", None),
    (b"PROXY UNKNOWN ".ljust(LINE_BYTES_MAX - 2, b"x") + b"\r\n", None),
    (b"PROXY TCP4 127.0.0.1 10.0.0.1 40001 1\r\n", None),
    (b"PROXY TCP6 ::1 ::1 40001 1\r\n", None),
    (binary(0x21, 0x11, V4), CLIENT),
    (binary(0x21, 0x21, V6), ClientAddress("2001:db8::7", 40_001)),
    (binary(0x21, 0x11, V4 + FIELDS), CLIENT),
    (binary(0x21, 0x21, V6 + FIELDS), ClientAddress("2001:db8::7", 40_001)),
    (binary(0x21, 0x21, addresses("::ffff:10.9.1.2", "::ffff:10.0.0.1", 40_001, 1)), CLIENT),
    (binary(0x21, 0x11, addresses("127.8.0.1", "10.0.0.1", 40_001, 1)), None),
    (binary(0x21, 0x21, addresses("::ffff:127.0.0.1", "::1", 40_001, 1)), None),
    (binary(0x20, 0x00, b""), None),
    (binary(0x20, 0x00, FIELDS), None),
    (binary(0x20, 0x11, V4), None),
    (binary(0x20, 0x31, b"x"), None),
    (LONGEST, CLIENT),
]


@pytest.mark.parametrize(("header", "source"), SERVED)
def test_a_header_ends_where_it_ends_whatever_follows(header: bytes, source: ClientAddress | None) -> None:
    assert [read_proxy_header(header[:size]) for size in range(len(header))] == [None] * len(header)
    for follows in (b"", b"\0", b"\x16\x03\x01", LINE, SIGNATURE, b"\r\n" * 600):
        assert read_proxy_header(header + follows) == (len(header), source)


REFUSED = [
    (b"\0\0\0\x50", MISSING),
    (b"\x16\x03\x01", MISSING),
    (b"GET / HTTP/1.1\r\n", MISSING),
    (b"PROXX", MISSING),
    (b"proxy TCP4 ", MISSING),
    (b"PROXY\tTCP4", MISSING),
    (b"\r\n\r\nX", MISSING),
    (SIGNATURE[:-1] + b"X", MISSING),
    (b"PROXY \r\n", "malformed PROXY line"),
    (b"PROXY UNKNOWNS\r\n", "malformed PROXY line"),
    (b"PROXY TCP4\r\n", "malformed PROXY line"),
    (b"PROXY TCP5 10.9.1.2 10.0.0.1 1 1\r\n", "malformed PROXY line"),
    (b"PROXY UDP4 10.9.1.2 10.0.0.1 1 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP4  10.9.1.2 10.0.0.1 1 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 1 1 \r\n", "malformed PROXY line"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 01 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 -1 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 \xd9\xa3 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 client 10.0.0.1 1 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP6 fe80::1%eth0 ::1 1 1\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 1 1\n\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 10.9.1 10.0.0.1 1 1\r\n", "malformed address"),
    (b"PROXY TCP4 10.9.1.02 10.0.0.1 1 1\r\n", "malformed address"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.256 1 1\r\n", "malformed address"),
    (b"PROXY TCP4 2001:db8::7 2001:db8::1 1 1\r\n", "malformed address"),
    (b"PROXY TCP6 10.9.1.2 10.0.0.1 1 1\r\n", "malformed address"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 65536 1\r\n", "malformed port"),
    (b"PROXY TCP4 10.9.1.2 10.0.0.1 1 99999\r\n", "malformed port"),
    (b"PROXY TCP4 0.0.0.0 10.0.0.1 1 1\r\n", "no client can have"),
    (b"PROXY TCP6 ff02::1 ::1 1 1\r\n", "no client can have"),
    (b"PROXY UNKNOWN ".ljust(LINE_BYTES_MAX - 1, b"x") + b"\r\n", "more than 107 bytes"),
    (b"PROXY ".ljust(LINE_BYTES_MAX, b"x"), "more than 107 bytes"),
    (binary(0x11, 0x11, V4), "unknown version or command"),
    (binary(0x31, 0x11, V4), "unknown version or command"),
    (binary(0x22, 0x11, V4), "unknown version or command"),
    (binary(0x21, 0x00, b""), "another family"),
    (binary(0x21, 0x12, V4), "another family"),
    (binary(0x21, 0x10, V4), "another family"),
    (binary(0x21, 0x31, b"x" * 216), "another family"),
    (binary(0x21, 0x11, V4[:-1]), "too short"),
    (binary(0x21, 0x21, V4), "too short"),
    (binary(0x21, 0x11, b"", PROXY_BYTES_MAX - 15), "a PROXY header of 537 bytes; 536 are read"),
    (binary(0x20, 0x00, b"", 0xFFFF), "a PROXY header of 65551 bytes; 536 are read"),
    (binary(0x21, 0x11, addresses("224.0.0.1", "10.0.0.1", 1, 1)), "no client can have"),
    (binary(0x21, 0x21, addresses("::", "::1", 1, 1)), "no client can have"),
]


@pytest.mark.parametrize(("data", "why"), REFUSED)
def test_what_is_no_header_is_refused_and_stays_refused(data: bytes, why: str) -> None:
    for follows in (b"", b"\r\n", LINE, b"\0" * 700):
        with pytest.raises(ProxyHeaderError, match=why):
            read_proxy_header(data + follows)
