"""Bugs planted into planned switchover and forwarding."""

from __future__ import annotations

from collections.abc import Sequence

from broker.switchover.forwardingstate import Action, ForwardingState, Successor
from broker.switchover.forwardlink import ForwardLink
from broker.switchover.gracefulshutdown import GracefulShutdown
from remoting.command import RemotingCommand
from remoting.peer import Peer
from simulation.mutants.cluster.bugs import bug

passed_on = ForwardLink.pass_on


@bug("forwarded-again", ForwardLink, "pass_on", plays=("hand-over in trouble",))
def forwarded_again(
    self: ForwardLink, peer: Peer, commands: Sequence[RemotingCommand], again: Sequence[RemotingCommand] = ()
) -> None:
    """A message is forwarded once more if the connection ended before the answer came."""
    passed_on(self, peer, commands, commands)


@bug("forwards-nothing", ForwardingState, "follows")
def forwards_nothing(self: ForwardingState, successor: Successor, now_ms: int) -> list[Action]:
    """Upstream: a former master rejects clients' sends until they have asked for routes."""
    return self.called_off()


@bug("stops-before-it-answers", GracefulShutdown, "settle")
async def stops_before_it_answers(self: GracefulShutdown) -> None:
    """A master without a successor stops while its slaves are about to confirm messages, so their outcome stays unknown."""


@bug("left-links-stay", ForwardLink, "_ends_at_last")
async def left_links_stay(self: ForwardLink) -> None:
    """A host that lost power ends no connection, so messages that were forwarded to it are not sent elsewhere."""
