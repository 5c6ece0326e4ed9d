"""Planted bugs of messages in transactions."""

from __future__ import annotations

from broker.sends import admission
from broker.transactions.checkback import Asked, CheckBack
from broker.transactions.ending import EndTransaction
from broker.transactions.openhalves import OpenHalves
from broker.transactions.rebuild import Rebuild
from broker.transactions.records import half_of
from messagestore.messages import MessageToStore
from remoting.command import RemotingCommand
from remoting.peer import Peer
from simulation.mutants.pairs.bugs import BUGS

bug = BUGS.playing("transactions")


@bug("asks-nobody", CheckBack, "_ask")
def asks_nobody(self: CheckBack, asked: Asked) -> None:
    """A half whose end was lost is put back, and no producer is asked."""


@bug("commits-not-looked-for", Rebuild, "_read_commits")
async def commits_not_looked_for(self: Rebuild) -> bool:
    """As upstream: a master that was killed after a commit without an op message checks the half, and commits it again."""
    return True


@bug("ended-stays-open", OpenHalves, "close")
def ended_stays_open(self: OpenHalves, root: int) -> None:
    """As upstream: any half that a producer names is ended."""


@bug("ends-answered-at-once", EndTransaction, "_answered_at")
def ends_answered_at_once(
    self: EndTransaction, end: int | None, peer: Peer, command: RemotingCommand
) -> RemotingCommand | None:
    """A SYNC_MASTER answers OK to an end that no slave has."""
    return None if command.is_oneway or end is None else command.reply()


@bug("half-shown", admission, "half_of")
def half_shown(message: MessageToStore) -> MessageToStore:
    """Consumers can read a half before it is ended."""
    half = half_of(message)
    return MessageToStore(
        message.topic, message.queue_id, half.body, half.properties, half.flag, half.sys_flag,
        half.born_timestamp, half.born_host, half.reconsume_times,
    )  # fmt: skip
