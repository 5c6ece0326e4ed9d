"""The audit log: what its events contain, and how many are written."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from accesscontrol.audit import HOSTS_MAX, OF_ONE_HOST_MAX, REMIND_MS, AuditLog
from mqruntime.clock import Clock
from mqruntime.log import LineFormatter
from mqruntime.peercertificate import PeerCertificate
from remoting.codes import RequestCode as Code
from remoting.command import RemotingCommand
from tests.support.doubles import ManualClock
from tests.unit.accesscontrol.guardscene import ALICE, ROOT, ClientPeer, Scene, request

UNKNOWN = 7777


class Log:
    """The events of one audit log: (text, fields), and their lines."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = ManualClock()
        self.audit = AuditLog("broker", cast(Clock, self.clock))
        self.client = ClientPeer()
        self._caplog = caplog

    def refuse(
        self,
        address: str = "10.0.0.9:5000",
        code: int = Code.PULL_MESSAGE,
        kind: str = "unsigned",
        user: str = "alice",
    ) -> None:
        self.audit.refused(
            ClientPeer(address).peer, request(code, ALICE), user, kind, "username cannot be null."
        )

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(record.getMessage(), getattr(record, "fields", {})) for record in self._caplog.records]

    @property
    def lines(self) -> str:
        stream = io.StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(LineFormatter())
        for record in self._caplog.records:
            handler.emit(record)
        return stream.getvalue()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Log]:
    caplog.set_level(logging.INFO, "audit")
    yield Log(caplog)


def test_an_administrative_request_is_one_event_with_its_target(log: Log) -> None:
    asked = request(Code.DELETE_TOPIC_IN_BROKER, ROOT, topic="orders", brokerName="b")
    log.audit.served(log.client.peer, asked, "root", 0, "")
    log.audit.served(log.client.peer, request(UNKNOWN, ROOT), "", -1, "KeyError")
    assert log.events == [
        (
            "administrative request",
            {
                "server": "broker", "user": "root", "peer": "10.0.0.9:5000", "code": 215,
                "request": "DELETE_TOPIC_IN_BROKER", "target": "topic:orders;brokerName:b", "outcome": 0,
            },
        ),
        (
            "administrative request",
            {
                "server": "broker", "user": "-", "peer": "10.0.0.9:5000", "code": UNKNOWN, "request": "unknown",
                "outcome": -1, "remark": "KeyError",
            },
        ),
    ]  # fmt: skip
    for _ in range(3):
        log.audit.served(log.client.peer, asked, "root", 0, "")
    assert len(log.events) == 5, "each is written"


def test_a_refusal_is_one_event_with_its_reason(log: Log) -> None:
    peer = ClientPeer(certificate=PeerCertificate(True, frozenset({"b.example", "10.0.0.9"})))
    log.audit.refused(
        peer.peer, request(Code.PULL_MESSAGE, ALICE, topic="t"), "alice", "no permission", "why"
    )
    [(text, found)] = log.events
    assert text == "request refused"
    assert found == {
        "server": "broker", "user": "alice", "peer": "10.0.0.9:5000", "code": 11, "request": "PULL_MESSAGE",
        "certificate": "10.0.0.9;b.example", "target": "topic:t", "why": "why",
    }  # fmt: skip
    assert log.audit.refusals.total() == 1


def test_events_have_no_secret(log: Log) -> None:
    secrets = {"password": "geheim", "SecurityToken": "merkmal"}
    asked = request(Code.AUTH_CREATE_USER, ROOT, b'{"password":"geheim"}', username="eve", **secrets)
    log.audit.served(log.client.peer, asked, "root", 16, "The user is existed")
    log.audit.refused(log.client.peer, asked, "root", "unsigned", "username cannot be null.")
    assert "username:eve" in log.lines
    for secret in ("geheim", "merkmal", asked.ext["Signature"], ROOT.secret_key):
        assert secret not in log.lines
        assert secret not in repr(log.events)


