"""Certificates that are made here, as OpenSSL's verification and other libraries read them."""

from __future__ import annotations

import shutil
import ssl
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from mqruntime.certificatedates import NoCertificate, validity_of
from mqruntime.certificates import (
    CannotIssue,
    main,
    make_authority,
    make_client,
    make_server,
    self_signed_pair,
)

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")


def names_in(path: Path) -> tuple[list[str], list[str], list[str]]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        found.get_values_for_type(x509.DNSName),
        [str(each) for each in found.get_values_for_type(x509.IPAddress)],
        found.get_values_for_type(x509.UniformResourceIdentifier),
    )


@needs_openssl
def test_a_server_certificate_has_its_hosts_and_addresses(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_server(tmp_path, "b0", ["broker-0.example", "10.0.0.7", "[::1]"], ["10.0.0.7:10911"])
    assert names_in(tmp_path / "b0.pem") == (
        ["broker-0.example"], ["10.0.0.7", str(ip_address("::1"))], ["rocketmq://10.0.0.7:10911"],
    )  # fmt: skip
    for purpose in ("sslserver", "sslclient"):
        subprocess.run(
            ["openssl", "verify", "-purpose", purpose, "-CAfile", tmp_path / "ca.pem", tmp_path / "b0.pem"],
            check=True, capture_output=True,
        )  # fmt: skip


def test_a_name_with_other_letters_is_in_its_ascii_form(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_server(tmp_path, "b0", ["bücher.example"], ["bücher.example:10911"])
    assert names_in(tmp_path / "b0.pem") == (
        ["xn--bcher-kva.example"], [], ["rocketmq://xn--bcher-kva.example:10911"],
    )  # fmt: skip


def test_a_role_is_a_name_of_its_certificate(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_server(tmp_path, "b0", ["h"], roles=["broker/a b", "controller"])
    assert names_in(tmp_path / "b0.pem") == (["h"], [], ["rocketmq:broker/a%20b", "rocketmq:controller"])
    for role in ("brokers", "broker/", "", "client"):
        with pytest.raises(CannotIssue, match="is no role: controller, namesrv or broker/SET"):
            make_server(tmp_path, "b1", ["h"], roles=[role])


@needs_openssl
def test_a_client_certificate_speaks_for_no_server(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_client(tmp_path, "alice")
    verify = ["openssl", "verify", "-CAfile", tmp_path / "ca.pem", "-purpose"]
    subprocess.run([*verify, "sslclient", tmp_path / "alice.pem"], check=True, capture_output=True)
    assert subprocess.run([*verify, "sslserver", tmp_path / "alice.pem"], capture_output=True).returncode != 0


def test_keys_are_for_their_owner_only_and_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    make_authority(tmp_path)
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    before = (tmp_path / "ca.pem").read_bytes()
    with pytest.raises(CannotIssue, match="ca.pem exists; --replace replaces it"):
        make_authority(tmp_path)
    assert (tmp_path / "ca.pem").read_bytes() == before
    make_authority(tmp_path, replace=True)
    assert (tmp_path / "ca.pem").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["server", "FOLDER", "b0", "127.0.0.1"], "ca.pem is missing"),
        (["server", "FOLDER", "b0", "a,b"], "a comma where ; is due"),
        (["server", "FOLDER", "b0", "h", "--address", "h"], "the port is missing"),
        (["client", "FOLDER", "../alice"], "is no name for a file"),
    ],
)
def test_what_cannot_be_made_is_one_line(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "missing" not in message or "port" in message:
        make_authority(tmp_path)
    assert main([str(tmp_path) if each == "FOLDER" else each for each in arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_the_command_makes_files_that_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", str(tmp_path)]) == 0
    assert main(["server", str(tmp_path), "b0", "localhost", "--days", "7"]) == 0
    assert capsys.readouterr().out.split()[-1] == f"{tmp_path}/b0.key"
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "b0.pem", tmp_path / "b0.key")


def test_the_dates_are_read_as_another_library_reads_them(tmp_path: Path) -> None:
    make_authority(tmp_path, days=3_650)  # beyond 2049 a time has another form
    make_server(tmp_path, "b0", ["localhost"], days=40)
    for name in ("ca", "b0"):
        text = (tmp_path / f"{name}.pem").read_text()
        other = x509.load_pem_x509_certificate(text.encode())
        assert validity_of(text) == (
            other.not_valid_before_utc.timestamp() * 1000, other.not_valid_after_utc.timestamp() * 1000,
        )  # fmt: skip
    with self_signed_pair() as pair:
        ends_ms = validity_of(pair.certificate.read_text()).ends_ms
        assert ends_ms < (datetime.now(UTC) + timedelta(days=31)).timestamp() * 1000


@needs_openssl
def test_a_time_beyond_2049_is_read(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "k", "-out", tmp_path / "c",
         "-days", "14600", "-subj", "/CN=x"], check=True, capture_output=True,
    )  # fmt: skip
    text = (tmp_path / "c").read_text()
    other = x509.load_pem_x509_certificate(text.encode())
    assert validity_of(text).ends_ms == other.not_valid_after_utc.timestamp() * 1000


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x" * 99]
)
def test_what_is_no_certificate_is_an_error(text: str) -> None:
    with pytest.raises(NoCertificate):
        validity_of(text)


def test_no_prefix_of_a_certificate_is_read_as_one(tmp_path: Path) -> None:
    make_authority(tmp_path)
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "ca.pem").read_text())
    for size in range(0, len(der), 7):
        with pytest.raises(NoCertificate):
            validity_of(ssl.DER_cert_to_PEM_cert(der[:size]))
