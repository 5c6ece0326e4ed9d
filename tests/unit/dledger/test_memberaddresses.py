"""Which addresses a member may send from."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from dledger.node.authenticator import RESOLVE_EVERY_MS, MemberAddresses
from tests.support.doubles import ManualClock


@pytest.mark.parametrize(
    ("listed", "remote", "believed"),
    [
        ("10.0.0.1:9877", "10.0.0.1:40000", True),
        ("10.0.0.1:9877", "10.0.0.2:40000", False),
        ("10.0.0.1:9877", "::ffff:10.0.0.1:40000", True),
        ("127.0.0.2:9877", "127.0.0.1:40000", True),
        ("[::1]:9877", "127.0.0.1:40000", True),
        ("10.0.0.1:9877", "127.0.0.1:40000", False),
        ("10.0.0.1:9877", "", False),
    ],
)
def test_an_address_matches_itself_and_any_loopback_address_matches_loopback(
    listed: str, remote: str, believed: bool
) -> None:
    addresses = MemberAddresses(ManualClock())
    assert asyncio.run(addresses.is_host(listed.rpartition(":")[0], remote)) is believed


def test_a_host_name_is_resolved_again_only_after_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    addresses = MemberAddresses(clock)
    answers: list[str | OSError] = [OSError("no such name"), "10.0.0.1", "10.0.0.7"]

    async def scenario() -> list[bool]:
        async def getaddrinfo(host: str, port: None, **options: Any) -> list[Any]:
            assert host == "controller-1"
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, 0))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        found = []
        for remote, later_ms in (
            ("10.0.0.1", 0),
            ("10.0.0.1", 10),
            ("10.0.0.1", RESOLVE_EVERY_MS),
            ("10.0.0.7", 10),
            ("10.0.0.7", RESOLVE_EVERY_MS),
            ("10.0.0.1", 10),
        ):
            clock.ms += later_ms
            found.append(await addresses.is_host("controller-1", f"{remote}:40000"))
        return found

    assert asyncio.run(scenario()) == [False, False, True, False, True, False]
    assert answers == []
