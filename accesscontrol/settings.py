"""The settings of access control. Upstream: AuthConfig; here name servers and controllers have them, too.

Invariant: a key that would leave a port open although it looks closed is an error at the start, never ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from mqruntime.innercredentials import InnerCredentialsSettings, content_of
from mqruntime.settings import OURS

AUDIT = "audit"
"""The logger of the audit log."""
AUTH = "org.apache.rocketmq.auth."
PROVIDERS = {
    "authenticationProvider": f"{AUTH}authentication.provider.DefaultAuthenticationProvider",
    "authorizationProvider": f"{AUTH}authorization.provider.DefaultAuthorizationProvider",
    "authenticationMetadataProvider": f"{AUTH}authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{AUTH}authorization.provider.LocalAuthorizationMetadataProvider",
}
"""Upstream's classes, whose rules hold here."""
STRATEGIES = (
    "StatelessAuthenticationStrategy", "StatefulAuthenticationStrategy",
    "StatelessAuthorizationStrategy", "StatefulAuthorizationStrategy",
)  # fmt: skip


class AccessSettings(InnerCredentialsSettings):
    """A base class, in addition to a server's own settings."""

    ACCESS_IGNORED: ClassVar[frozenset[str]] = frozenset(
        {
            "aclCacheExpiredSecond", "aclCacheMaxNum", "aclCacheRefreshSecond", "authConfigPath",
            "authenticationStrategy", "authorizationStrategy",
            "statefulAuthenticationCacheExpiredSecond", "statefulAuthenticationCacheMaxNum",
            "statefulAuthorizationCacheExpiredSecond", "statefulAuthorizationCacheMaxNum",
            "userCacheExpiredSecond", "userCacheMaxNum", "userCacheRefreshSecond",
        }
    )  # fmt: skip
    """Keys of upstream's caches, and the folder of its databases: here each request is checked, and users are tables."""

    ACCESS_UPSTREAM: ClassVar[dict[str, str]] = {
        "auditLogPath": OURS,
        "authenticationProvider": "null",
        "authenticationMetadataProvider": "null",
        "authorizationProvider": "null",
        "authorizationMetadataProvider": "null",
    }

    acl_enable: bool = Field(
        False,
        alias="aclEnable",
        description="must be false: ACL 1.0, which upstream ignores since 5.3.3; use `authenticationEnabled`",
    )
    authentication_enabled: bool = Field(
        False,
        alias="authenticationEnabled",
        description="accept only signed requests, and those of servers with certificates",
    )
    authorization_enabled: bool = Field(
        False, alias="authorizationEnabled", description="accept only what the policies of the user allow"
    )
    authentication_whitelist: str = Field(
        "",
        alias="authenticationWhitelist",
        description="request codes that need no signature, `105,106`; only requests that change nothing",
    )
    authorization_whitelist: str = Field(
        "", alias="authorizationWhitelist", description="request codes that every user may send"
    )
    init_authentication_user: SecretStr | None = Field(
        None,
        alias="initAuthenticationUser",
        description='`{"username":"...","password":"..."}`, or `file:PATH` with that: an administrator, made if missing',
    )
    authentication_provider: str = Field(
        "", alias="authenticationProvider", description="upstream's class, or empty"
    )
    authentication_metadata_provider: str = Field(
        "", alias="authenticationMetadataProvider", description="upstream's class, or empty"
    )
    authorization_provider: str = Field(
        "", alias="authorizationProvider", description="upstream's class, or empty"
    )
    authorization_metadata_provider: str = Field(
        "", alias="authorizationMetadataProvider", description="upstream's class, or empty"
    )
    migrate_auth_from_v1_enabled: bool = Field(
        False,
        alias="migrateAuthFromV1Enabled",
        description="must be false: the command `importPlainAcl` of mqadmin converts a plain_acl.yml",
    )
    audit_log_path: str = Field(
        "",
        alias="auditLogPath",
        description="file of the audit log, which is renamed as it grows; empty: the server's own log",
    )

    @field_validator("acl_enable")
    @classmethod
    def _no_acl_1(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "must be false: ACL 1.0 is not served; set authenticationEnabled=true and authorizationEnabled=true"
            )
        return value

    @field_validator("migrate_auth_from_v1_enabled")
    @classmethod
    def _no_import(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "must be false: convert the file once, with the command importPlainAcl of mqadmin"
            )
        return value

    @field_validator(
        "authentication_provider",
        "authentication_metadata_provider",
        "authorization_provider",
        "authorization_metadata_provider",
    )
    @classmethod
    def _known_class(cls, value: str) -> str:
        if value and value not in PROVIDERS.values():
            raise ValueError(f"must be empty or one of {', '.join(PROVIDERS.values())}")
        return value

    @field_validator("authentication_whitelist", "authorization_whitelist")
    @classmethod
    def _codes(cls, value: str) -> str:
        codes_in(value)
        return value

    @field_validator("init_authentication_user")
    @classmethod
    def _user(cls, value: SecretStr | None) -> SecretStr | None:
        value = content_of(value)
        if value is not None:
            _user_in(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _rights_need_names(self) -> Self:
        if self.authorization_enabled and not self.authentication_enabled:
            raise ValueError(
                "authorizationEnabled=true needs authenticationEnabled=true: without signatures everybody may use every name"
            )
        return self

    @property
    def checks_users(self) -> bool:
        return self.authentication_enabled

    @property
    def log_files(self) -> dict[str, Path]:
        return {AUDIT: Path(self.audit_log_path).expanduser()} if self.audit_log_path else {}

    @property
    def init_user(self) -> tuple[str, str] | None:
        """Name and password."""
        user = self.init_authentication_user
        return None if user is None else _user_in(user.get_secret_value())

    @property
    def open_codes(self) -> frozenset[int]:
        """Codes that need neither a signature nor rights."""
        unsigned = codes_in(self.authentication_whitelist)
        return unsigned & codes_in(self.authorization_whitelist) if self.authorization_enabled else unsigned

    @property
    def signed_codes(self) -> frozenset[int]:
        """Codes that need a signature only."""
        return codes_in(self.authorization_whitelist)


class PortAccessSettings(AccessSettings):
    """Name servers and controllers, which keep no users: their administrators are in the settings and in a file."""

    ACCESS_UPSTREAM: ClassVar[dict[str, str]] = {
        **AccessSettings.ACCESS_UPSTREAM,
        "administratorsFile": OURS,
        **dict.fromkeys(
            (
                "aclEnable", "authenticationEnabled", "authenticationWhitelist", "authorizationEnabled",
                "authorizationWhitelist", "initAuthenticationUser", "innerClientAuthenticationCredentials",
                "migrateAuthFromV1Enabled",
            ),
            OURS,
        ),
        **dict.fromkeys(PROVIDERS, OURS),
    }  # fmt: skip

    administrators_file: str = Field(
        "",
        alias="administratorsFile",
        description="properties file with a line `name=password` for each administrator; read again when it changes",
    )

    @property
    def open_codes(self) -> frozenset[int]:
        """There are no rights here, only administrators."""
        return codes_in(self.authentication_whitelist)

    @property
    def administrators(self) -> dict[str, str]:
        """Name -> password, of those in the settings."""
        user = self.init_user
        return {} if user is None else {user[0]: user[1]}


def codes_in(text: str) -> frozenset[int]:
    """Raises ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError("must be request codes with commas between them")
    return frozenset(map(int, words))


def _user_in(text: str) -> tuple[str, str]:
    """Raises ValueError, without the text."""
    try:
        found = json.loads(text)
        name, password = found["username"], found["password"]
    except (ValueError, TypeError, KeyError):
        name = password = ""
    if not all(isinstance(part, str) and part for part in (name, password)):
        raise ValueError('must be {"username":"...","password":"..."}')
    return name, password
