"""Settings of TLS: their defaults, errors, and the file that they may come from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqruntime.settings import SettingsError
from mqruntime.tlssettings import ClientAuth, KeyPair, TlsMode, TlsOptions, TlsSettings, tls_options

PAIR = ["tls.server.certPath=/c.pem", "tls.server.keyPath=/k.pem"]


def options_of(*lines: str) -> TlsOptions:
    return tls_options(TlsSettings.load(None, list(lines)))


def test_nothing_is_encrypted_unless_it_is_asked_for() -> None:
    found = options_of()
    assert (found.mode, found.connects, found.test_mode, found.is_used) == (
        TlsMode.DISABLED,
        False,
        False,
        False,
    )
    assert not TlsSettings.load(None, []).names_tls


def test_a_certificate_makes_ports_take_both() -> None:
    found = options_of(*PAIR)
    assert (found.mode, found.connects) == (TlsMode.PERMISSIVE, False)
    assert found.server == found.client == KeyPair(Path("/c.pem"), Path("/k.pem"))
    assert TlsSettings.load(None, PAIR).names_tls


def test_own_connections_use_tls_where_ports_enforce_it_unless_it_is_set() -> None:
    assert options_of("tls.server.mode=enforcing", *PAIR).connects
    assert not options_of("tls.server.mode=enforcing", "tls.enable=false", *PAIR).connects
    assert options_of("tls.enable=true").connects


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["tls.server.mode=Enforcing"],
            "tls.server.mode=Enforcing: is none of disabled, permissive, enforcing",
        ),
        (["tls.server.mode=enforcing"], "needs tls.server.certPath and tls.server.keyPath"),
        (["tls.server.mode=permissive"], "needs tls.server.certPath and tls.server.keyPath"),
        (["tls.server.certPath=/c.pem"], "tls.server.certPath=/c.pem: needs tls.server.keyPath, too"),
        (["tls.client.keyPath=/k.pem"], "tls.client.keyPath=/k.pem: needs tls.client.certPath, too"),
        (
            [*PAIR, "tls.server.need.client.auth=require"],
            "needs tls.server.trustCertPath, the CAs of clients",
        ),
        (
            [*PAIR, "tls.server.need.client.auth=optional"],
            "needs tls.server.trustCertPath, the CAs of clients",
        ),
        (["tls.server.need.client.auth=always"], "is none of none, optional, require"),
        (
            ["tls.server.need.client.auth=require", "tls.server.trustCertPath=/ca"],
            "certificates are asked for over TLS only",
        ),
        (
            [*PAIR, "tls.test.mode.enable=true", "tls.server.need.client.auth=require"],
            "test.mode.enable checks no certificate",
        ),
        (["tls.ha.plainHosts=a,b"], "a comma where ; is due"),
        (["tls.config.file=/nowhere/tls.properties"], "/nowhere/tls.properties: cannot be read"),
    ],
)
def test_a_setting_that_would_weaken_tls_is_an_error(lines: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        options_of(*lines)
    assert message in str(caught.value)


def test_the_file_of_tls_wins_and_what_it_cannot_say_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.server.certPath=/file.pem\ntls.server.keyPassword=from the file\ntls.server.mode=disabled\n"
        "tls.server.need.client.auth=optional\ntls.server.trustCertPath=/ca.pem\n"
    )
    found = options_of(
        "tls.server.mode=enforcing", *PAIR, "tls.server.keyPassword=own", f"tls.config.file={file}"
    )
    assert found.server == KeyPair(Path("/file.pem"), Path("/k.pem"), "from the file")
    assert (found.mode, found.client_auth, found.client_trust) == (
        TlsMode.ENFORCING, ClientAuth.OPTIONAL, Path("/ca.pem"),
    )  # fmt: skip
    assert found.warnings == (f"{file}:3: tls.server.mode: has no effect in this file",)
    assert found.files == (file, Path("/file.pem"), Path("/k.pem"), Path("/ca.pem"))


def test_a_wrong_value_in_the_file_is_reported_for_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.need.client.auth=sometimes\n")
    with pytest.raises(
        SettingsError, match="tls.properties: tls.server.need.client.auth=sometimes: is none of"
    ):
        options_of(*PAIR, f"tls.config.file={file}")


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (
            ["tls.server.need.client.auth=require", "tls.server.trustCertPath=/ca"],
            "without tls.server.authClient=true",
        ),
        (
            ["tls.server.need.client.auth=require", "tls.server.trustCertPath=/ca"],
            "plain connections, which have none",
        ),
        (["tls.server.mode=enforcing", "tls.enable=false"], "connections that this server opens are plain"),
        (["tls.client.authServer=false"], "trusts whatever answers"),
        (["tls.test.mode.enable=true"], "anyone can be in between"),
    ],
)
def test_what_weakens_tls_is_warned_of(lines: list[str], warning: str) -> None:
    assert any(warning in each for each in options_of(*PAIR, *lines).warnings)


def test_no_password_is_shown() -> None:
    settings = TlsSettings.load(None, [*PAIR, "tls.server.keyPassword=open sesame"])
    assert "sesame" not in settings.effective() and "sesame" not in repr(tls_options(settings))
    assert tls_options(settings).server == KeyPair(Path("/c.pem"), Path("/k.pem"), "open sesame")


def test_a_question_for_certificates_makes_a_network_of_tls() -> None:
    """Alone it is an error, and not a plain network."""
    assert TlsSettings.load(None, ["tls.server.need.client.auth=require"]).names_tls


def test_a_fifo_in_place_of_the_file_is_an_error_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tls.properties")
    with pytest.raises(SettingsError, match="tls.properties: cannot be read: it is no file"):
        options_of(f"tls.config.file={tmp_path}/tls.properties")


@pytest.mark.parametrize(
    "key", ["tls.server.keyPasword", "tls.client.keyPassword", "innerClientAuthenticationCredentials"]
)
def test_no_error_shows_the_value_of_a_password_or_of_a_misspelt_one(key: str) -> None:
    assert "geheim" not in str(SettingsError(key, "geheim", "file", 1, "is wrong"))
