"""Settings of TLS, the same for every server, under upstream's names. Upstream: TlsSystemConfig.

Upstream reads them as Java system properties; here they are keys of the server's own file, and, except for the mode and
`tls.enable`, of the file that `tls.config.file` names, whose values win.

Invariant: a mode that is not known, a certificate without a key, and a check without a file of trusted certificates are errors,
never a weaker setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from mqruntime.hostports import check_host
from mqruntime.properties import PropertiesError, parse
from mqruntime.settings import OURS, Settings, SettingsError


class TlsMode(Enum):
    """The connections that a port accepts: plain ones, both kinds, or only those with TLS."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether a port asks clients for a certificate, and whether they must have one."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class TlsSettings(Settings):
    """A base class, in addition to a server's own settings."""

    UPSTREAM: ClassVar[dict[str, str]] = {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "true",
        "tls.client.authServer": "false",
        "tls.config.file": "/etc/rocketmq/tls.properties",
        "tls.ha.plainHosts": OURS,
    }

    tls_server_mode: TlsMode | None = Field(
        None,
        alias="tls.server.mode",
        description="`disabled`, `permissive` (a port takes plain and TLS) or `enforcing`; empty: `permissive` with a "
        "certificate, else `disabled`",
    )
    tls_enable: bool | None = Field(
        None,
        alias="tls.enable",
        description="whether connections that this server opens use TLS; empty: if its ports are `enforcing`",
    )
    tls_config_file: Path | None = Field(
        None,
        alias="tls.config.file",
        description="a properties file with the other `tls.` keys; its values win",
    )
    tls_test_mode_enable: bool = Field(
        False,
        alias="tls.test.mode.enable",
        description="a new self-signed certificate at each start, and no check of the other end: for tests only",
    )
    tls_server_cert_path: Path | None = Field(
        None,
        alias="tls.server.certPath",
        description="PEM file: this server's certificate, and those that lead to its CA",
    )
    tls_server_key_path: Path | None = Field(
        None, alias="tls.server.keyPath", description="PEM file: the key of that certificate"
    )
    tls_server_key_password: SecretStr | None = Field(
        None, alias="tls.server.keyPassword", description="password of that key"
    )
    tls_server_need_client_auth: ClientAuth = Field(
        ClientAuth.NONE,
        alias="tls.server.need.client.auth",
        description="`none`, `optional` or `require`: whether clients need a certificate",
    )
    tls_server_auth_client: bool = Field(
        False,
        alias="tls.server.authClient",
        description="upstream trusts any client certificate without it; here a certificate is always checked",
    )
    tls_server_trust_cert_path: Path | None = Field(
        None, alias="tls.server.trustCertPath", description="PEM file: the CAs of client certificates"
    )
    tls_client_cert_path: Path | None = Field(
        None,
        alias="tls.client.certPath",
        description="PEM file: the certificate that this server shows to other servers; empty: its own one",
    )
    tls_client_key_path: Path | None = Field(
        None, alias="tls.client.keyPath", description="PEM file: the key of that certificate"
    )
    tls_client_key_password: SecretStr | None = Field(
        None, alias="tls.client.keyPassword", description="password of that key"
    )
    tls_client_auth_server: bool = Field(
        True,
        alias="tls.client.authServer",
        description="whether certificate and host name of other servers are checked",
    )
    tls_client_trust_cert_path: Path | None = Field(
        None,
        alias="tls.client.trustCertPath",
        description="PEM file: the CAs of other servers; empty: those that the system trusts",
    )
    tls_ha_plain_hosts: str = Field(
        "",
        alias="tls.ha.plainHosts",
        description="`host;host`: Java brokers, whose replication connections stay plain; they know no TLS there",
    )

    @property
    def names_tls(self) -> bool:
        """Whether anything is set that makes the options of TLS other than plain connections everywhere."""
        asked = (
            self.tls_server_mode not in (None, TlsMode.DISABLED)
            or self.tls_enable
            or self.tls_test_mode_enable
        )
        named = self.tls_config_file or self.tls_server_cert_path or self.tls_server_key_path
        return bool(asked or named or self.tls_server_need_client_auth is not ClientAuth.NONE)

    @field_validator("tls_server_mode", "tls_server_need_client_auth", mode="before")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> Any:
        kind = TlsMode if info.field_name == "tls_server_mode" else ClientAuth
        known = [each.value for each in kind]
        if isinstance(value, str) and value and value not in known:
            raise ValueError(f"is none of {', '.join(known)}")
        return value

    @field_validator("tls_ha_plain_hosts")
    @classmethod
    def _hosts(cls, value: str) -> str:
        for host in _parts(value):
            check_host(host)
        return value


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """All settings of TLS after both files were read."""

    mode: TlsMode
    connects: bool
    """Whether own connections use TLS."""
    test_mode: bool
    server: KeyPair | None
    client: KeyPair | None
    client_auth: ClientAuth
    client_trust: Path | None
    """CAs of clients."""
    server_trust: Path | None
    """CAs of servers; None: the system's."""
    checks_servers: bool
    plain_hosts: frozenset[str]
    files: tuple[Path, ...]
    """All files that were named."""
    warnings: tuple[str, ...]

    @property
    def is_used(self) -> bool:
        return self.connects or self.mode is not TlsMode.DISABLED

    def asks_less_than(self, former: TlsOptions) -> str | None:
        """The key by which less is asked of the other end than by `former`; None if nothing is. A half-written file may be
        missing any line."""
        asked = [ClientAuth.NONE, ClientAuth.OPTIONAL, ClientAuth.REQUIRE].index
        if self.test_mode and not former.test_mode:
            return "tls.test.mode.enable"
        if asked(self.client_auth) < asked(former.client_auth):
            return "tls.server.need.client.auth"
        if former.checks_servers and not self.checks_servers:
            return "tls.client.authServer"
        if former.server_trust is not None and self.server_trust is None:
            return "tls.client.trustCertPath"
        return None


