"""Makes the certificates and passwords of a secure local cluster: all its connections use TLS, and all its requests are signed.

Invariant: each process has a separate certificate, which is valid only for the addresses of that process. The certificate of
clients is valid for no server. Clients send and read as a user who may do only that."""

from __future__ import annotations

import secrets
import shutil
import ssl
from pathlib import Path

from localcluster.layout import BROKER_SET, TLS_FOLDER, Layout
from mqadmin.admin import AdminClient
from mqadmin.calls.access import create_acl, create_user, user_of
from mqclient import Credentials
from mqruntime.certificates import make_authority, make_client, make_server
from mqruntime.clock import SystemClock
from mqruntime.network import PLAIN, Connector
from mqruntime.passwords import TOOLS_FILE, make_passwords
from mqruntime.tlsclient import context_from
from mqruntime.tlsconnector import TlsConnector
from mqruntime.tlsfiles import FILE_VARIABLE as TLS_FILE_VARIABLE
from mqruntime.toolcredentials import FILE_VARIABLE as CREDENTIALS_FILE_VARIABLE
from mqruntime.toolcredentials import CredentialsUnusable, keys_in
from remoting.bodies.access import CUSTOM, NORMAL, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.signing import Signer

TOOLS = "tools"
APPLICATION, APPLICATION_FILE = "application", "application.yml"
APPLICATION_RIGHTS = AclInfo(
    f"User:{APPLICATION}",
    [
        PolicyInfo(
            CUSTOM,
            [
                PolicyEntryInfo("Topic:*", ["Pub", "Sub", "Get"], None, "Allow"),
                PolicyEntryInfo("Group:*", ["Sub", "Get"], None, "Allow"),
            ],
        )
    ],
)


def tools_file(layout: Layout) -> Path:
    """The `tls.config.file` of clients and tools."""
    return layout.directory / TLS_FOLDER / f"{TOOLS}.properties"


def make_certificates(layout: Layout, authority: Path | None = None) -> None:
    """Write a certificate for each process, a certificate for clients, and the files that name these. Without the folder of an
    `authority`, one is made. Raises CannotIssue, OSError."""
    folder = layout.directory / TLS_FOLDER
    if authority is None:
        make_authority(folder)
    else:
        folder.mkdir(parents=True)
        for name in ("ca.pem", "ca.key"):
            shutil.copy(authority / name, folder / name)
    hosts = list(dict.fromkeys([layout.host, layout.bind_host, "localhost"]))
    for name in layout.names:
        ports = layout.ports_of(name)
        addresses = [f"{host}:{port}" for host in hosts for port in ports]
        role = f"broker/{BROKER_SET}" if name in layout.broker_names else name.partition("-")[0]
        make_server(folder, name, hosts, addresses, [role])
        _write(folder, name, server=True)
    make_tools_file(folder)


def environment_of(layout: Layout) -> dict[str, str]:
    """The variables with which mqadmin and other tools are an administrator's; empty for a plain cluster."""
    if not layout.secure:
        return {}
    return {
        TLS_FILE_VARIABLE: str(tools_file(layout)),
        CREDENTIALS_FILE_VARIABLE: str(layout.directory / TLS_FOLDER / TOOLS_FILE),
    }


def make_passwords_of(layout: Layout) -> None:
    """Write the passwords of servers, administrator and application. Raises OSError."""
    folder = layout.directory / TLS_FOLDER
    make_passwords(folder)
    path = folder / APPLICATION_FILE
    path.touch(0o600)
    path.write_text(f'accessKey: {APPLICATION}\nsecretKey: "{secrets.token_urlsafe()}"\n')


def make_tools_file(folder: Path) -> Path:
    """Write the certificate of clients, signed by the authority in `folder`, and the file that names it. Raises CannotIssue,
    OSError."""
    make_client(folder, TOOLS)
    _write(folder, TOOLS, server=False)
    return folder / f"{TOOLS}.properties"


def _write(folder: Path, name: str, *, server: bool) -> None:
    lines: dict[str, object] = {
        f"tls.{side}.{key}": folder / f"{name}.{suffix}"
        for side in (["server", "client"] if server else ["client"])
        for key, suffix in (("certPath", "pem"), ("keyPath", "key"))
    }
    lines |= {
        "tls.client.trustCertPath": folder / "ca.pem",
        "tls.client.authServer": "true",
        "tls.test.mode.enable": "false",
    }
    if server:
        lines |= {
            "tls.server.trustCertPath": folder / "ca.pem",
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
        }
    (folder / f"{name}.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


def context_of(layout: Layout) -> ssl.SSLContext | None:
    """The context of a client; None for a plain cluster. Raises TlsUnusable."""
    return context_from(tools_file(layout)) if layout.secure else None


def connector_of(layout: Layout) -> Connector:
    """The connector of a tool. Raises TlsUnusable."""
    context = context_of(layout)
    return PLAIN if context is None else TlsConnector(context)


def credentials_of(layout: Layout) -> Credentials | None:
    """The application's; None for a plain cluster. Raises CredentialsUnusable."""
    return _credentials(layout, APPLICATION_FILE) if layout.secure else None


def admin_of(layout: Layout) -> AdminClient:
    """A client with the administrator's rights. Raises TlsUnusable, CredentialsUnusable."""
    keys = _credentials(layout, TOOLS_FILE) if layout.secure else None
    return AdminClient(SystemClock(), connector_of(layout), None if keys is None else Signer(keys))


async def let_application_in(layout: Layout, admin: AdminClient, master: str) -> None:
    """Make the application's user, with rights to send and read. Raises AdminError."""
    keys = _credentials(layout, APPLICATION_FILE)
    if await user_of(admin, master, APPLICATION) is None:
        await create_user(admin, master, UserInfo(APPLICATION, keys.secret_key, NORMAL))
        await create_acl(admin, master, APPLICATION_RIGHTS)


def _credentials(layout: Layout, file: str) -> Credentials:
    keys = keys_in(layout.directory / TLS_FOLDER / file)
    if keys is None:
        raise CredentialsUnusable(f"{file} of {layout.directory} has no keys")
    return Credentials(*keys)
