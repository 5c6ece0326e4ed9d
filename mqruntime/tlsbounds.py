"""Bounds of a server's TLS context that Python's ssl cannot set: how long a client's certificates are, and that no session is
kept.

OpenSSL reads up to 100 KiB of certificates before it checks the first one, which takes 30 ms for 240 certificates. It keeps up
to 20,480 sessions of TLS 1.2 for two hours, each with its certificates: 600 KB of memory for 150. A kept session can be resumed
after its certificate has expired.

Invariant: a context is changed only if it reports OpenSSL's defaults at the place where CPython keeps it, or it is left as it
is. Specification: SSL_CTX_set_max_cert_list(3), SSL_CTX_set_session_cache_mode(3)."""

from __future__ import annotations

import ctypes
import ssl
import sys
from functools import cache
from typing import Any

CERTIFICATES_BYTES_MAX = 8 << 10
"""Room for three certificates with keys of 4,096 bits and some names."""
SET_SESSION_CACHE, GET_SESSION_CACHE = 44, 45
GET_CERTIFICATES_MAX, SET_CERTIFICATES_MAX = 50, 51
CACHE_OFF, CACHE_OF_SERVER = 0, 2
OPENSSL_BYTES_MAX = 100 << 10
"""OpenSSL's own limit."""


UNBOUNDED = (
    "OpenSSL's functions are not reached in this Python: "
    "clients may send 100 KiB of certificates, and resume sessions of TLS 1.2"
)


def bound(context: ssl.SSLContext) -> bool:
    """Sets the bounds of `context`, which is new; False if this Python does not show OpenSSL's functions."""
    control = _control()
    if control is None:
        return False
    at = ctypes.c_void_p.from_address(
        id(context) + object.__basicsize__
    ).value  # the first member of PySSLContext
    before = control(at, GET_CERTIFICATES_MAX, 0, None), control(at, GET_SESSION_CACHE, 0, None)
    if before != (OPENSSL_BYTES_MAX, CACHE_OF_SERVER):
        return False
    control(at, SET_CERTIFICATES_MAX, CERTIFICATES_BYTES_MAX, None)
    control(at, SET_SESSION_CACHE, CACHE_OFF, None)
    return True


@cache
def _control() -> Any:
    """The SSL_CTX_ctrl of the OpenSSL that Python's ssl uses; None if it is not to be found, or for a Python whose contexts may
    be laid out otherwise."""
    is_known = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info < (3, 15)
    if not is_known or not ssl.OPENSSL_VERSION.startswith("OpenSSL "):
        return None
    import _ssl

    try:
        control = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    except (AttributeError, OSError):  # linked into Python without its names
        return None
    control.restype = ctypes.c_long
    control.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    return control
