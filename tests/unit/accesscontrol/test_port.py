"""Access control of name servers and controllers: administrators of the settings and of a file that changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from accesscontrol import port as port_module
from accesscontrol.port import BYTES_MAX, PortAccess
from accesscontrol.settings import PortAccessSettings
from mqruntime.clock import Clock
from mqruntime.settings import SettingsError
from remoting.router import Router
from remoting.signing import Credentials
from tests.support.doubles import ManualClock
from tests.unit.accesscontrol.guardscene import CHANGE, READ, SERVE, SERVERS, TABLE, ClientPeer, request

ADMIN, EVE, OTHER = Credentials("admin", "admin-1"), Credentials("eve", "eve-1"), Credentials("eve", "eve-2")
INNER = 'innerClientAuthenticationCredentials={"accessKey":"servers","secretKey":"servers-secret"}'
FIRST = 'initAuthenticationUser={"username":"admin","password":"admin-1"}'


def access(*settings: str, on: bool = True) -> tuple[PortAccess, Router]:
    loaded = PortAccessSettings.load(None, [f"authenticationEnabled={str(on).lower()}", INNER, *settings])
    made = PortAccess(loaded, TABLE, server="name server", cluster="C", clock=cast(Clock, ManualClock()))
    router = Router()
    made.guard(router)
    return made, router


def remark(router: Router, user: Credentials | None, code: int = READ) -> str | None:
    """None if the request is accepted."""
    assert router.admission is not None
    reply = router.admission.refusal(ClientPeer().peer, request(code, user))
    return None if reply is None else reply.remark


def test_the_administrator_and_the_servers_may_all() -> None:
    _, router = access(FIRST)
    for code in (READ, CHANGE, SERVE, 7777):
        assert remark(router, ADMIN, code) is None
        assert remark(router, SERVERS, code) is None
        assert remark(router, None, code) == "username cannot be null."
        assert remark(router, EVE, code) == "User:eve is not found."
        assert remark(router, Credentials("admin", "x"), code) == "check signature failed."


def test_without_an_administrator_only_servers_are_served() -> None:
    _, router = access()
    assert remark(router, SERVERS) is None
    assert remark(router, ADMIN) == "User:admin is not found."


def test_without_authentication_a_port_is_open_and_the_file_is_not_read(tmp_path: Path) -> None:
    made, router = access(f"administratorsFile={tmp_path / 'missing'}", on=False)
    assert router.admission is None
    asyncio.run(asyncio.wait_for(made.run(), 5))


def test_open_codes_of_a_port() -> None:
    _, router = access("authenticationWhitelist=1,5")
    assert remark(router, None, READ) is None
    assert remark(router, None, CHANGE) == "username cannot be null."
    for code in (CHANGE, SERVE, 7777):
        with pytest.raises(SettingsError, match=f"authenticationWhitelist=1,{code}: {code}: "):
            access(f"authenticationWhitelist=1,{code}")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no such file"),
        (b"admin=a\neve\n", "eve: the password is missing"),
        (b"admin=\n\neve=  \n", "admin, eve: the password is missing"),
        (b"admin=\\u00g1\n", r"line 1: \\u00g1 is not"),
        (b"a=b\n<!--\nold=secret-9\n-->\n", "line 2: it is inside <!-- -->"),
        (b"a=b\n" + b"#" * BYTES_MAX, f"it has more than {BYTES_MAX} bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_at_the_start(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "administrators"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=why) as caught:
        access(f"administratorsFile={file}")
    assert caught.value.key == "administratorsFile"
    assert "secret" not in str(caught.value)


def test_a_folder_and_an_unreadable_file_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="there is no such file"):
        access(f"administratorsFile={tmp_path}")
    file = tmp_path / "administrators"
    file.write_text("eve=eve-1\n")

    def opened(self: Path, mode: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(SettingsError, match="cannot be read: Permission denied"):
        access(f"administratorsFile={file}")


def test_the_file_adds_administrators_and_has_the_last_word(tmp_path: Path) -> None:
    file = tmp_path / "administrators"
    file.write_text("# comment\neve = eve-1\nadmin=changed\nservers=own\n\u00fc\\:x=\u9ad8\n")
    _, router = access(FIRST, f"administratorsFile={file}")
    assert remark(router, EVE) is None
    assert remark(router, Credentials("\u00fc:x", "\u9ad8")) is None
    assert remark(router, ADMIN) == "check signature failed."
    assert remark(router, Credentials("admin", "changed")) is None
    assert remark(router, SERVERS) is None, "nobody takes the name of the servers"
    assert remark(router, Credentials("servers", "own")) == "check signature failed."


def watched(
    monkeypatch: pytest.MonkeyPatch,
    file: Path,
    steps: Callable[[Router, Callable[[], Awaitable[None]]], Awaitable[None]],
) -> None:
    """Run `steps(router, look)`; `look` waits until the file was looked at again."""
    monkeypatch.setattr(port_module, "LOOK_MS", 2)
    made, router = access(FIRST, f"administratorsFile={file}")
    looks: list[int] = []
    read = made._read_again

    def counted() -> str | None:
        why = read()
        looks.append(1)
        return why

    monkeypatch.setattr(made, "_read_again", counted)

    async def look() -> None:
        wanted = len(looks) + 2
        while len(looks) < wanted:  # noqa: ASYNC110 - another thread looks
            await asyncio.sleep(0.001)

    async def main() -> None:
        task = asyncio.create_task(made.run())
        try:
            await asyncio.wait_for(steps(router, look), 10)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_a_changed_file_counts_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "accesscontrol.port")
    file = tmp_path / "administrators"
    file.write_text("eve=eve-1\n")

    def read_times() -> int:
        return [record.getMessage() for record in caplog.records].count("administrators read")

    async def steps(router: Router, look: Callable[[], Awaitable[None]]) -> None:
        assert remark(router, EVE) is None
        await look()
        assert read_times() == 1, "what did not change is not read again"
        file.write_text("eve=eve-2\n")
        await look()
        assert read_times() == 2
        assert remark(router, EVE) == "check signature failed."
        assert remark(router, OTHER) is None
        file.write_text("")
        await look()
        assert remark(router, OTHER) == "User:eve is not found."
        assert remark(router, ADMIN) is None

    watched(monkeypatch, file, steps)


def test_while_the_file_cannot_be_used_the_last_administrators_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "administrators"
    file.write_text("eve=eve-1\n")

    def reported() -> list[str]:
        return [
            getattr(record, "fields", {})["why"]
            for record in caplog.records
            if record.getMessage() == "administrators not read again"
        ]

    async def steps(router: Router, look: Callable[[], Awaitable[None]]) -> None:
        file.write_text("eve=eve-2\nmallory\n")
        await look()
        await look()
        assert remark(router, EVE) is None
        assert remark(router, Credentials("mallory", "x")) == "User:mallory is not found."
        assert reported() == ["mallory: the password is missing"], "once"
        file.unlink()
        await look()
        assert remark(router, EVE) is None
        assert reported()[1:] == ["there is no such file"]
        file.write_text("eve=eve-1\n")
        await look()
        assert remark(router, EVE) is None
        file.unlink()
        await look()
        assert len(reported()) == 3, "again, because it was there in between"
        file.write_text("eve=eve-2\n")
        await look()
        assert remark(router, OTHER) is None

    watched(monkeypatch, file, steps)
    assert "eve-2" not in caplog.text and "eve-1" not in caplog.text
