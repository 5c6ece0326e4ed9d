"""The ports of a server: which addresses other machines can reach, and why one cannot be used.

Invariant: only a loopback address counts as private; a host name is judged by its text, never looked up."""

from __future__ import annotations

import errno
from ipaddress import ip_address

from mqruntime.network import Protection

WILDCARDS = ("", "*")

REASONS = {
    errno.EADDRINUSE: "another process listens here; stop it or set another port",
    errno.EADDRNOTAVAIL: "no address of this machine; set bindAddress to one that is",
    errno.EACCES: "not allowed; ports below 1024 need the right to listen there",
}


def why_not_listening(error: OSError) -> str:
    """An explanation of a failed bind for the person who chose the address."""
    return REASONS.get(error.errno or 0) or f"cannot listen: {error.strerror or error}"


def beyond_this_machine(host: str) -> str | None:
    """A name for `host` if other machines may reach a port on it; None if only this machine does."""
    if host == "localhost":
        return None
    try:
        if host not in WILDCARDS and ip_address(host).is_loopback:
            return None
        return "every address" if host in WILDCARDS or ip_address(host).is_unspecified else host
    except ValueError:
        return host


def exposure(host: str, protection: Protection, *, checks_users: bool = False) -> str | None:
    """A warning for ports opened on `host`; None where only this machine, or only the holder of a certificate, reaches
    them. `checks_users`: requests need signatures there."""
    shown = beyond_this_machine(host)
    if shown is None or protection is Protection.CERTIFICATE:
        return None
    if checks_users:
        return (
            f"listening on {shown}: requests are signed, but "
            + ("can be read and sent again, and " if protection is Protection.NONE else "")
            + "the replication port knows replicas by their hosts only; use TLS and require certificates"
        )
    missing = "TLS and access control" if protection is Protection.NONE else "access control"
    return (
        f"listening on {shown}: without {missing}, anyone who reaches these ports may read, write and "
        "administer; keep them in a private network"
    )
