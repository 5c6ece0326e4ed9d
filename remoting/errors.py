"""Errors between two ends of a connection; every error carries its facts."""

from __future__ import annotations


class RemotingError(Exception):
    """Base of the errors of calls that got no reply. `address` is the "ip:port" of the other end."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"{address}: {why}")
        self.address = address
        self.why = why


class NotSent(RemotingError):
    """No byte of the request was sent, so it was certainly not executed and may be tried again."""


class FrameTooLong(NotSent):
    """The request is too long, so it was not sent. The other end would close the connection, and so end all pending calls."""


class ConnectFailed(NotSent):
    """No connection could be opened."""


class CallTimeout(RemotingError):
    """The request was sent and no reply came in time: it may or may not have been executed."""


class ConnectionLost(RemotingError):
    """The connection ended before the reply: the request may or may not have been executed."""


class CannotListen(RemotingError):
    """A server's address cannot be used; the text says what to change."""


class AddressInUse(CannotListen):
    """Another socket listens on this server's address."""


class FrameError(ValueError):
    """The received bytes are no frame of this protocol. The connection must be closed."""


class HeaderError(ValueError):
    """A field of a request's header is absent or unreadable. The request is answered with code 1 and this text."""

    def __init__(self, field: str, value: str | None, why: str) -> None:
        shown = "is absent" if value is None else f"= {value[:100]!r}"
        super().__init__(f"header field {field} {shown}: {why}")
        self.field = field
        self.value = value
        self.why = why


class BodyError(ValueError):
    """A body does not have the form that the request's code requires. The request is answered with code 1 and this text."""
