"""The check of requests before their handlers: signatures, users, rights, and what they remember."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from accesscontrol import guard as guard_module
from accesscontrol.directory import KnownUser
from accesscontrol.guard import OpenAccess, hash_states, is_signed
from accesscontrol.needs import Table, why_not_open
from accesscontrol.policies import Action, Kind, Need
from mqruntime.peercertificate import MISSING, PeerCertificate
from nativepath import presence
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.dispatch import RequestDispatcher
from remoting.errors import BodyError, HeaderError
from remoting.fastjson import FastJsonError
from remoting.frame import FrameReader, encode
from remoting.router import Router
from remoting.signing import Credentials, Signer
from tests.unit.accesscontrol.guardscene import (
    ALICE,
    CHANGE,
    READ,
    READ_BY_SERVERS,
    ROOT,
    SEND,
    SEND_MANY,
    SERVE,
    SERVERS,
    TABLE,
    ClientPeer,
    Scene,
    named,
    no_right,
    request,
)

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "acl" / "signatures.json").read_text()
)
UNSIGNED = (16, "username cannot be null.")
WRONG = (16, "check signature failed.")
SERVER = PeerCertificate(True, frozenset({"10.0.2.1"}))
CLIENT = PeerCertificate(True)


# -- who signed


def test_a_request_needs_a_known_enabled_user_and_the_right_signature() -> None:
    scene = Scene()
    scene.users.allow("*")
    assert scene.asked(READ) is None
    assert scene.asked(READ, None) == UNSIGNED
    assert scene.asked(READ, None, AccessKey="") == UNSIGNED
    assert scene.asked(READ, Credentials("ghost", "x")) == (16, "User:ghost is not found.")
    assert scene.asked(READ, Credentials("alice", "wrong")) == WRONG
    assert scene.asked(READ, None, AccessKey="alice") == WRONG
    assert scene.asked(READ, None, AccessKey="alice", Signature="") == WRONG
    assert scene.asked(READ, None, AccessKey="alice", Signature="\u00e9\ud800") == WRONG
    scene.users.put(KnownUser("alice", b"wonderland", is_enabled=False))
    assert scene.asked(READ) == (16, "User:alice is disabled.")
    assert scene.asked(READ, Credentials("alice", "wrong")) == (16, "User:alice is disabled.")


@pytest.mark.parametrize(
    "part", ["value", "added", "removed", "body", "no body", "signature", "case of the key"]
)
def test_a_request_that_was_changed_after_signing_is_refused(part: str) -> None:
    scene = Scene()
    asked = request(READ, ROOT, b"body", a="1", b="2")
    assert scene.refusal(asked) is None
    if part == "value":
        asked.ext["a"] = "x"
    elif part == "added":
        asked.ext["c"] = "3"
    elif part == "removed":
        del asked.ext["b"]
    elif part == "body":
        asked.body = b"bodies"
    elif part == "no body":
        asked.body = None
    elif part == "signature":
        asked.ext["Signature"] = asked.ext["Signature"][:-2] + "A="
    else:
        asked.ext["signature"] = asked.ext.pop("Signature")
    assert scene.refusal(asked) == WRONG


def java_signature(ext: dict[str, str], body: bytes, secret: str) -> str:
    """Written again: values by their keys' UTF-16 code units, then the body."""

    def units(text: str) -> list[int]:
        data = text.encode("utf-16-be")
        return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]

    keys = sorted((key for key in ext if key != "Signature"), key=units)
    content = b"".join(ext[key].encode() for key in keys) + body
    return base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


ALPHABET = "aZ09_-\u00e9\u9ad8\ue000\uffff\U0001f600\U00010000"


