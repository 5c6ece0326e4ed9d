"""Addresses that are warned of, and the error of a failed bind."""

from __future__ import annotations

import errno

import pytest

from mqruntime.listening import exposure, why_not_listening
from mqruntime.network import Protection


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_a_loopback_address_is_not_warned_of(host: str) -> None:
    assert exposure(host, Protection.NONE) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "broker-1.example"])
def test_an_address_reachable_from_other_hosts_is_warned_of(host: str) -> None:
    warning = exposure(host, Protection.NONE)
    assert warning is not None and (host in warning or "every address" in warning)


def test_a_failed_bind_says_what_to_do() -> None:
    assert "set another port" in why_not_listening(OSError(errno.EADDRINUSE, "x"))
    assert "bindAddress" in why_not_listening(OSError(errno.EADDRNOTAVAIL, "x"))
    assert "1024" in why_not_listening(OSError(errno.EACCES, "x"))
    assert why_not_listening(OSError(errno.EINVAL, "Invalid argument")) == "cannot listen: Invalid argument"


@pytest.mark.parametrize(
    ("protection", "said"),
    [
        (Protection.NONE, "can be read and sent again, and the replication port"),
        (Protection.TLS, "are signed, but the replication port"),
        (Protection.CERTIFICATE, None),
    ],
)
def test_signatures_without_certificates_are_warned_of(protection: Protection, said: str | None) -> None:
    warning = exposure("0.0.0.0", protection, checks_users=True)
    assert warning is None if said is None else warning is not None and said in warning
