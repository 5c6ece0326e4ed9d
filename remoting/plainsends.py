"""What one receive brought where that is nothing but plain sends: read by the compiled module, see nativepath.native.

Invariant: whoever does not want them as they are gets the commands that the frames hold, from `commands_of`, while their
handler runs: they stand in the receive buffer."""

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
    """Their bodies are valid as long as `sends` is."""
    return commands_in(sends.view[sends.begin : sends.end])