def test_signatures_agree_with_hmac_over_the_sorted_values() -> None:
    for seed in range(1_000):
        rng = random.Random(seed)

        def text(longest: int, rng: random.Random = rng) -> str:
            return "".join(rng.choices(ALPHABET, k=rng.randint(0, longest)))

        ext = {text(4): text(8) for _ in range(rng.randint(0, 6))} | {"AccessKey": "u"}
        body = rng.randbytes(rng.choice((0, 3, 200)))
        secret = text(90) or "s"
        asked = RemotingCommand.request(
            7, ext | {"Signature": java_signature(ext, body, secret)}, body or None
        )
        assert is_signed(asked, secret.encode()), seed
        assert not is_signed(asked, secret.encode() + b"x"), seed
        inner, outer = (state.copy() for state in hash_states(secret.encode()))
        inner.update(b"content")
        outer.update(inner.digest())
        assert outer.digest() == hmac.new(secret.encode(), b"content", hashlib.sha1).digest(), seed


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_upstreams_signatures_are_right(vector: dict[str, Any]) -> None:
    [sent] = FrameReader().receive(bytes.fromhex(vector["frameHex"]))
    assert is_signed(sent, vector["secretKey"].encode())
    assert not is_signed(sent, vector["secretKey"].encode()[:-1])
    sent.ext["zz"] = "added"
    assert not is_signed(sent, vector["secretKey"].encode())


@pytest.mark.parametrize(("version", "right"), [(0, True), (399, True), (400, False), (479, False)])
def test_old_clients_add_a_field_after_they_have_signed(version: int, right: bool) -> None:
    asked = request(READ, ROOT, topic="orders")
    asked.ext["_UNIQUE_KEY_QUERY"] = "true"
    asked.version = version
    assert (Scene().refusal(asked) is None) == right
    whole = request(READ, ROOT, topic="orders", _UNIQUE_KEY_QUERY="true")
    whole.version = version
    assert (Scene().refusal(whole) is None) != right


# -- rights


def test_a_user_needs_what_the_row_names() -> None:
    scene = Scene()
    assert scene.asked(SEND, topic="orders") == no_right("Topic:orders")
    scene.users.allow("Topic:orders")
    assert scene.asked(SEND, topic="orders") is None
    assert scene.asked(SEND, topic="clicks") == no_right("Topic:clicks")
    assert scene.asked(CHANGE) == no_right("Cluster:C")
    scene.users.allow("Topic:orders", decision="Deny")
    assert scene.asked(SEND, topic="orders") == no_right("Topic:orders", why="the decision is deny.")
    assert scene.asked(SEND, ROOT, topic="orders") is None
    assert scene.asked(SEND, SERVERS, topic="orders") is None


def test_an_unlisted_code_needs_to_update_the_cluster() -> None:
    scene = Scene()
    assert scene.asked(7777, None) == UNSIGNED
    assert scene.asked(7777) == no_right("Cluster:C")
    scene.users.allow("Topic:*")
    assert scene.asked(7777) == no_right("Cluster:C")
    scene.users.allow("Cluster:C")
    assert scene.asked(7777) is None
    assert scene.refusal(request(7777, None), ClientPeer(certificate=SERVER)) == UNSIGNED


def test_requests_of_servers_are_for_servers_and_super_users() -> None:
    scene = Scene()
    scene.users.allow("*")
    assert scene.asked(SERVE) == (16, "User:alice is no super user, and no server.")
    assert scene.asked(SERVE, SERVERS) is None
    assert scene.asked(SERVE, ROOT) is None
    assert Scene(authorizes=False).asked(SERVE) == (16, "User:alice is no super user, and no server.")
    assert Scene(signed_codes=[SERVE]).asked(SERVE) == (16, "User:alice is no super user, and no server.")


def test_without_authorization_a_signature_is_enough() -> None:
    scene = Scene(authorizes=False)
    assert scene.asked(CHANGE) is None
    assert scene.asked(CHANGE, None) == UNSIGNED
    assert scene.asked(CHANGE, Credentials("alice", "wrong")) == WRONG
    assert scene.guard.why_not(scene.client.peer, request(SEND), Need(Kind.TOPIC, "t", (Action.PUB,))) is None


def test_the_clients_address_counts_and_is_named() -> None:
    scene = Scene()
    scene.users.allow("Topic:orders", host="10.0.0.0/24")
    assert scene.asked(SEND, topic="orders") is None
    for address, host in (
        ("10.0.1.9:5000", "10.0.1.9"),
        ("::1:5000", "::1"),
        ("fe80::1%eth0:5000", "fe80::1%eth0"),
    ):
        found = scene.refusal(request(SEND, topic="orders"), ClientPeer(address))
        assert found == no_right("Topic:orders", host)


