"""Certificates of a small cluster, and settings that use them."""

from __future__ import annotations

from pathlib import Path

from mqruntime.certificates import make_authority, make_client, make_server

HOSTS = ["127.0.0.1", "localhost"]


class Pki:
    """An authority in `folder`, a server certificate `all` for this machine, one of a client, and a stranger's authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_authority(folder)
        make_server(folder, "all", HOSTS)
        make_client(folder, "alice")
        make_authority(folder / "stranger")
        make_server(folder / "stranger", "all", HOSTS)

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def server(self, mode: str = "enforcing", *more: str, name: str = "all") -> list[str]:
        """Settings of a server with the certificate `name`."""
        return [
            f"tls.server.mode={mode}",
            f"tls.server.certPath={self.folder / name}.pem",
            f"tls.server.keyPath={self.folder / name}.key",
            f"tls.server.trustCertPath={self.ca}",
            f"tls.client.trustCertPath={self.ca}",
            *more,
        ]

    def mutual(self, mode: str = "enforcing", name: str = "all") -> list[str]:
        """Settings of a server that asks clients for a certificate, too."""
        asks = ["tls.server.need.client.auth=require", "tls.server.authClient=true"]
        return self.server(mode, *asks, name=name)

    def file(self, name: str, lines: list[str]) -> Path:
        """A `tls.config.file`: those of `lines` that may stand in one."""
        path = self.folder / name
        only_own = ("tls.server.mode", "tls.enable", "tls.ha.")
        path.write_text("".join(f"{line}\n" for line in lines if not line.startswith(only_own)))
        return path
