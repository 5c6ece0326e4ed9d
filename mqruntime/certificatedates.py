"""When a certificate is valid, read from its PEM file: the first certificate there. X.509: RFC 5280, section 4.1.

The standard library shows this only for a peer whose certificate was verified. Pure."""

from __future__ import annotations

import base64
import re
from calendar import timegm
from typing import NamedTuple

VERSION = 0xA0
"""The tag of an optional part before the others."""
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
TIME = re.compile(r"\d{14}Z", re.ASCII)
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class Validity(NamedTuple):
    """First and last moment, in ms since 1970."""

    begins_ms: int
    ends_ms: int


class NoCertificate(ValueError):
    """The text has no certificate that can be read."""


def validity_of(pem: str) -> Validity:
    """Raises NoCertificate."""
    _, begin, rest = pem.partition(BEGIN)
    text, end, _ = rest.partition(END)
    if not begin or not end:
        raise NoCertificate("there is no BEGIN CERTIFICATE and END CERTIFICATE")
    try:
        return _validity(base64.b64decode("".join(text.split()), validate=True))
    except (ValueError, IndexError) as error:
        raise NoCertificate(f"the certificate cannot be read: {error}") from None


def _validity(certificate: bytes) -> Validity:
    """Of its DER form: tbsCertificate is the first part, and validity comes behind serial number, algorithm and issuer."""
    signed = _parts(_parts(certificate)[0][1])
    body = [part for part in _parts(signed[0][1]) if part[0] != VERSION]
    begins, ends = _parts(body[3][1])
    return Validity(_time(begins), _time(ends))


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """The values one behind the other in `data`, each with its tag."""
    found, at = [], 0
    while at < len(data):
        tag, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + size > len(data):
            raise ValueError("a value is longer than the rest")
        found.append((tag, data[at : at + size]))
        at += size
    return found


def _time(value: tuple[int, bytes]) -> int:
    tag, text = value[0], value[1].decode("ascii")
    if tag == UTC_TIME:  # two digits of the year: 50 to 49 are 1950 to 2049
        text = ("20" if int(text[:2]) < 50 else "19") + text
    elif tag != GENERALIZED_TIME:
        raise ValueError(f"a time has the tag {tag}")
    if not TIME.fullmatch(text):
        raise ValueError(f"{text!r} is no time")
    year, *rest = int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))
    return timegm((year, *rest)) * 1000