def test_what_was_decided_counts_until_a_change() -> None:
    scene = Scene()
    scene.users.allow("Topic:orders")
    assert scene.asked(SEND, topic="orders") is None
    asked = scene.users.asked
    for _ in range(5):
        assert scene.asked(SEND, topic="orders") is None
    assert scene.users.asked == asked
    assert scene.refusal(request(SEND, topic="orders"), ClientPeer("10.0.0.10:1")) is None
    assert scene.users.asked == asked + 1
    scene.users.allow("Topic:clicks")
    assert scene.asked(SEND, topic="orders") == no_right("Topic:orders")
    scene.users.put(KnownUser("alice", b"new"))
    assert scene.asked(SEND, topic="clicks") == WRONG
    assert scene.asked(SEND, Credentials("alice", "new"), topic="clicks") is None


def test_the_number_of_remembered_decisions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "DECISIONS_MAX", 10)
    scene = Scene()
    scene.users.allow("Topic:t*")
    for number in range(100):
        assert scene.asked(SEND, topic=f"t{number}") is None
        assert len(scene.guard._decisions) <= 10
    assert scene.asked(SEND, topic="x") == no_right("Topic:x")


# -- settings


def test_open_codes_need_nothing() -> None:
    scene = Scene(open_codes=[READ])
    assert scene.asked(READ, None) is None
    assert scene.asked(READ, Credentials("ghost", "x")) is None
    assert scene.asked(CHANGE, None) == UNSIGNED
    assert (
        scene.guard.why_not(scene.client.peer, request(READ, None), Need(Kind.TOPIC, "t", (Action.GET,)))
        is None
    )
    claimed = request(READ, None, AccessKey="root")
    assert not scene.guard.sees_passwords(claimed), "nobody has checked the name"
    assert not scene.guard.is_super(claimed)


def test_signed_codes_need_a_signature() -> None:
    scene = Scene(signed_codes=[CHANGE])
    assert scene.asked(CHANGE) is None
    assert scene.asked(CHANGE, None) == UNSIGNED
    assert scene.asked(CHANGE, Credentials("alice", "wrong")) == WRONG
    assert scene.asked(READ) == no_right("Cluster:C")


def test_a_long_body_is_read_for_users_with_some_right_of_its_kind() -> None:
    scene, refused, long = Scene(), no_right("any Topic"), bytes(guard_module.LONG_BODY_BYTES + 1)

    def asked(user: Credentials = ALICE) -> tuple[int, str | None] | None:
        return scene.refusal(request(SEND_MANY, user, long, topic="orders"))

    assert scene.refusal(request(SEND_MANY, ALICE, long)) == refused, "the row would raise: no topic is named"
    for resource, host, decision in (
        ("Group:*", None, "Allow"), ("Topic:orders", None, "Deny"), ("Topic:orders", "10.0.0.7", "Allow"),
    ):  # fmt: skip
        scene.users.allow(resource, decision=decision, host=host)
        assert asked() == refused
        assert scene.refusal(request(SEND_MANY, ALICE, long[1:], topic="orders")) != refused
    for resource in ("Topic:orders", "Topic:*", "*"):
        scene.users.allow(resource)
        assert asked() is None
    scene.users.allow("Topic:clicks")
    assert asked() == no_right("Topic:orders")
    assert asked(ROOT) is None


def test_which_codes_settings_may_open() -> None:
    assert why_not_open(TABLE, []) is None
    assert why_not_open(TABLE, [READ, READ_BY_SERVERS]) is None
    for codes, named_codes in (([CHANGE], "2"), ([SERVE, READ], "4"), ([7777, CHANGE, READ], "2, 7777")):
        why = why_not_open(TABLE, codes)
        assert why is not None and why.startswith(f"{named_codes}: ")


# -- servers


def test_the_servers_credentials_are_super_whatever_a_user_of_this_name_may() -> None:
    scene = Scene()
    scene.users.put(KnownUser("servers", b"other", is_enabled=False))
    assert scene.asked(CHANGE, SERVERS) is None
    assert scene.asked(CHANGE, Credentials("servers", "other")) == WRONG
    assert Scene(server_keys=None).asked(CHANGE, SERVERS) == (16, "User:servers is not found.")


