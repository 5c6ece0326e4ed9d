"""The access key and secret key of a tool: from a file, or from the environment. Upstream: tools.yml of mqadmin.

Invariant: half of them, or a file that cannot be read, is an error, never an unsigned request; no text shows a secret key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FILE_VARIABLE = "MQ_CREDENTIALS_FILE"
KEY_VARIABLES = "MQ_ACCESS_KEY", "MQ_SECRET_KEY"
HOME_VARIABLE = "ROCKETMQ_HOME"
LINE = re.compile(r"^(accessKey|secretKey)\s*:\s*(.*?)\s*$")
COMMENT = re.compile(r"\s+#.*$")


class CredentialsUnusable(Exception):
    """The credentials cannot be used; the text says where they are, and what is wrong."""


class AccessKeys(NamedTuple):
    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        """Without the secret key."""
        return f"AccessKeys({self.access_key!r})"


def keys_of_environment(environment: Mapping[str, str] = os.environ) -> AccessKeys | None:
    """The keys in the file that MQ_CREDENTIALS_FILE names, in MQ_ACCESS_KEY and MQ_SECRET_KEY, or in `conf/tools.yml` of
    ROCKETMQ_HOME, which upstream's tools read; None if there are none. Raises CredentialsUnusable."""
    named = environment.get(FILE_VARIABLE)
    if named:
        path = Path(named).expanduser()
        found = keys_in(path)
        if found is None:
            raise CredentialsUnusable(f"{path}: accessKey and secretKey are missing")
        return found
    access_key, secret_key = (environment.get(name, "") for name in KEY_VARIABLES)
    if access_key or secret_key:
        if not access_key or not secret_key:
            raise CredentialsUnusable(f"one of {' and '.join(KEY_VARIABLES)} is not set; set both, or none")
        return AccessKeys(access_key, secret_key)
    home = environment.get(HOME_VARIABLE)
    shared = Path(home) / "conf" / "tools.yml" if home else None
    return keys_in(shared) if shared is not None and shared.exists() else None


def keys_in(path: Path) -> AccessKeys | None:
    """None if both are missing or empty, as in upstream's sample. Raises CredentialsUnusable."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CredentialsUnusable(f"{path} cannot be read: {why}") from None
    found = dict.fromkeys(("accessKey", "secretKey"), "")
    for number, line in enumerate(text.splitlines(), 1):
        if match := LINE.match(line):
            found[match[1]] = _value(match[2], path, number)
    access_key, secret_key = found.values()
    if bool(access_key) is not bool(secret_key):
        raise CredentialsUnusable(f"{path}: one of accessKey and secretKey is missing")
    return AccessKeys(access_key, secret_key) if access_key else None


def _value(text: str, path: Path, number: int) -> str:
    """A plain or quoted scalar of YAML."""
    if text[:1] in ("'", '"'):
        quote, end = text[0], text.rfind(text[0])
        if end == 0 or COMMENT.sub("", text[end + 1 :] and f" {text[end + 1 :]}"):
            raise CredentialsUnusable(f"{path}:{number}: the quotation is not ended")
        inner = text[1:end]
        return inner.replace("''", "'") if quote == "'" else inner.replace('\\"', '"').replace("\\\\", "\\")
    return "" if text.startswith("#") else COMMENT.sub("", text)
