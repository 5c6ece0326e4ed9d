"""TLS contexts of clients, from the files that settings name."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from mqruntime.settings import SettingsError
from mqruntime.tlsfiles import TlsUnusable
from mqruntime.tlssettings import KeyPair, TlsOptions, TlsSettings, tls_options

GUESS = "-"
"""Given where no password is known: OpenSSL would ask the terminal for the one of an encrypted key."""


def context_from(file: Path) -> ssl.SSLContext:
    """The context of a client by the keys of `file`. Raises TlsUnusable."""
    try:
        return client_context(
            tls_options(TlsSettings.load(None, ["tls.enable=true", f"tls.config.file={file}"]))
        )
    except SettingsError as error:
        raise TlsUnusable(str(error)) from None


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """The context of own connections. Raises TlsUnusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False  # a user's common name may be that of a host
    if options.test_mode or not options.checks_servers:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.server_trust is None:
        context.load_default_certs()
    else:
        load_trusted(context, options.server_trust)
    if options.client is not None and not options.test_mode:
        load_pair(context, options.client)
    return context


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    for path in (pair.certificate, pair.key):
        check_readable(path)
    try:
        context.load_cert_chain(pair.certificate, pair.key, lambda: pair.password or GUESS)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = _reason(error)
        raise TlsUnusable(
            f"{pair.certificate} and {pair.key} are no pair that can be used: {why}; both are PEM files, and keyPassword opens "
            "the key"
        ) from None


def load_trusted(context: ssl.SSLContext, path: Path) -> None:
    check_readable(path)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        why = _reason(error)
        raise TlsUnusable(f"{path} has no CA certificates that can be used: {why}") from None


def check_readable(path: Path) -> None:
    """Raises TlsUnusable. Opening something else than a file might wait for ever."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TlsUnusable(f"{path} cannot be read: it is no file")
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsUnusable(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a NUL in the name
        raise TlsUnusable(f"{str(path)!r} cannot be read: {error}") from None


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)
    return reason.replace("_", " ").lower()
