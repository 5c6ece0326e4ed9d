"""Controllers are recognized by the host of their connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.role import controllerhosts
from broker.role.controllerhosts import ControllerHosts
from mqruntime.peercertificate import MISSING, NOT_ASKED, names_in
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.router import Router
from tests.support.doubles import ManualClock

NAMES = {"one.example": {"10.0.0.1"}, "two.example": {"10.0.0.2"}, "here.example": {"127.0.0.1"}}


class Scene:
    """A guarded router, controllers by name, and the resolved host names."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, addresses: list[str], *, checks_hosts: bool = True
    ) -> None:
        self.resolved: list[str] = []
        self.certificate = NOT_ASKED
        self.controllers = SimpleNamespace(addresses=addresses, leader=None)
        self.clock = ManualClock()
        self.router = Router()
        self.router.add(RequestCode.HAND_OVER, lambda peer, command: command.reply())
        controllers: Any = self.controllers
        ControllerHosts(controllers, self.clock, checks_hosts=checks_hosts).guard(self.router)
        monkeypatch.setattr(controllerhosts, "addresses_of", self._addresses_of)

    async def _addresses_of(self, host: str) -> frozenset[str]:
        self.resolved.append(host)
        await asyncio.sleep(0)
        return frozenset(NAMES.get(host, {host}))

    def codes(self, *remote: tuple[str, str]) -> list[int]:
        """The codes of concurrent requests; each of `remote` has both ends of a connection."""

        async def ask() -> list[Any]:
            command = RemotingCommand.request(RequestCode.HAND_OVER)
            handle: Any = self.router.handlers[RequestCode.HAND_OVER]
            peers = [
                SimpleNamespace(remote_address=there, own_host=here, certificate=self.certificate)
                for there, here in remote
            ]
            return list(await asyncio.gather(*(handle(peer, command) for peer in peers)))

        return [int(answer.code) for answer in asyncio.run(ask())]


OK, REFUSED = int(ResponseCode.SUCCESS), int(ResponseCode.NO_PERMISSION)
US = "10.0.9.9"


def test_a_controller_is_accepted_from_the_addresses_of_its_host_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ["one.example:9878", "10.0.0.3:9878"])
    asked = [
        ("10.0.0.1:5", US),
        ("10.0.0.3:5", US),
        ("10.0.0.2:5", US),
        ("127.0.0.1:5", "127.0.0.1"),
        ("", US),
    ]
    assert scene.codes(*asked) == [OK, OK, REFUSED, REFUSED, REFUSED]
    scene.controllers.leader = "two.example:9878"
    assert scene.codes(("10.0.0.2:5", US)) == [OK], "named by one of them"


def test_host_names_are_resolved_at_most_once_per_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ["one.example:9878"])
    assert scene.codes(*[("6.6.6.6:1", US)] * 50, ("10.0.0.1:5", US)) == [REFUSED] * 50 + [OK]
    assert scene.resolved == ["one.example"]
    scene.clock.ms += controllerhosts.READ_AGAIN_MS
    scene.codes(("6.6.6.6:1", US))
    assert scene.resolved == ["one.example"] * 2


def test_on_one_machine_a_controller_may_come_from_any_of_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ["here.example:9878"])
    assert scene.codes(("127.0.0.5:5", "127.0.0.1"), (f"{US}:5", US)) == [OK, OK]
    scene = Scene(monkeypatch, [f"{US}:9878"])
    assert scene.codes(("127.0.0.5:5", "127.0.0.1"), (f"{US}:5", US)) == [REFUSED, OK]


def test_without_the_host_check_every_host_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ["one.example:9878"], checks_hosts=False)
    assert scene.codes(("6.6.6.6:1", US)) == [OK] and scene.resolved == []


@pytest.mark.parametrize("checks_hosts", [True, False])
@pytest.mark.parametrize(
    ("names", "code"),
    [
        ([("DNS", "one.example")], OK),
        ([("IP Address", "10.0.0.1")], REFUSED),  # of a host, not as controllerAddr names it
        ([("URI", "rocketmq://one.example:9878")], OK),
        (
            [("DNS", "one.example"), ("URI", "rocketmq://one.example:10911")],
            REFUSED,
        ),  # a broker beside the controller
        ([("DNS", "one.example"), ("URI", "rocketmq:controller")], OK),
        ([("DNS", "one.example"), ("URI", "rocketmq:broker/broker-a")], REFUSED),
        ([("DNS", "*.example")], REFUSED),
        ([], REFUSED),
    ],
)
def test_where_certificates_are_asked_for_one_must_speak_for_a_controller(
    monkeypatch: pytest.MonkeyPatch, names: list[tuple[str, str]], code: int, checks_hosts: bool
) -> None:
    scene = Scene(monkeypatch, ["one.example:9878"], checks_hosts=checks_hosts)
    scene.certificate = names_in({"subjectAltName": names})
    assert scene.codes(("10.0.0.1:5", US)) == [code]
    scene.certificate = MISSING
    assert scene.codes(("10.0.0.1:5", US)) == [REFUSED]