FROM_BOTH_FILES = (
    "tls.test.mode.enable",
    "tls.server.need.client.auth",
    "tls.server.keyPath",
    "tls.server.keyPassword",
    "tls.server.certPath",
    "tls.server.authClient",
    "tls.server.trustCertPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
    "tls.client.certPath",
    "tls.client.authServer",
    "tls.client.trustCertPath",
)
"""The keys that upstream reads from `tls.config.file`."""


def tls_options(settings: TlsSettings) -> TlsOptions:
    """The options of `settings` and of the file that they name, which is read now. Raises SettingsError."""
    warnings: list[str] = []
    merged = (
        settings
        if settings.tls_config_file is None
        else _merged(settings, settings.tls_config_file, warnings)
    )
    place = settings.place if settings.tls_config_file is None else str(settings.tls_config_file)
    if merged.tls_server_auth_client is False and merged.tls_server_need_client_auth is ClientAuth.REQUIRE:
        warnings.append(
            "tls.server.need.client.auth=require without tls.server.authClient=true: a Java server would trust any "
            "certificate; here it is checked"
        )
    if not merged.tls_client_auth_server:
        warnings.append("tls.client.authServer=false: this server trusts whatever answers at an address")
    if merged.tls_test_mode_enable:
        warnings.append(
            "tls.test.mode.enable=true: the other end is not checked, and anyone can be in between"
        )
    own = merged.tls_server_cert_path, merged.tls_server_key_path, merged.tls_server_key_password
    shown = merged.tls_client_cert_path, merged.tls_client_key_path, merged.tls_client_key_password
    server = _pair(*own, "server", place)
    client = _pair(*shown, "client", place) or server
    mode = settings.tls_server_mode
    if mode is None:
        has_certificate = server is not None or merged.tls_test_mode_enable
        mode = TlsMode.PERMISSIVE if has_certificate else TlsMode.DISABLED
    elif mode is not TlsMode.DISABLED and server is None and not merged.tls_test_mode_enable:
        why = "needs tls.server.certPath and tls.server.keyPath"
        raise SettingsError("tls.server.mode", mode.value, place, None, why)
    client_trust = merged.tls_server_trust_cert_path
    if merged.tls_server_need_client_auth is not ClientAuth.NONE:
        value, why = merged.tls_server_need_client_auth.value, ""
        if merged.tls_test_mode_enable:
            why = "tls.test.mode.enable checks no certificate; set it to false"
        elif server is None:
            why = "needs tls.server.certPath and tls.server.keyPath: certificates are asked for over TLS only"
        elif client_trust is None:
            why = "needs tls.server.trustCertPath, the CAs of clients"
        if why:
            raise SettingsError("tls.server.need.client.auth", value, place, None, why)
        if mode is TlsMode.PERMISSIVE and merged.tls_server_need_client_auth is ClientAuth.REQUIRE:
            warnings.append(
                "tls.server.need.client.auth=require: plain connections, which have none, are served, too"
            )
    if mode is TlsMode.ENFORCING and settings.tls_enable is False:
        warnings.append("tls.enable=false: connections that this server opens are plain")
    named = (
        settings.tls_config_file,
        *_files(server),
        *_files(client),
        client_trust,
        merged.tls_client_trust_cert_path,
    )
    return TlsOptions(
        mode=mode,
        connects=settings.tls_enable if settings.tls_enable is not None else mode is TlsMode.ENFORCING,
        test_mode=merged.tls_test_mode_enable,
        server=server,
        client=client,
        client_auth=merged.tls_server_need_client_auth,
        client_trust=client_trust,
        server_trust=merged.tls_client_trust_cert_path,
        checks_servers=merged.tls_client_auth_server,
        plain_hosts=frozenset(_parts(settings.tls_ha_plain_hosts)),
        files=tuple(dict.fromkeys(path for path in named if path is not None)),
        warnings=tuple(warnings),
    )


