"""The credentials with which a server signs what it sends to other servers. Upstream: AuthConfig, whose brokers check them."""

from __future__ import annotations

import json

from pydantic import Field, SecretStr, field_validator

from mqruntime.settings import Settings
from mqruntime.toolcredentials import AccessKeys


class InnerCredentialsSettings(Settings):
    """A base class, in addition to a server's own settings."""

    inner_credentials: SecretStr | None = Field(
        None,
        alias="innerClientAuthenticationCredentials",
        description='`{"accessKey":"...","secretKey":"..."}`: signs requests to other servers, which Java brokers may check',
    )

    @field_validator("inner_credentials")
    @classmethod
    def _keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _pair(value.get_secret_value())
        return value

    @property
    def inner_keys(self) -> AccessKeys | None:
        return None if self.inner_credentials is None else _pair(self.inner_credentials.get_secret_value())


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
