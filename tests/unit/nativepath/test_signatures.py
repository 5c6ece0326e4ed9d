"""The compiled module finds the same signatures right as remoting.signing, over what remoting.headercodec decodes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from nativepath import presence
from remoting.command import RemotingCommand
from remoting.frame import FrameReader, encode
from remoting.signing import Credentials, Signer, signature_of

if TYPE_CHECKING:
    from nativepath.native import Sends

pytestmark = pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "acl" / "signatures.json").read_text()
)
PLAIN = {
    "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795256518702", "h": "0",
    "i": "KEYS\x01k1 k2\x02UNIQ_KEY\x010A0102030A5C18B4\x02", "j": "0", "k": "false", "l": "16", "m": "false", "n": "broker-a",
}  # fmt: skip
SECRETS = {"alice": "wonderland", "bob": "b" * 65, "carol": "\u00e9\u9ad8"}


def states_of(secrets: Mapping[str, str]) -> dict[bytes, tuple[Any, Any]]:
    """RFC 2104, up to the content."""
    states = {}
    for access_key, secret in secrets.items():
        key = secret.encode()
        block = (hashlib.sha1(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
        pads = [hashlib.sha1(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C)]
        states[access_key.encode()] = pads[0], pads[1]
    return states


STATES = states_of(SECRETS)


def read(data: bytes) -> Sends | None:
    assert presence.native is not None
    return presence.native.read_sends(memoryview(bytearray(data)), 0, len(data), 1 << 24, 1 << 20)


def frame(header: str, body: bytes) -> bytes:
    text = header.encode()
    size = 4 + len(text) + len(body)
    return size.to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + body


def signed(
    user: str = "alice", body: bytes = b"body", code: int = 310, token: str | None = None, **ext: str
) -> bytes:
    """The frame as the client of this project sends it."""
    request = RemotingCommand(code, ext=PLAIN | ext, body=body)
    Signer(Credentials(user, SECRETS.get(user, "unknown"), token)).sign(request)
    return b"".join(encode(request))


def unsigned(**ext: str) -> bytes:
    return b"".join(encode(RemotingCommand(310, ext=PLAIN | ext, body=b"body")))


def listed(members: list[tuple[str, str]], body: bytes = b"", code: int = 310, version: int = 479) -> bytes:
    """The frame with these ext fields in this order; a key may occur twice."""
    ext = ",".join(f"{json.dumps(key)}:{value}" for key, value in members)
    return frame(
        f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":5,'
        f'"serializeTypeCurrentRPC":"JSON","version":{version}}}',
        body,
    )


def is_right(data: bytes) -> bool:
    sends = read(data)
    return sends is not None and sends.signed_by(STATES)


@pytest.mark.parametrize("code", [310, 320])
@pytest.mark.parametrize("size", [0, 1, 1_024, 4_096, 4_097, 100_000])
@pytest.mark.parametrize("token", [None, "", "tok-Orders+/="])
def test_a_send_as_the_client_signs_it(size: int, code: int, token: str | None) -> None:
    body = random.Random(size).randbytes(size)
    for user in ("alice", "bob", "carol"):
        assert is_right(signed(user, body, code, token))
        assert is_right(signed(user, body, code, token, i="UNIQ_KEY\x01a"))


def test_sends_of_several_users_in_one_receive() -> None:
    sends = read(
        signed("bob", b="t2") + signed("alice", b"x" * 9_000) + signed("bob") + signed("bob", b="t2")
    )
    assert sends is not None
    assert sends.signers == [(b"bob", b"t2"), (b"alice", b"orders"), (b"bob", b"orders")]
    assert sends.signed_by(STATES) is True and sends.signed_by(STATES) is True, "states are copied"
    assert sends.signed_by({b"bob": STATES[b"bob"]}) is False
    assert sends.signed_by(STATES | {b"alice": STATES[b"bob"]}) is False


@pytest.mark.parametrize(
    "other",
    [
        unsigned(),
        unsigned(AccessKey="alice"),
        unsigned(AccessKey="alice", Signature=""),
        unsigned(Signature="A" * 27 + "="),
        unsigned(AccessKey="alice", Signature="A" * 27 + "="),
        unsigned(AccessKey="alice", signature="A" * 27 + "="),
        signed("mallory"),
        signed("alice").replace(b"body", b"Body"),
        signed("alice").replace(b'"AccessKey":"alice"', b'"AccessKey":"carol"'),
        signed("alice").replace(b'"AccessKey":"alice"', b'"accesskey":"alice"'),
        signed("alice").replace(b'="', b' "'),
    ],
)
def test_one_send_without_a_right_signature_is_enough(other: bytes) -> None:
    for data in (other, signed() + other, other + signed()):
        sends = read(data)
        assert sends is not None and sends.signed_by(STATES) is False


def test_unsigned_sends_have_an_empty_access_key() -> None:
    sends = read(unsigned() + unsigned(b="t2") + unsigned())
    assert sends is not None and sends.signers == [(b"", b"orders"), (b"", b"t2")]
    assert not sends.signed_by(STATES) and not sends.signed_by({b"": STATES[b"alice"]})
    sends = read(signed() + unsigned() + unsigned(b="t2") + signed())
    assert sends is not None and sends.signers == [(b"alice", b"orders"), (b"", b"orders"), (b"", b"t2")]


def test_a_receive_with_very_many_signers_is_not_plain() -> None:
    names = [f"name-{number}" for number in range(64)]
    users = b"".join(signed(name) for name in names)
    sends = read(users + users)
    assert sends is not None and sends.signers == [(name.encode(), b"orders") for name in names]
    assert read(users + signed("name-64")) is None
    assert read(users + signed(names[0], b="t2")) is None
    topics = b"".join(signed(b=name) for name in names)
    sends = read(topics)
    assert sends is not None and sends.signers == [(b"alice", name.encode()) for name in names]
    assert read(topics + unsigned(b=names[0])) is None


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_no_frame_signed_by_java_is_a_plain_send(vector: dict[str, Any]) -> None:
    """One is a send, which has no UNIQ_KEY."""
    assert read(bytes.fromhex(vector["frameHex"])) is None


def test_the_signature_that_java_made_of_a_send() -> None:
    """Values may be moved between keys, and to the body, without an effect on the signature."""
    [vector] = [each for each in VECTORS if each["code"] == 310]
    ext = {"a": "POrders", "b": "TOrders", "c": "TBW102", "d": "4", "e": "3", "f": "0", "i": "", "m": "1"}
    body = bytes.fromhex(vector["contentHex"]).removeprefix(("rocketmq" + "".join(ext.values())).encode())
    assert body.startswith(b"795000000000") and body.endswith(b"hello")
    ext |= {"AccessKey": "rocketmq", "Signature": vector["signature"]}
    data = b"".join(encode(RemotingCommand(310, ext=ext, body=body)))
    sends = read(data)
    assert sends is not None and sends.signers == [(b"rocketmq", b"TOrders")]
    assert sends.signed_by(states_of({"rocketmq": vector["secretKey"]}))
    assert not sends.signed_by(states_of({"rocketmq": vector["secretKey"] + "9"}))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_sends_with_the_ext_fields_that_java_signed(vector: dict[str, Any]) -> None:
    """Their keys sort before, between and behind those of a send."""
    ext = vector["ext"] | PLAIN | {"AccessKey": vector["accessKey"]}
    body = str(vector.get("body", "")).encode()
    ext["Signature"] = signature_of(ext, [body], vector["secretKey"].encode())
    is_plain = "_UNIQUE_KEY_QUERY" not in ext and all(map(str.isascii, [*ext, *ext.values()]))
    sends = read(b"".join(encode(RemotingCommand(310, ext=ext, body=body))))
    assert (sends is not None) == is_plain
    if sends is not None:
        assert sends.signed_by(states_of({vector["accessKey"]: vector["secretKey"]}))


def members_of(data: bytes) -> list[tuple[str, str]]:
    [command] = FrameReader().receive(data)
    return [(key, json.dumps(value)) for key, value in command.ext.items()]


def test_a_signed_send_in_which_a_key_occurs_twice_is_not_plain() -> None:
    members = members_of(signed(z="", token="t"))
    assert is_right(listed(members, b"body"))
    for number, (key, value) in enumerate(members):
        for copy in (value, '""', '"1"'):
            for place in (0, number, number + 1, len(members)):
                twice = [*members[:place], (key, copy), *members[place:]]
                assert read(listed(twice, b"body")) is None, (key, copy, place)
    assert read(listed([*members_of(unsigned()), ("a", '"other"')])) is not None


def test_a_signed_send_with_very_many_ext_fields_is_not_plain() -> None:
    free = 32 - len(PLAIN) - 1
    extra: dict[str, Any] = {f"x{number}": str(number) for number in range(free + 1)}
    assert read(signed(**extra)) is None and read(unsigned(**extra)) is not None
    del extra["x0"]
    assert is_right(signed(**extra))


@pytest.mark.parametrize("value", ["null", "1", "true", "[]", "{}", '"\\u0041"', '"\u00e9"', '"a\\/b"'])
def test_values_of_other_forms_are_not_plain(value: str) -> None:
    for key in ("AccessKey", "SecurityToken", "Signature", "a", "zz"):
        members = [(name, text) for name, text in members_of(signed(token="t")) if name != key]
        assert read(listed([*members, (key, value)])) is None


def test_each_changed_byte_of_what_is_signed_is_noticed() -> None:
    body = b'body"\\\0\xff'
    data = signed(body=body, token="token", zz="behind", i='UNIQ_KEY\x01a\x02q\x01"\\/\n\x02TAGS\x01t')
    assert is_right(data)
    [command] = FrameReader().receive(data)
    places = [*range(len(data) - len(body), len(data))]
    for key, value in command.ext.items():
        member = orjson.dumps({key: value})[1:-1]
        value_at, end = len(f'"{key}":"'), len(member) - 1
        places += range(data.index(member) + value_at, data.index(member) + end)
    assert len(places) > 140
    for place in places:
        for change in range(1, 256):
            changed = data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]
            assert not is_right(changed), (place, change, changed)


PIECES = (
    "KEYS\x01k\x02",
    "TAGS\x01t",
    "\x02",
    "\x01",
    "q\x01",
    'a"b',
    "\\",
    "\\\\",
    "/",
    "\n\t\r\b\f",
    "\x7f",
    "WAIT\x01true\x02",
)
RARE_PIECES = "\u00e9", "\u9ad8\U0001f680", "\0", "DELAY\x013\x02"
KEYS = (
    "o",
    "aa",
    "A",
    "Access",
    "AccessKez",
    "Signaturf",
    "SecurityToken",
    "accesskey",
    "SIGNATURE",
    "z",
    "0",
    "",
    "~",
    "zz",
    "lo",
)
RARE_KEYS = "_UNIQUE_KEY_QUERY", "\u00e9", 'x"y', "\U0001f680", "\uffee"
VALUES = "", "0", "true", "some value", "+/=", "x" * 200
RARE_VALUES = "\u00e9", 'a"b', "\\", "\x01"
WRITERS: list[Callable[[str], str]] = [
    json.dumps,
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    lambda text: json.dumps(text).replace("/", "\\/"),
    lambda text: '"' + "".join(f"\\u{ord(each):04x}" if each < "\x7f" else each for each in text) + '"',
]


class Cases:
    """Random frames, most of which are plain sends with a right signature."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _one_in(self, count: int) -> bool:
        return self._random.randrange(count) == 0

    def _either(self, common: tuple[str, ...], rare: tuple[str, ...]) -> str:
        return self._random.choice(rare if self._one_in(150) else common)

    def _properties(self) -> str:
        pieces = [self._either(PIECES, RARE_PIECES) for _ in range(self._random.randrange(6))]
        name = "UNIQ_KEY\x010A0102030A5C18B4" + self._random.choice(["", "\x02"])
        text = "".join(pieces)
        return name + "\x02" * bool(text) + text if self._one_in(2) else text + "\x02" * bool(text) + name

    def _ext(self) -> dict[str, str]:
        ext = PLAIN | {"i": self._properties(), "b": self._random.choice(["orders", "t2"])}
        for key in self._random.sample(["a", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n"], 3):
            if self._one_in(2):
                del ext[key]
        for _ in range(self._random.randrange(4)):
            ext[self._either(KEYS, RARE_KEYS)] = self._either(VALUES, RARE_VALUES)
        if not self._one_in(12):
            ext["AccessKey"] = self._random.choice(["alice", "alice", "bob", "carol"])
        return ext

    def _members(self, ext: dict[str, str]) -> list[tuple[str, str]]:
        plain = {key: json.dumps(value, ensure_ascii=self._one_in(2)) for key, value in ext.items()}
        if not self._one_in(3):
            plain["i"] = self._random.choice(WRITERS)(ext["i"])
        members = list(plain.items())
        if self._one_in(12):
            members.append(("zzz", self._random.choice(["null", "1", "1.50", "true", "{}"])))
        if self._one_in(12):
            members.append(self._random.choice(members))
        if self._one_in(2):
            self._random.shuffle(members)
        return members

    def frames(self) -> bytes:
        return b"".join(self._frame() for _ in range(self._random.choice([1, 1, 1, 2, 3])))

    def _frame(self) -> bytes:
        members, body = self._members(self._ext()), self._random.randbytes(self._random.choice([0, 7, 300]))
        code, version = self._random.choice([310] * 40 + [320]), self._random.choice([399, 479])
        [command] = FrameReader().receive(listed(members, body, code, version))
        secret = SECRETS.get(command.ext.get("AccessKey", ""), "")
        signature = signature_of(command.ext, [body], secret.encode())
        if self._one_in(20):
            signature = self._random.choice([signature[:-1], signature.lower(), "", signature + "="])
        if not self._one_in(40):
            members.insert(self._random.randrange(len(members) + 1), ("Signature", json.dumps(signature)))
        return listed(members, body, code, version)


def has_right_signature(command: RemotingCommand) -> bool:
    secret = SECRETS.get(command.ext.get("AccessKey", ""))
    body = [] if command.body is None else [command.body]
    return secret is not None and command.ext.get("Signature") == signature_of(
        command.ext, body, secret.encode()
    )


@pytest.mark.parametrize("seed", range(4))
def test_random_sends_are_signed_as_decoded(seed: int) -> None:
    cases, outcomes = Cases(seed), {True: 0, False: 0, None: 0}
    for _ in range(2_500):
        data = cases.frames()
        sends = read(data)
        if sends is None:
            outcomes[None] += 1
            continue
        commands = FrameReader().receive(data)
        signers = dict.fromkeys((each.ext.get("AccessKey", ""), each.ext["b"]) for each in commands)
        assert sends.signers == [(user.encode(), topic.encode()) for user, topic in signers], data
        right = all(map(has_right_signature, commands))
        assert sends.signed_by(STATES) == right, data
        outcomes[right] += 1
    assert min(outcomes.values()) > 200 and outcomes[True] > 800, outcomes