@pytest.mark.parametrize(
    ("certificate", "code", "accepted"),
    [
        (SERVER, SERVE, True),
        (SERVER, READ_BY_SERVERS, True),
        (SERVER, READ, False),
        (SERVER, CHANGE, False),
        (SERVER, SEND, False),
        (PeerCertificate(True, addresses=frozenset({"10.0.2.1:9876"})), SERVE, True),
        (CLIENT, SERVE, False),
        (MISSING, SERVE, False),
        (PeerCertificate(False, frozenset({"10.0.2.1"})), SERVE, False),
    ],
)
def test_a_certificate_is_enough_only_for_rows_of_servers(
    certificate: PeerCertificate, code: int, accepted: bool
) -> None:
    found = Scene().refusal(request(code, None, topic="t"), ClientPeer(certificate=certificate))
    assert found == (None if accepted else UNSIGNED)


def test_a_port_may_expect_its_requests_from_few_servers() -> None:
    scene = Scene(is_server=lambda certificate: "10.0.2.1" in certificate.hosts)
    other = PeerCertificate(True, frozenset({"10.0.2.2"}))
    assert scene.refusal(request(SERVE, None), ClientPeer(certificate=SERVER)) is None
    assert scene.refusal(request(SERVE, None), ClientPeer(certificate=other)) == UNSIGNED
    assert scene.refusal(request(SERVE, SERVERS), ClientPeer(certificate=other)) is None
    unchecked = PeerCertificate(False, frozenset({"10.0.2.1"}))
    assert scene.refusal(request(SERVE, None), ClientPeer(certificate=unchecked)) == UNSIGNED


def test_a_servers_certificate_does_not_make_a_user_super() -> None:
    scene, peer = Scene(), ClientPeer(certificate=SERVER)
    asked = request(READ, ALICE)
    assert scene.refusal(asked, peer) == no_right("Cluster:C")
    assert not scene.guard.sees_passwords(asked)


# -- requests that a former master passes on


def test_a_former_masters_requests_are_not_signed_for_this_host_but_need_rights() -> None:
    former = ClientPeer("10.0.2.1:6000")
    scene = Scene(is_passed_on=lambda peer: peer is former.peer)
    scene.users.allow("Topic:orders", host="10.0.0.9")
    passed = request(SEND, ALICE, topic="orders")
    scene.guard.name_client(scene.client.peer, [passed])
    assert passed.ext["passedFor"] == "10.0.0.9"
    assert scene.refusal(passed, former) is None
    assert scene.refusal(request(SEND, ALICE, topic="orders"), former) == no_right("Topic:orders", "10.0.2.1")
    assert scene.refusal(request(SEND, None, topic="orders"), former) == UNSIGNED
    assert scene.refusal(request(SEND, Credentials("ghost", "x"), topic="orders"), former) == (
        16,
        "User:ghost is not found.",
    )
    assert scene.refusal(passed, ClientPeer("10.7.7.7:1")) == WRONG, "only former masters add this field"


def test_a_server_that_may_not_know_the_present_rights_says_that_it_is_busy() -> None:
    why: list[str] = []
    scene = Scene(why_unsure=lambda: why[0] if why else None)
    scene.users.allow("Topic:orders")
    assert scene.asked(SEND, topic="orders") is None
    why.append("the tables are being read")
    assert scene.asked(SEND, topic="orders") == (2, "the tables are being read")
    assert scene.asked(SEND, ROOT, topic="orders") == (2, "the tables are being read"), (
        "it may be revoked, too"
    )
    assert scene.asked(READ, ROOT) is None, "an administrator looks at the cluster"
    assert scene.asked(SEND, None, topic="orders") == UNSIGNED


def test_a_server_that_may_not_know_all_users_does_not_deny_what_it_does_not_know() -> None:
    why: list[str] = []
    scene = Scene(why_unsure=lambda: why[0] if why else None)
    scene.users.allow("Topic:orders")
    ghost, wrong = Credentials("ghost", "x"), Credentials("alice", "wrong")
    assert scene.asked(READ, ghost) == (16, "User:ghost is not found.")
    why.append("the tables are being read")
    for refused in (scene.asked(READ, ghost), scene.asked(READ, wrong), scene.asked(SEND, topic="clicks")):
        assert refused is not None and refused[0] == 2 and "the tables are being read" in (refused[1] or "")
    assert scene.asked(READ, None) == UNSIGNED


