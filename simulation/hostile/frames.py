"""Bytes of other protocols, or of no valid remoting frame, for every port that reads remoting frames.

Invariant: for each entry, the server answers with an error, or ends the connection, or, if nothing is requested, does not
answer. Pure."""

from __future__ import annotations

from remoting.codes import RequestCode
from remoting.command import ROCKETMQ, RemotingCommand
from remoting.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX, encode

I32_MAX, I64_MAX = 2**31 - 1, 2**63 - 1
LENGTHS = (0, 1, 3, 4, FRAME_BYTES_MAX + 1, I32_MAX, 2**31, 2**32 - 1)
OTHER_PROTOCOLS = {
    "TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(194),
    "HTTP": b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "gRPC preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "SSH": b"SSH-2.0-x\r\n",
    "newlines": b"\r\n" * 100,
}


def sized(size: int, rest: bytes = b"") -> bytes:
    return size.to_bytes(4, "big") + rest


def framed(header: bytes, kind: int = 0, body: bytes = b"") -> bytes:
    """A frame whose header is these bytes."""
    return sized(4 + len(header) + len(body), (kind << 24 | len(header)).to_bytes(4, "big")) + header + body


def whole(command: RemotingCommand) -> bytes:
    return b"".join(map(bytes, encode(command)))


def bad_lengths() -> dict[str, bytes]:
    """Bad lengths of the frame, and of the header in it."""
    found = {f"frame of {size}": sized(size, bytes(8)) for size in LENGTHS}
    for size in (17, HEADER_BYTES_MAX + 1, 2**24 - 1):
        found[f"header of {size} in a frame of 20"] = sized(16, size.to_bytes(4, "big") + bytes(12))
    for kind in (2, 127, 255):
        found[f"serialize type {kind}"] = framed(b"{}", kind)
    return found


def json_headers() -> dict[str, bytes]:
    """JSON headers of whole frames."""
    headers = {
        "a nest of 30,000": b"[" * 30_000,
        "a nest of objects": b'{"a":' * 10_000,
        "double keys": b'{"code":105,"code":34,"extFields":{"topic":"a","topic":"b"}}',
        "10,000 digits": b'{"code":34,"opaque":' + b"9" * 10_000 + b"}",
        "NaN": b'{"code":NaN}',
        "lone surrogate": b'{"code":105,"extFields":{"topic":"\\ud800"}}',
        "no UTF-8": b'{"code":105,"remark":"\xff\xfe"}',
        "@type": b'{"@type":"java.lang.Class","code":34,"val":"x"}',
        "ext values of other types": b'{"code":105,"extFields":{"topic":{"a":[1]},"n":1e999}}',
        "ext is a list": b'{"code":105,"extFields":["topic"]}',
        "no code": b'{"opaque":1}',
        "code 2^40": b'{"code":1099511627776}',
        "negative code": b'{"code":-2147483648,"opaque":-1}',
        "null": b"null",
        "nothing": b"",
        "one-way reply": b'{"code":0,"flag":3,"opaque":1}',
        "reply that nobody asked for": b'{"code":0,"flag":1,"opaque":1,"extFields":{"a":"b"}}',
        "every flag": b'{"code":34,"flag":-1,"opaque":1}',
    }
    return {name: framed(header) for name, header in headers.items()}


def binary_headers() -> dict[str, bytes]:
    """Headers in the ROCKETMQ encoding, each with an impossible size of another kind."""
    command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": "x"}, serialize_type=ROCKETMQ)
    header = whole(command)[8:]
    found: dict[str, bytes] = {}
    for what, at, width in (("remark", 13, 4), ("ext", 17, 4), ("key", 21, 2), ("value", 28, 4)):
        for size in (-1, -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1):
            changed = header[:at] + size.to_bytes(width, "big", signed=True) + header[at + width :]
            found[f"{what} of {size}"] = framed(changed, 1)
    found["a byte more"] = framed(header + b"x", 1)
    found["cut off"] = framed(header[:-1], 1)
    found["no key"] = framed(header[:17] + b"\0\0\0\6" + bytes(6), 1)
    found["language 255, version -1"] = framed(header[:2] + b"\xff\xff\xff" + header[5:], 1)
    return found


def begun_frames() -> dict[str, bytes]:
    """Frames that are begun and never ended."""
    request = whole(RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO, {"a": "b" * 40}))
    found = {f"the first {count} bytes": request[:count] for count in (1, 3, 4, 7, 8, 20, len(request) - 1)}
    found["16 MiB to come"] = sized(FRAME_BYTES_MAX - 4, bytes(4) + b"x" * 1_000)
    return found


def not_frames() -> dict[str, bytes]:
    """All of these bytes, by name."""
    parts = (OTHER_PROTOCOLS, bad_lengths(), json_headers(), binary_headers(), begun_frames())
    return {name: data for part in parts for name, data in part.items()}
