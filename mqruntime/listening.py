"""The ports of a server: which addresses are within reach of strangers, why one cannot be used, and how one is closed.

Invariant: only a loopback address is called private; a name is judged by what it says, never looked up."""

from __future__ import annotations

import asyncio
import errno
from ipaddress import ip_address

WILDCARDS = ("", "*")

REASONS = {
    errno.EADDRINUSE: "another process listens here; stop it or set another port",
    errno.EADDRNOTAVAIL: "no address of this machine; set bindAddress to one that is",
    errno.EACCES: "not allowed; ports below 1024 need the right to listen there",
}


def why_not_listening(error: OSError) -> str:
    """What a failed bind means for the person who chose the address."""
    return REASONS.get(error.errno or 0) or f"cannot listen: {error.strerror or error}"


HANDED_OVER_TURNS = 3
"""After so many turns of asyncio's loop each connection that it has accepted has its transport."""


async def accepts_no_more(server: asyncio.AbstractServer) -> None:
    """To be awaited before `server` is closed. A connection that asyncio has accepted, and whose transport is made after that,
    would stay open and be nobody's (`Server._attach` of Python 3.11); uvloop accepts in one step."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop) and isinstance(server, asyncio.Server):
        for each in server.sockets:
            loop.remove_reader(each.fileno())
        for _ in range(HANDED_OVER_TURNS):
            await asyncio.sleep(0)


def beyond_this_machine(host: str) -> str | None:
    """What to call `host` where others may reach what listens on it; None where only this machine does."""
    if host == "localhost":
        return None
    try:
        if host not in WILDCARDS and ip_address(host).is_loopback:
            return None
        return "every address" if host in WILDCARDS or ip_address(host).is_unspecified else host
    except ValueError:
        return host


def exposure(host: str) -> str | None:
    """A warning for ports opened on `host`; None where only this machine reaches them."""
    shown = beyond_this_machine(host)
    if shown is None:
        return None
    return (
        f"listening on {shown}: without TLS and access control, whoever reaches these ports may read, write and "
        "administer; keep them in a private network"
    )
