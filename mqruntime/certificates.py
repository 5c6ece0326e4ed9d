"""A certificate authority for one cluster, and certificates of its servers and clients, as PEM files.

    python -m mqruntime.certificates ca FOLDER
    python -m mqruntime.certificates server FOLDER NAME HOST... [--address HOST:PORT]...
    python -m mqruntime.certificates client FOLDER NAME

Invariant: a key is readable by its owner only, and no file is replaced unless `--replace` is given."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mqruntime.hostports import check_address, check_host
from mqruntime.peercertificate import (
    ADDRESS_SCHEME,
    BROKER,
    CONTROLLER,
    NAME_SERVER,
    ROLE_SCHEME,
    ascii_name,
    broker_role,
)
from mqruntime.tlssettings import KeyPair

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_DAYS, DAYS = 3_650, 365
BACKDATED = timedelta(minutes=5)
"""The clocks of a cluster differ a little."""


class CannotIssue(Exception):
    """A certificate cannot be made; the text says why."""


class Issued(NamedTuple):
    certificate: x509.Certificate
    key: EllipticCurvePrivateKey


def make_authority(folder: Path, *, days: int = CA_DAYS, replace: bool = False) -> None:
    """Writes `ca.pem` and `ca.key` into `folder`. Raises CannotIssue, OSError."""
    _write(folder, "ca", _issued("autoswitch-mq CA", [], None, days, is_authority=True), replace, [])


def make_server(
    folder: Path,
    name: str,
    hosts: Sequence[str],
    addresses: Sequence[str] = (),
    roles: Sequence[str] = (),
    *,
    days: int = DAYS,
    replace: bool = False,
) -> None:
    """Writes `name.pem` and `name.key`, signed by the authority in `folder`. The certificate speaks for all ports
    of `hosts`, or only for `addresses` if there are some, and only in these `roles` if there are some. Raises CannotIssue,
    OSError."""
    if not hosts:
        raise CannotIssue(f"{name}: a server needs the host names and IP addresses that others reach it by")
    try:
        names = [check_host(host) for host in hosts]
        uris = [ADDRESS_SCHEME + ascii_name(check_address(address)) for address in addresses]
        uris += [ROLE_SCHEME + _checked_role(role) for role in roles]
    except ValueError as error:
        raise CannotIssue(f"{name}: {error}") from None
    authority = _authority(folder)
    _write(folder, name, _issued(name, [*names, *uris], authority, days), replace, [authority.certificate])


def _checked_role(role: str) -> str:
    """Raises ValueError."""
    if role in (CONTROLLER, NAME_SERVER):
        return role
    if role.startswith(BROKER) and (broker_name := role.removeprefix(BROKER)):
        return broker_role(broker_name)
    raise ValueError(f"{role!r} is no role: {CONTROLLER}, {NAME_SERVER} or {BROKER}SET")


def make_client(folder: Path, name: str, *, days: int = DAYS, replace: bool = False) -> None:
    """As `make_server`, for a client: the certificate speaks for no server. Raises CannotIssue, OSError."""
    authority = _authority(folder)
    issued = _issued(name, [], authority, days, is_client=True)
    _write(folder, name, issued, replace, [authority.certificate])


@contextmanager
def self_signed_pair() -> Iterator[KeyPair]:
    """The files of a new self-signed certificate for localhost, while the context lasts. Raises CannotIssue, OSError."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _write(root, "test", _issued("localhost", ["localhost", "127.0.0.1", "::1"], None, 30), False, [])
        yield KeyPair(root / "test.pem", root / "test.key")


def _issued(
    name: str,
    names: Sequence[str],
    signer: Issued | None,
    days: int,
    *,
    is_authority: bool = False,
    is_client: bool = False,
) -> Issued:
    """A new key on the curve P-256, and its certificate; without a signer it is self-signed."""
    _need_library()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, signing_key = (subject, key) if signer is None else (signer.certificate.subject, signer.key)
    now = datetime.now(UTC)
    usage = x509.oid.ExtendedKeyUsageOID
    uses = [usage.CLIENT_AUTH] if is_client else [usage.SERVER_AUTH, usage.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
            ),
            critical=True,
        )
    )  # fmt: skip
    if not is_authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(map(_general_name, names)), critical=False
        )
    return Issued(builder.sign(signing_key, hashes.SHA256()), key)


