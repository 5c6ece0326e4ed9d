"""Planted bugs in the checks of clients' requests."""

from __future__ import annotations

from broker.clients.groups import Subscription, TopicSubscriptions
from broker.sends import admission
from messagestore.queues.table import QueueTable
from remoting.command import Body
from simulation.mutants.cluster.bugs import bug


@bug("members-unchecked", admission, "check_members")
def members_unchecked(body: Body) -> None:
    """As upstream: only a batch's envelope is checked, and a delayed message in it is delivered at once."""


say = TopicSubscriptions.put


@bug("clocks-believed", TopicSubscriptions, "put")
def clocks_believed(self: TopicSubscriptions, client_id: str, subscription: Subscription) -> None:
    """As upstream: a client's subscription is ignored after its clock was set back, so messages for it are skipped."""
    known = self.counting()
    if known is None or known.version <= subscription.version:
        say(self, client_id, subscription)


@bug("former-lives-shown", QueueTable, "topic_begins_at")
def former_lives_shown(self: QueueTable, topic: str, phy: int) -> None:
    """A topic that is created again shows the messages that it had when it was deleted."""
