"""Credentials for Java's clients and tools, in the files that they read. Only their owner may read these files."""

from __future__ import annotations

import shutil
from pathlib import Path

from localcluster.layout import TLS_FOLDER, Layout
from localcluster.secured import tools_file
from mqruntime.passwords import TOOLS_FILE
from remoting.signing import Credentials


def key_file(path: Path, credentials: Credentials) -> Path:
    """The file of a client, which `-Drocketmq.client.keyFile` names. It replaces a former one."""
    path.touch(0o600)
    path.write_text(f"AccessKey={credentials.access_key}\nSecretKey={credentials.secret_key}\n")
    return path


def signing_options(file: Path) -> list[str]:
    """The options of a JVM whose clients sign with the credentials in a key file."""
    return [f"-Drocketmq.client.keyFile={file}"]


def tls_options(layout: Layout) -> list[str]:
    """The options of a JVM that uses TLS. Our file of settings is Java's, too. Without TLS there are none."""
    return ["-Dtls.enable=true", f"-Dtls.config.file={tools_file(layout)}"] if layout.secure else []


def mqadmin_options(tools: Path, home: Path) -> list[str]:
    """The options of a JVM whose mqadmin signs with the credentials in the file `tools`, of which `home` gets a copy."""
    folder = home / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(tools, folder / TOOLS_FILE)
    return [f"-Drocketmq.home.dir={home}"]


def administrator_file(layout: Layout) -> Path:
    """The tools.yml of a secure cluster's administrator."""
    return layout.directory / TLS_FOLDER / TOOLS_FILE
