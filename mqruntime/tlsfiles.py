"""The `tls.config.file` of a tool, which the environment names, and the error of a file that cannot be used.

Invariant: importing this loads neither an event loop nor the library of settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FILE_VARIABLE = "MQ_TLS_CONFIG_FILE"
"""Environment variable that names the `tls.config.file` of tools, which have no configuration file of their own."""


class TlsUnusable(Exception):
    """A file of TLS cannot be used; the text says which, why, and what to do."""


def environment_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that FILE_VARIABLE names; None without one."""
    name = environment.get(FILE_VARIABLE)
    return Path(name).expanduser() if name else None