def _merged(settings: TlsSettings, path: Path, warnings: list[str]) -> TlsSettings:
    """`settings` with the values of the file at `path` in place of their own. Raises SettingsError."""
    if path.exists() and not path.is_file():  # opening it might wait for ever
        raise SettingsError("", "", str(path), None, "cannot be read: it is no file")
    try:
        parsed = parse(path.read_bytes())
    except OSError as error:
        raise SettingsError("", "", str(path), None, f"cannot be read: {error.strerror}") from None
    except PropertiesError as error:
        raise SettingsError("", "", str(path), error.line, error.why) from None
    overrides = []
    for entry in parsed.entries:
        if entry.key in FROM_BOTH_FILES:
            overrides.append(f"{entry.key}={entry.value}")
        else:
            warnings.append(f"{path}:{entry.line}: {entry.key}: has no effect in this file")
    warnings.extend(f"{path}: {warning}" for warning in parsed.warnings)
    own = [
        f"{key}={_plain(value)}"
        for key, value in settings.in_force().items()
        if key in FROM_BOTH_FILES and value is not None
    ]
    try:
        return TlsSettings.load(None, [*own, *overrides])
    except SettingsError as error:
        raise SettingsError(error.key, error.value, str(path), None, error.why) from None


def _plain(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pair(
    certificate: Path | None, key: Path | None, password: SecretStr | None, side: str, place: str
) -> KeyPair | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given, missing = ("certPath", "keyPath") if key is None else ("keyPath", "certPath")
        why = f"needs tls.{side}.{missing}, too"
        raise SettingsError(f"tls.{side}.{given}", str(certificate or key), place, None, why)
    return KeyPair(certificate, key, None if password is None else password.get_secret_value())


def _files(pair: KeyPair | None) -> tuple[Path, ...]:
    return () if pair is None else (pair.certificate, pair.key)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]
