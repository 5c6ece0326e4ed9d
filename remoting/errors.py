"""Errors between two ends of a connection; every error carries its facts."""

from __future__ import annotations


class RemotingError(Exception):
    """A call without a reply. `address` is the "ip:port" of the other end."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"{address}: {why}")
        self.address = address
        self.why = why


class NotSent(RemotingError):
    """No byte of the request was sent, so it was certainly not executed and may be tried again."""


class FrameTooLong(NotSent):
    """The request is too long: the other end would not read it, but close the connection, and all pending calls would end."""


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
    """Bytes that are not a frame of this protocol; the connection they came on has to be closed."""


class HeaderError(ValueError):
    """A field of a request's typed header is absent or unreadable; answered with code 1 and this text."""

    def __init__(self, field: str, value: str | None, why: str) -> None:
        shown = "is absent" if value is None else f"= {value[:100]!r}"
        super().__init__(f"header field {field} {shown}: {why}")
        self.field = field
        self.value = value
        self.why = why


class BodyError(ValueError):
    """A body without the shape that its code requires; answered with code 1 and this text."""
