"""Bugs of readers that strangers find, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from dledger.memberguard import MemberGuard, TheirList
from dledger.messages import Message
from remoting.headers import header
from remoting.wirefields import IntegerRange
from simulation.cluster.bugs import bug


@bug("numbers-are-believed", header, "parse_integer")
def whatever_it_is(text: str, allowed: IntegerRange) -> int | None:
    """A field that is no number is a failure of the server that was asked."""
    return int(text)


@bug("strangers-move-terms", MemberGuard, "judge_request")
async def whoever_it_is(
    self: MemberGuard, sender: str, request: Message, theirs: TheirList, remote_address: str
) -> None:
    """R11: who names a member is taken for it, wherever it speaks from and whatever term it names."""
