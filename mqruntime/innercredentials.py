"""The credentials with which a server signs what it sends to other servers. Upstream: AuthConfig, whose brokers check them.

A secret value may be in a file of its own, which the setting names: `file:PATH`."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from mqruntime.settings import Settings
from mqruntime.toolcredentials import AccessKeys

FILE = "file:"
FILE_BYTES_MAX = 64 << 10


class InnerCredentialsSettings(Settings):
    """A base class, in addition to a server's own settings."""

    inner_credentials: SecretStr | None = Field(
        None,
        alias="innerClientAuthenticationCredentials",
        description='`{"accessKey":"...","secretKey":"..."}`, or `file:PATH` with that: signs requests to other servers',
    )

    @field_validator("inner_credentials")
    @classmethod
    def _keys(cls, value: SecretStr | None) -> SecretStr | None:
        value = content_of(value)
        if value is not None:
            _pair(value.get_secret_value())
        return value

    @property
    def inner_keys(self) -> AccessKeys | None:
        return None if self.inner_credentials is None else _pair(self.inner_credentials.get_secret_value())


def content_of(value: SecretStr | None) -> SecretStr | None:
    """The value itself, or the content of the file that it names. Raises ValueError."""
    text = None if value is None else value.get_secret_value()
    if text is None or not text.startswith(FILE):
        return value
    path = Path(text.removeprefix(FILE).strip()).expanduser()
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening something else might wait for ever
            raise ValueError(f"{path} is no file")
        with path.open("rb") as file:
            return SecretStr(file.read(FILE_BYTES_MAX).decode().strip())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} cannot be read: it is not UTF-8") from None


def _pair(text: str) -> AccessKeys:
    """Raises ValueError, without the text."""
    try:
        found = json.loads(text)
        keys = AccessKeys(found["accessKey"], found["secretKey"])
    except (ValueError, TypeError, KeyError):
        keys = AccessKeys("", "")
    if not all(isinstance(key, str) and key for key in keys):
        raise ValueError('must be {"accessKey":"...","secretKey":"..."}')
    return keys
