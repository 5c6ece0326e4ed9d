"""Connections that are opened with TLS.

Invariant: none of them becomes plain because TLS failed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from mqruntime.network import PLAIN, Connector, Link, open_connection
from mqruntime.tlsfiles import environment_file

P = TypeVar("P", bound=asyncio.BaseProtocol)


class TlsConnector:
    """Opens connections by `context`, which says what is checked of a server."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    async def connect(self, make: Callable[[], P], host: str, port: int, timeout_ms: int, link: Link) -> P:
        try:
            return await open_connection(make, host, port, timeout_ms, self._context)
        except ssl.SSLError as error:
            raise ConnectionRefusedError(None, why_no_handshake(error)) from error


def connector_of_environment() -> Connector:
    """The connector of a tool: with TLS by the file that FILE_VARIABLE names; plain without one. Raises TlsUnusable."""
    file = environment_file()
    if file is None:
        return PLAIN
    from mqruntime.tlsclient import context_from  # it loads the library of settings

    return TlsConnector(context_from(file))


def why_no_handshake(error: OSError) -> str:
    """The reason of a failed handshake in words."""
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        verified = getattr(error, "verify_message", "")
        return f"TLS handshake failed: {reason}{f' ({verified})' if verified else ''}"
    if isinstance(error, ConnectionError):
        return "TLS handshake failed: the other end closed the connection"
    return f"TLS handshake failed: {error.strerror or error or 'timeout'}"