def _need_library() -> None:
    if find_spec("cryptography") is None:
        raise CannotIssue(
            "certificates are made with the library cryptography: pip install 'autoswitch-mq[certificates]'"
        )


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    if name.startswith(ROLE_SCHEME):  # addresses begin with it, too
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ip_address(name.strip("[]")))
    except ValueError:
        return x509.DNSName(ascii_name(name))


def _authority(folder: Path) -> Issued:
    _need_library()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except FileNotFoundError as error:
        raise CannotIssue(f"{error.filename} is missing; `ca {folder}` makes the authority first") from None
    except (ValueError, TypeError) as error:
        raise CannotIssue(f"{folder}/ca.pem and ca.key cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise CannotIssue(f"{folder}/ca.key is no key that `ca` made")
    return Issued(certificate, key)


def _write(folder: Path, name: str, issued: Issued, replace: bool, chain: Sequence[x509.Certificate]) -> None:
    """The certificate with its `chain`, and the key: each is whole, or as it was before."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if not name or Path(name).name != name or name.startswith("."):
        raise CannotIssue(f"{name!r} is no name for a file")
    certificates = b"".join(each.public_bytes(Encoding.PEM) for each in [issued.certificate, *chain])
    key = issued.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    contents = {folder / f"{name}.pem": (certificates, 0o644), folder / f"{name}.key": (key, 0o600)}
    if not replace and (there := [path for path in contents if path.exists()]):
        raise CannotIssue(f"{there[0]} exists; --replace replaces it")
    folder.mkdir(parents=True, exist_ok=True)
    for path, (content, mode) in contents.items():
        beside = path.with_name(f"{path.name}.new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # a file that was left there has another mode
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 2 if nothing was made."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.kind == "ca":
            make_authority(chosen.folder, days=chosen.days or CA_DAYS, replace=chosen.replace)
        elif chosen.kind == "server":
            make_server(
                chosen.folder,
                chosen.name,
                chosen.hosts,
                chosen.address,
                chosen.role,
                days=chosen.days or DAYS,
                replace=chosen.replace,
            )
        else:
            make_client(chosen.folder, chosen.name, days=chosen.days or DAYS, replace=chosen.replace)
    except CannotIssue as error:
        sys.stderr.write(f"certificates: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"certificates: {error.filename}: {error.strerror}\n")
        return 2
    name = "ca" if chosen.kind == "ca" else chosen.name
    sys.stdout.write(f"{chosen.folder / name}.pem {chosen.folder / name}.key\n")
    return 0


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= CA_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to {CA_DAYS}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m mqruntime.certificates", description="Make certificates for a cluster."
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    described = {
        "ca": "the authority of a cluster: ca.pem for everyone, ca.key for nobody else",
        "server": "a certificate of a name server, controller or broker",
        "client": "a certificate of a client or tool",
    }
    for kind, text in described.items():
        made = kinds.add_parser(kind, help=text, description=text)
        made.add_argument("folder", metavar="FOLDER", type=Path, help="of the authority; new files go there")
        if kind != "ca":
            made.add_argument("name", metavar="NAME", help="of the files, and in the certificate")
        if kind == "server":
            made.add_argument(
                "hosts", metavar="HOST", nargs="+", help="host name or IP address of the server"
            )
            made.add_argument(
                "--address",
                metavar="HOST:PORT",
                action="append",
                default=[],
                help="speaks for this address only, where several servers share a host",
            )
            made.add_argument(
                "--role",
                metavar="ROLE",
                action="append",
                default=[],
                help=f"{BROKER}SET, {CONTROLLER} or {NAME_SERVER}: not for other servers",
            )
        made.add_argument("--days", type=_days, metavar="N", help="how long it is valid")
        made.add_argument("--replace", action="store_true", help="replace files that exist")
    return parser


if __name__ == "__main__":
    sys.exit(main())
