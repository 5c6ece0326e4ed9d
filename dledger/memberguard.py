"""What of the members' messages is believed: the right list of members, the member's own address, a term that can be.

Invariant: what is refused changes nothing here; each refusal is counted, and the first of a kind from a member is logged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum

from dledger.memberaddresses import MemberAddresses
from dledger.messages import Message, ResultCode
from dledger.peerlist import difference, listed, peer_list
from dledger.termbound import TERM_JUMP_MAX, TermBound
from mqruntime.clock import Clock

logger = logging.getLogger(__name__)

STRANGER = "stranger"
"""Stands in the counts for every id that is not in the list."""


class Refusal(Enum):
    """Why a message does not count; the value is a metric's label."""

    PEERS = "peers"
    ADDRESS = "address"
    TERM = "term"

    @property
    def code(self) -> ResultCode:
        return ResultCode.UNEXPECTED_ARGUMENT if self is Refusal.TERM else ResultCode.UNKNOWN_MEMBER


class MemberGuard:
    """`peers` maps ids, the own one too, to "host:port"; `term` tells the member's term."""

    def __init__(
        self,
        *,
        self_id: str,
        peers: Mapping[str, str],
        checks_addresses: bool,
        clock: Clock,
        term: Callable[[], int],
    ) -> None:
        self.self_id = self_id
        self.peers = peers
        self.peer_list = peer_list(peers)
        senders = [*sorted(peers.keys() - {self_id}), STRANGER]
        self.refused = Counter({(sender, refusal.value): 0 for sender in senders for refusal in Refusal})
        """(member or STRANGER, a Refusal's value) -> messages."""
        self._checks_addresses = checks_addresses
        self._addresses = MemberAddresses(peers, clock)
        self._bound = TermBound(len(peers) // 2 + 1)
        self._term = term
        self._logged: set[tuple[str, Refusal]] = set()
        self._other_addresses: set[str] = set()

    async def judge_request(
        self, sender: str, request: Message, their_list: str, remote_address: str
    ) -> Refusal | None:
        """None when the request of `sender` counts; `their_list` is empty where an old member speaks."""
        refusal = self._judge_list(sender, their_list)
        if refusal is not None:
            return refusal
        checked = self._checks_addresses and sender in self.peers
        if checked and not await self._addresses.is_from(sender, remote_address):
            why = f"it comes from {remote_address}, and {sender} is listed at {self.peers[sender]}"
            return self._refuse(sender, Refusal.ADDRESS, why)
        return self._judge_term(sender, request)

    def judge_response(self, sender: str, response: Message, their_list: str) -> Refusal | None:
        """None when the answer of `sender`, got at its address, counts."""
        return self._judge_list(sender, their_list) or self._judge_term(sender, response)

    def judge_refusal(self, sender: str, their_list: str) -> Refusal | None:
        """Why a member that refused us did so, when that is its list."""
        return self._judge_list(sender, their_list)

    async def is_at_listed_host(self, sender: str, their_list: str, remote_address: str) -> bool:
        """Whether a member of another list names this one and speaks from where it lists itself."""
        theirs = listed(their_list)
        host = theirs.get(sender, "").rpartition(":")[0]
        return self.self_id in theirs and bool(host) and await self._addresses.is_host(host, remote_address)

    def _judge_list(self, sender: str, their_list: str) -> Refusal | None:
        if not their_list or their_list == self.peer_list:
            return None
        theirs = listed(their_list)
        if theirs.keys() != self.peers.keys():
            why = (
                f"its list of members differs ({difference(self.peers, theirs)}): here {self.peer_list}, there "
                f"{their_list}; give all members the same controllerDLegerPeers and restart those that had another"
            )
            return self._refuse(sender, Refusal.PEERS, why)
        if sender not in self._other_addresses:
            self._other_addresses.add(sender)
            logger.warning(
                "peer=%s lists other addresses: here %s, there %s", sender, self.peer_list, their_list
            )
        return None

    def _judge_term(self, sender: str, message: Message) -> Refusal | None:
        own = self._term()
        if sender not in self.peers or self._bound.allows(sender, message.term, own):
            return None
        why = (
            f"its term {message.term} is more than {TERM_JUMP_MAX} above {own}, the own one, and no majority says so; "
            "find out what wrote that term"
        )
        return self._refuse(sender, Refusal.TERM, why)

    def _refuse(self, sender: str, refusal: Refusal, why: str) -> Refusal:
        known = sender if sender in self.peers.keys() - {self.self_id} else STRANGER
        self.refused[known, refusal.value] += 1
        if (known, refusal) not in self._logged:
            self._logged.add((known, refusal))
            logger.error("peer=%s refused by %s: %s", sender, self.self_id, why)
        return refusal
