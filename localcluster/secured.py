"""Makes the certificates of a local cluster whose connections all use TLS, and of the clients that may connect to it.

Invariant: each process has a separate certificate, which is valid only for the addresses of that process. The certificate of
clients is valid for no server."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

from localcluster.layout import TLS_FOLDER, Layout
from mqruntime.certificates import make_authority, make_client, make_server
from mqruntime.network import PLAIN, Connector
from mqruntime.tlsclient import context_from
from mqruntime.tlsconnector import TlsConnector

TOOLS = "tools"


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
        make_server(folder, name, hosts, [f"{host}:{port}" for host in hosts for port in ports])
        _write(folder, name, server=True)
    make_tools_file(folder)


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