def test_what_only_waits_here_is_denied_when_it_is_served() -> None:
    later: set[int] = {SEND}
    why: list[str] = ["the tables are being read"]
    scene = Scene(is_checked_later=lambda code: code in later, why_unsure=lambda: why[0] if why else None)
    ghost, wrong = Credentials("ghost", "x"), Credentials("alice", "wrong")
    for who in (ghost, wrong, ALICE):
        assert scene.asked(SEND, who, topic="orders") is None
        assert scene.asked(READ, who) is not None
    assert scene.asked(SEND, None, topic="orders") == UNSIGNED
    later.clear()
    for who in (ghost, wrong, ALICE):
        assert scene.asked(SEND, who, topic="orders") is not None
    later.add(SEND)
    why.clear()
    for who in (ghost, wrong, ALICE):
        assert scene.asked(SEND, who, topic="orders") is not None, "what is known now is denied now"


def test_a_name_that_is_longer_than_any_is_refused_before_policies_are_searched() -> None:
    scene = Scene()
    scene.users.allow("Topic:*")
    assert scene.asked(SEND, topic="t" * 512) is None
    before = scene.users.asked
    refused = scene.asked(SEND, topic="t" * 513)
    assert refused == (16, "User:alice has no permission: the name is too long.")
    assert scene.users.asked == before


# -- what a check cannot read


@pytest.mark.parametrize(
    "error", [HeaderError("topic", None, "is missing"), BodyError("no JSON"), FastJsonError("no JSON", 0)]
)
def test_a_request_whose_needs_cannot_be_read_is_answered_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def needs(request: RemotingCommand) -> list[Need]:
        raise error

    scene = Scene()
    table = dict(TABLE)
    table[SEND] = type(TABLE[SEND])(needs)
    monkeypatch.setattr(scene.guard, "_table", table)
    assert scene.asked(SEND) == (1, str(error))
    assert scene.asked(SEND, None) == UNSIGNED
    assert scene.asked(SEND, Credentials("alice", "wrong")) == WRONG


def test_a_right_that_depends_on_what_a_request_finds() -> None:
    scene = Scene()
    scene.users.allow("Topic:orders")
    orders, clicks = (Need(Kind.TOPIC, topic, (Action.GET,)) for topic in ("orders", "clicks"))
    peer = scene.client.peer
    assert scene.guard.why_not(peer, request(READ), orders) is None
    assert scene.guard.why_not(peer, request(READ), clicks) == no_right("Topic:clicks")[1]
    assert scene.guard.why_not(peer, request(READ, None), orders) is not None
    assert scene.guard.why_not(peer, request(READ, ROOT), clicks) is None
    assert scene.audit.refusals.total() == 2
    scene.users.put(KnownUser("alice", b"wonderland", is_enabled=False))
    assert scene.guard.why_not(peer, request(READ), orders) == "User:alice is disabled."


def test_without_access_control_all_is_open_but_passwords() -> None:
    access, peer = OpenAccess(), ClientPeer().peer
    assert access.why_not(peer, request(READ, None), Need(Kind.TOPIC, "t", (Action.GET,))) is None
    assert access.recheck(peer, request(READ, None)) is None
    assert access.is_super(request(READ, None))
    assert not access.sees_passwords(request(READ, ROOT))


def test_super_users_and_nobody_else_see_passwords() -> None:
    scene = Scene()
    for user, sees in ((ROOT, True), (SERVERS, True), (ALICE, False), (Credentials("ghost", "x"), False)):
        assert scene.guard.sees_passwords(request(READ, user)) is sees
        assert scene.guard.is_super(request(READ, user)) is sees
    assert not scene.guard.sees_passwords(request(READ, None))


# -- behind a router


class Served:
    """A router whose handlers note what reaches them; codes from 100 on are handled in batches."""

    def __init__(self, scene: Scene) -> None:
        self.reached: list[int] = []
        self.router = Router()
        for code in (READ, CHANGE, SEND):
            self.router.add(code, lambda peer, asked: self.reached.append(asked.code) or asked.reply())  # type: ignore[func-returns-value]
        self.router.add_batch([100], lambda peer, batch: self.reached.extend(each.code for each in batch))
        scene.guard.guard(self.router)
        self.dispatcher = RequestDispatcher(self.router, 10)
        self.client = scene.client

    def deliver(self, *asked: RemotingCommand) -> list[int]:
        """The codes of the replies."""
        self.client.writes.clear()
        assert self.dispatcher.deliver(self.client.peer, [*asked]) == len(asked)
        return [reply.code for reply in self.client.replies]


