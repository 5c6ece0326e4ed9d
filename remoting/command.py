"""One request or response of the remoting protocol, with its header still in text form.

Invariant: `ext` maps strings to strings, whatever types the sender used, and every integer fits its Java type. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

RESPONSE_BIT = 1
ONEWAY_BIT = 2

VERSION = 479  # MQVersion ordinal of V5_3_3, whose behaviour is implemented
JSON = 0
ROCKETMQ = 1


class ToExt(Protocol):
    """A typed header, see `remoting.header.Header`."""

    def to_ext(self) -> dict[str, str]: ...


Body = bytes | bytearray | memoryview


@dataclass(slots=True)
class RemotingCommand:
    """A command as it crosses the wire.

    `code` is a RequestCode, or a ResponseCode where `flag` has RESPONSE_BIT. `opaque` pairs a response with its request on
    one connection. `body` may be a memoryview into a receive buffer where the receiver's documentation says so.
    `serialize_type` is the header encoding, as read or to be written (0 JSON, 1 ROCKETMQ).
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: dict[str, str] = field(default_factory=dict)
    body: Body | None = None
    language: str = "PYTHON"
    version: int = VERSION
    serialize_type: int = JSON
    behind: Sequence[Body] = ()
    """Further pieces of the body of a command that is sent, so that large pieces need not be joined."""
    unread: str = ""
    """Why `ext` and `remark` were not read: the header is too big. Such a request is answered with an error."""
    was_slow: bool = field(default=False, compare=False)
    """Whether the header was slow to read: no strict JSON, or many ROCKETMQ entries."""

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_BIT)

    @staticmethod
    def request(
        code: int,
        header: ToExt | Mapping[str, str] | None = None,
        body: Body | None = None,
        behind: Sequence[Body] = (),
    ) -> RemotingCommand:
        """A request; the connection that sends it assigns its opaque."""
        return RemotingCommand(code, ext=_ext(header), body=body, behind=behind)

    def reply(
        self,
        code: int = 0,
        remark: str | None = None,
        header: ToExt | Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> RemotingCommand:
        """The response to this request, in the JSON encoding that every client reads."""
        return RemotingCommand(int(code), self.opaque, RESPONSE_BIT, remark, _ext(header), body)


def _ext(header: ToExt | Mapping[str, str] | None) -> dict[str, str]:
    if header is None:
        return {}
    if isinstance(header, Mapping):
        return dict(header)
    return header.to_ext()
