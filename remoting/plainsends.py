"""Received data that consists only of plain sends. The compiled module decodes it, see nativepath.native.

Invariant: a handler may call `commands_of` only while it runs, because the commands' bodies are views of the receive buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from remoting.command import RemotingCommand
from remoting.frame import commands_in
from remoting.peer import Peer

if TYPE_CHECKING:
    from nativepath.native import Sends

SendsHandler = Callable[[Peer, "Sends"], None]


def commands_of(sends: Sends) -> list[RemotingCommand]:
    """The commands; their bodies are valid as long as `sends` is."""
    return commands_in(sends.view[sends.begin : sends.end])
