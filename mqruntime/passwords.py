"""`python -m mqruntime.passwords FOLDER`: makes random passwords for a cluster with access control, each in a file that only
its owner may read.

`servers.json` is for `innerClientAuthenticationCredentials` of all servers, `administrator.json` for `initAuthenticationUser`,
and `tools.yml` has the administrator's credentials for mqadmin."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

SERVERS_FILE, ADMINISTRATOR_FILE, TOOLS_FILE = "servers.json", "administrator.json", "tools.yml"
PASSWORD_BYTES = 24


def make_passwords(folder: Path) -> None:
    """Write the three files. Raises FileExistsError, OSError."""
    secret, password = secrets.token_urlsafe(PASSWORD_BYTES), secrets.token_urlsafe(PASSWORD_BYTES)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / SERVERS_FILE, json.dumps({"accessKey": "servers", "secretKey": secret}))
    _write(folder / ADMINISTRATOR_FILE, json.dumps({"username": "administrator", "password": password}))
    _write(folder / TOOLS_FILE, f'accessKey: administrator\nsecretKey: "{password}"')


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 2 if nothing was made."""
    parser = argparse.ArgumentParser(
        "python -m mqruntime.passwords", description="Make passwords for a cluster with access control."
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the files go there")
    folder: Path = parser.parse_args(arguments).folder
    if there := [name for name in (SERVERS_FILE, ADMINISTRATOR_FILE, TOOLS_FILE) if (folder / name).exists()]:
        sys.stderr.write(f"passwords: {folder / there[0]} exists; remove it to make new ones\n")
        return 2
    try:
        make_passwords(folder)
    except OSError as error:
        sys.stderr.write(f"passwords: {error.filename}: {error.strerror}\n")
        return 2
    sys.stdout.write("".join(f"{folder / name}\n" for name in (SERVERS_FILE, ADMINISTRATOR_FILE, TOOLS_FILE)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
