"""Errors of admin requests. Each text is one line for a person, with what failed, where, and what to do.

Invariant: an error is raised only if the command must exit with a non-zero code."""

from __future__ import annotations

import re

from remoting.codes import ResponseCode

FAQ = re.compile(r" *(See|For more information, please visit the url,) https?://\S+( for further details\.)?")
"""The text that upstream's servers add to every remark."""


class AdminError(Exception):
    """Base of the errors of admin requests: the command could not do what was asked. The text is one line for a person."""


class ServerUnreachable(AdminError):
    """No answer came from `address`. The request may or may not have been done."""

    def __init__(self, address: str, request: str, why: str) -> None:
        super().__init__(f"{request}: no answer from {address} ({why}); is it running, is the address right?")
        self.address = address
        self.why = why


class NobodyReachable(AdminError):
    """No answer came from any server of a list. The text has the reason of each."""

    def __init__(self, request: str, silent: list[ServerUnreachable]) -> None:
        each = ", ".join(f"{error.address} ({error.why})" for error in silent)
        super().__init__(f"{request}: no answer from any of {each}; is one running, are the addresses right?")


class RequestRefused(AdminError):
    """`address` answered with `code`, and nothing was changed."""

    def __init__(self, address: str, request: str, code: int, remark: str | None, advice: str = "") -> None:
        name = next((known.name for known in ResponseCode if known == code), "UNKNOWN")
        said = FAQ.sub("", " ".join((remark or "").split()))
        super().__init__(
            f"{request}: {address} answered {code} {name}"
            + (f" ({said})" if said else "")
            + (f"; {advice}" if advice else "")
        )
        self.address = address
        self.code = code
        self.remark = remark or ""


class NoLeader(AdminError):
    """None of the queried controllers knows a leader at this moment."""

    def __init__(self, addresses: list[str], reasons: list[str]) -> None:
        super().__init__(
            f"no controller of {';'.join(addresses)} knows a leader ({'; '.join(reasons)}); "
            "a majority of controllers must run, an election takes a second or two"
        )


class ReplyMalformed(AdminError):
    """An answer is missing required fields. The server is no RocketMQ 5 server, or it has a fault."""