def test_long_and_broken_texts_stay_in_one_short_line(log: Log) -> None:
    text = "x\n2026-01-01T00:00:00.000Z INFO audit forged user=root" + "y" * 100_000
    asked = RemotingCommand.request(Code.AUTH_DELETE_USER, {"username": text, "topic": text})
    log.audit.refused(log.client.peer, asked, text, "unknown user", f"User:{text} is not found.")
    log.audit.served(log.client.peer, asked, text, 1, text)
    assert log.lines.count("\n") == 2
    assert all(len(line) < 2_000 for line in log.lines.splitlines())


def test_refusals_of_a_host_for_a_reason_are_written_once_and_counted(log: Log) -> None:
    for port in range(100):
        log.refuse(f"10.0.0.9:{port}")
        log.clock.ms += 100
    assert len(log.events) == 1
    log.refuse("10.0.0.10:1")
    log.refuse(kind="wrong signature")
    log.refuse(code=Code.SEND_MESSAGE)
    log.refuse("::1:5000")
    assert len(log.events) == 5
    assert not any("repeated" in found for _, found in log.events)
    log.clock.ms = REMIND_MS - 1
    log.refuse()
    assert len(log.events) == 5
    log.clock.ms = REMIND_MS
    log.refuse()
    assert log.events[5][1]["repeated"] == 100
    log.clock.ms += REMIND_MS
    log.refuse()
    assert "repeated" not in log.events[6][1]
    assert log.audit.refusals.total() == 107


def test_a_flood_of_hosts_is_limited(log: Log) -> None:
    for number in range(3 * HOSTS_MAX):
        log.refuse(f"10.1.{number >> 8}.{number & 255}:1")
    assert len(log.events) == HOSTS_MAX
    assert len(log.audit._kinds_of) == HOSTS_MAX
    assert log.audit.refusals.total() == 3 * HOSTS_MAX
    log.clock.ms = REMIND_MS
    log.refuse("10.2.0.1:1")
    log.refuse("10.1.0.1:1")
    assert [found["peer"] for _, found in log.events[HOSTS_MAX:]] == ["10.2.0.1:1", "10.1.0.1:1"]
    assert len(log.audit._kinds_of) == HOSTS_MAX


def test_a_flood_of_one_host_does_not_keep_others_out_of_the_log(log: Log) -> None:
    for number in range(10_000):
        log.refuse(code=100_000 + number, user=f"user{number}")
    assert len(log.events) == OF_ONE_HOST_MAX + 1, "the last one counts for all others"
    log.refuse("10.0.0.10:1")
    assert log.events[-1][1]["peer"] == "10.0.0.10:1"
    log.clock.ms = REMIND_MS
    log.refuse(user="bob")
    assert log.events[-1][1]["user"] == "bob"
    assert len(log.audit._kinds_of["10.0.0.9"]) <= OF_ONE_HOST_MAX + 1


def test_unknown_codes_are_one_kind(log: Log) -> None:
    for number in range(100):
        log.refuse(code=100_000 + number)
    assert len(log.events) == 1


def test_a_target_cannot_look_like_another(log: Log) -> None:
    asked = request(Code.DELETE_TOPIC_IN_BROKER, ROOT, topic="a;username:root\u2028")
    log.audit.served(log.client.peer, asked, "root", 0, "")
    assert log.events[0][1]["target"] == "topic:a%3Busername%3Aroot\u2028"
    assert "\u2028" not in log.lines


def test_the_guard_reports_each_kind_of_refusal(log: Log) -> None:
    scene = Scene()
    for code in range(200, 210):
        assert scene.asked(code, None) is not None
        assert scene.asked(code) is not None
    assert len(log.events) == 20
    assert {found["why"] for _, found in log.events} == {
        "username cannot be null.",
        "User:alice has no permission to access Cluster:C from 10.0.0.9, no matched policies.",
    }
    assert {found["user"] for _, found in log.events} == {"alice", "-"}
