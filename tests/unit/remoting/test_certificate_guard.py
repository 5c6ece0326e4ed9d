"""Requests in the name of a server, where a port asks for certificates and where it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.claims import claims_of
from controller.state import Replica, Replicas, ReplicasState
from mqruntime.peercertificate import MISSING, NOT_ASKED, PeerCertificate, names_in
from remoting.certificateguard import CertificateGuard
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.router import Router
from tests.support.doubles import ManualClock

FIRST, SECOND = "10.0.0.1:10911", "10.0.0.2:10911"
STATE = ReplicasState(
    replicas={"broker-a": Replicas("c", {1: Replica(FIRST, "code 1"), 2: Replica(SECOND, "code 2")}, 3)}
)
SET = {"brokerName": "broker-a"}
OF_FIRST = [
    (RequestCode.BROKER_HEARTBEAT, {"brokerAddr": FIRST}),
    (RequestCode.CONTROLLER_REGISTER_BROKER, SET | {"brokerAddress": FIRST}),
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, SET | {"masterBrokerId": "1"}),
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, SET | {"masterBrokerId": "+1"}),
    (RequestCode.CONTROLLER_ELECT_MASTER, SET | {"brokerId": "1"}),
    (RequestCode.GIVE_UP_REPLICA, SET | {"brokerId": "1"}),
]
OF_SOME_SERVER = [
    (RequestCode.BROKER_HEARTBEAT, {}),
    (RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, SET),
    (RequestCode.CONTROLLER_APPLY_BROKER_ID, SET),
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, SET | {"masterBrokerId": "7"}),
    (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, {"brokerName": "broker-b", "masterBrokerId": "1"}),
    (RequestCode.CONTROLLER_ELECT_MASTER, SET | {"brokerId": "x"}),
]
OF_ANYBODY = [
    (RequestCode.CONTROLLER_ELECT_MASTER, SET | {"brokerId": "1", "designateElect": text})
    for text in ("true", "True", "TRUE", "1")
]


def of(*names: tuple[str, str]) -> PeerCertificate:
    return names_in({"subjectAltName": names})


OWN, OTHER, NARROW = (
    of(("IP Address", "10.0.0.1")),
    of(("IP Address", "10.0.0.2")),
    of(("URI", f"rocketmq://{SECOND}")),
)
CLIENT = of()


def is_served(code: int, ext: dict[str, str], certificate: PeerCertificate) -> bool:
    router, served = Router(), list[int]()

    def handle(peer: Any, request: RemotingCommand) -> RemotingCommand:
        served.append(request.code)
        return request.reply()

    claims = claims_of(STATE)
    for each in claims:
        router.add(each, handle)
    CertificateGuard(ManualClock()).guard(router, claims)
    peer: Any = SimpleNamespace(remote_address="10.0.0.1:5", certificate=certificate)
    answer: Any = router.handlers[code](peer, RemotingCommand(code, ext=dict(ext)))
    assert (answer.code == ResponseCode.SUCCESS) is bool(served)
    assert served or answer.code == ResponseCode.NO_PERMISSION and "certificate" in answer.remark
    return bool(served)


@pytest.mark.parametrize(("code", "ext"), [*OF_FIRST, *OF_SOME_SERVER, *OF_ANYBODY])
def test_without_the_question_everybody_is_served(code: int, ext: dict[str, str]) -> None:
    assert is_served(code, ext, NOT_ASKED)


@pytest.mark.parametrize(("code", "ext"), OF_FIRST)
def test_a_broker_speaks_for_itself_only(code: int, ext: dict[str, str]) -> None:
    assert is_served(code, ext, OWN)
    assert not any(is_served(code, ext, other) for other in (OTHER, NARROW, CLIENT, MISSING))


@pytest.mark.parametrize(("code", "ext"), [row for row in OF_FIRST if "brokerName" in row[1]])
def test_a_certificate_with_roles_is_of_a_broker_of_its_set_only(code: int, ext: dict[str, str]) -> None:
    def in_role(*roles: str) -> PeerCertificate:
        return of(("IP Address", "10.0.0.1"), *(("URI", f"rocketmq:{role}") for role in roles))

    assert is_served(code, ext, in_role("broker/broker-a"))
    assert is_served(code, ext, in_role("controller", "broker/broker-a"))
    assert not any(
        is_served(code, ext, in_role(role)) for role in ("broker/broker-b", "controller", "namesrv")
    )


@pytest.mark.parametrize(("code", "ext"), OF_SOME_SERVER)
def test_what_names_no_known_broker_needs_a_certificate_of_a_server(code: int, ext: dict[str, str]) -> None:
    assert all(is_served(code, ext, server) for server in (OWN, OTHER, NARROW))
    assert not is_served(code, ext, CLIENT) and not is_served(code, ext, MISSING)


@pytest.mark.parametrize(("code", "ext"), OF_ANYBODY)
def test_an_operators_election_needs_no_certificate_of_a_server(code: int, ext: dict[str, str]) -> None:
    assert is_served(code, ext, CLIENT)
