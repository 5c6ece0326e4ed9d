"""Planted bugs of the connections between the members of a Raft-mode set."""

from __future__ import annotations

from dledger.node.transport import PeerTransport
from remoting.peer import Peer
from simulation.mutants.groups.bugs import BUGS

bug = BUGS.playing("handed on")


@bug("former-links-kept", PeerTransport, "spoke")
def former_links_kept(self: PeerTransport, peer: Peer, sender: str) -> None:
    """The old connection of a member that lost power stays open, in addition to its new connection, until it was silent for
    two minutes."""
    self.silent_ms = 120_000
    spoke(self, peer, sender)


spoke = PeerTransport.spoke