def test_a_refused_request_reaches_no_handler_and_a_one_way_one_gets_no_answer() -> None:
    served = Served(Scene())
    one_way = request(READ, None)
    one_way.flag |= ONEWAY_BIT
    assert served.deliver(request(READ, None), one_way, request(SEND, topic="t"), request(READ, ROOT)) == [
        16,
        16,
        0,
    ]
    assert served.reached == [READ]
    assert served.deliver(request(7777, None), request(7777, ROOT)) == [16, 3]


def test_refused_requests_are_taken_out_of_a_batch() -> None:
    served = Served(Scene())
    batch = [
        request(100, ROOT),
        request(100, None),
        request(100, ROOT),
        request(100, ALICE),
        request(100, ROOT),
    ]
    assert served.deliver(*batch) == [16, 16]
    assert served.reached == [100] * 3
    assert served.deliver(request(100, None), request(100, None)) == [16, 16]
    assert served.reached == [100] * 3


def test_administrative_requests_are_reported_with_their_outcome(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "audit")
    served = Served(Scene())
    served.deliver(request(READ, ROOT), request(CHANGE, ROOT, topic="orders"), request(CHANGE, ALICE))
    found = [(record.getMessage(), getattr(record, "fields", {})) for record in caplog.records]
    [change, refused] = [fields for _, fields in found]
    assert [text for text, _ in found] == ["administrative request", "request refused"]
    assert (change["user"], change["code"], change["outcome"], change["target"]) == (
        "root",
        CHANGE,
        0,
        "topic:orders",
    )
    assert (refused["user"], refused["code"]) == ("alice", CHANGE)


# -- plain sends, which the compiled module reads


def plain_send(
    user: Credentials | None, topic: str = "orders", body: bytes = b"hello", code: int = 310
) -> bytes:
    ext = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795256518702", "h": "0",
        "i": "UNIQ_KEY\x010A0102030A5C18B4\x02", "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    command = RemotingCommand.request(code, ext, body)
    if user is not None:
        Signer(user).sign(command)
    return b"".join(map(bytes, encode(command)))


def admits(scene: Scene, *frames: bytes) -> bool:
    assert presence.native is not None
    data = b"".join(frames)
    sends = presence.native.read_sends(memoryview(bytearray(data)), 0, len(data), 1 << 24, 1 << 20)
    assert sends is not None
    return scene.guard.admits_sends(scene.client.peer, sends)


@pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")
def test_plain_sends_are_admitted_together_if_each_is_right() -> None:
    scene = Scene()
    scene.guard.guard(Router(), lambda topic: named(RemotingCommand(SEND, ext={"topic": topic}))[0])
    scene.users.allow("Topic:orders")
    mine, roots = plain_send(ALICE), plain_send(ROOT, "clicks")
    assert admits(scene, mine, roots, mine)
    for other in (
        plain_send(None),
        plain_send(Credentials("ghost", "x")),
        plain_send(Credentials("alice", "wrong")),
        plain_send(ALICE, "clicks"),
        mine.replace(b"hello", b"hullo"),
    ):
        assert not admits(scene, other)
        assert not admits(scene, mine, other)
    scene.users.allow("Topic:clicks")
    assert not admits(scene, mine)
    assert admits(scene, plain_send(ALICE, "clicks"))
    scene.users.put(KnownUser("alice", b"wonderland", is_enabled=False))
    assert not admits(scene, plain_send(ALICE, "clicks"))
    scene.users.put(KnownUser("alice", b"new"))
    assert not admits(scene, plain_send(ALICE, "clicks"))
    assert admits(scene, plain_send(Credentials("alice", "new"), "clicks"))


@pytest.mark.skipif(presence.native is None, reason=f"the compiled module is {presence.why_not}")
def test_plain_sends_are_looked_at_singly_if_the_guard_is_unsure() -> None:
    for settings in (
        {"is_passed_on": lambda peer: True},
        {"why_unsure": lambda: "the tables are being read"},
    ):
        scene = Scene(**settings)
        scene.guard.guard(Router(), lambda topic: named(RemotingCommand(SEND, ext={"topic": topic}))[0])
        assert not admits(scene, plain_send(ROOT))
    scene = Scene()
    scene.guard.guard(Router())
    assert not admits(scene, plain_send(ROOT)), "it is not known what a send needs"


def test_an_empty_table_closes_a_port() -> None:
    empty: Table = {}
    assert why_not_open(empty, [READ]) is not None
