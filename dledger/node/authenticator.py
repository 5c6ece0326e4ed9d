"""Checks of the members' messages: the list of members, the sender's address, and whether the term is possible.

The addresses of the hosts in the list of members are kept here too. A host given as an address is that address; all loopback
addresses are equal, because a member can be reached under any of them. A host given as a name is the addresses to which the
name resolves. When a caller has none of the known addresses, the name is resolved again, at most every RESOLVE_EVERY_MS.

Invariant: a rejected message does not change the list of members, and adds no accepted id. A sender outside this member's list
is accepted only if a known member has confirmed it (dledger.raft.newermembers), or if it is in the list from before an
uncommitted change. Each rejection is counted, and the first of a kind from a member is logged."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from dledger.node.messagejson import NOT_SENT
from dledger.raft.election import TERM_JUMP_MAX, TermBound
from dledger.raft.entries import NO_INDEX
from dledger.raft.membership import Members, difference, listed, peer_list
from dledger.raft.messages import Message, ResultCode
from dledger.raft.newermembers import NewerMembers
from mqruntime.clock import Clock
from mqruntime.peercertificate import NOT_ASKED, PeerCertificate

logger = logging.getLogger(__name__)

STRANGER = "stranger"
"""The label in the counts for all ids that are not in the list of members."""


class TheirList(NamedTuple):
    """The sender's list of members in a message; empty if the sender is of an old version."""

    text: str
    members_index: int
    origin: str = ""
    """The description of the log that the sender's log continues."""


class MessageRefusal(Enum):
    """The reason why a message is rejected; the value is a metric's label."""

    PEERS = "peers"
    UNCONFIRMED = "unconfirmed"
    ORIGIN = "origin"
    ADDRESS = "address"
    CERTIFICATE = "certificate"
    TERM = "term"

    @property
    def code(self) -> ResultCode:
        return ResultCode.UNEXPECTED_ARGUMENT if self is MessageRefusal.TERM else ResultCode.UNKNOWN_MEMBER


class PeerAuthenticator:
    """The checks of one member. `peers` maps ids, this member's id included, to "host:port". `term()` returns this member's
    term. Members' certificates must have this `role`, if they have roles; any role will do without one."""

    def __init__(
        self,
        *,
        self_id: str,
        peers: Mapping[str, str],
        checks_addresses: bool,
        clock: Clock,
        term: Callable[[], int],
        role: str = "",
    ) -> None:
        self.self_id = self_id
        self.peers = dict(peers)
        self.members_index = NO_INDEX
        """The index of the entry with the list of members; NO_INDEX if the list is from a setting."""
        self.peer_list = peer_list(peers)
        self.origin = ""
        """The description of the older log that this member's log continues; empty if there is none. All members of a group
        have the same origin, because otherwise the same offset would be different messages."""
        self.on_other_origin: Callable[[str], None] = lambda sender: None
        """Called for each message from a member with another origin."""
        self._newer = NewerMembers(self_id, peers)
        self._before: dict[str, str] = {}
        self.knows_changes: set[str] = set()
        """Members that have shown that they can read entries that change the members."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """(member or STRANGER, value of a MessageRefusal) -> the number of rejected messages."""
        self._checks_addresses = checks_addresses
        self._role = role
        self._clock = clock
        self._addresses = MemberAddresses(clock)
        self._bound = TermBound(peers.keys() - {self_id}, len(peers) // 2 + 1)
        self._term = term
        self._count_from_nothing()
        self._logged: set[tuple[str, MessageRefusal]] = set()
        self._other_addresses: set[str] = set()

    def _count_from_nothing(self) -> None:
        for sender in (*sorted(self.peers.keys() - {self.self_id}), STRANGER):
            for refusal in MessageRefusal:
                self.refused.setdefault((sender, refusal.value), 0)

    def members_are(self, index: int, members: Members, before: Mapping[str, str]) -> None:
        """Uses the members in entry `index` of the log from now on. `before` are the members that count if this entry is
        cut."""
        self.peers = members.addresses
        self.members_index = index
        self.peer_list = peer_list(self.peers)
        self._newer.members_are(index, self.peers)
        self._before = dict(before)
        self.knows_changes &= self.peers.keys()
        self._bound.members_are(self.peers.keys() - {self.self_id}, members.quorum)
        self._count_from_nothing()
        if index != NO_INDEX:
            logger.info("members=%s index=%d self=%s", members.as_json(), index, self.self_id)

    @property
    def vouched(self) -> Mapping[str, str]:
        """Id -> address of members that are accepted although this member's list does not have them yet, because a known member
        has confirmed them some seconds ago at most."""
        return self._newer.at(self._clock.monotonic_ms())

    async def check_request(
        self,
        sender: str,
        request: Message,
        theirs: TheirList,
        remote_address: str,
        certificate: PeerCertificate = NOT_ASKED,
    ) -> MessageRefusal | None:
        """None if the request of `sender` is accepted."""
        claimed = self.address_of(sender) or listed(theirs.text).get(sender, "")
        if not (
            certificate.speaks_for(claimed) and self._may_be_member(certificate)
        ):  # before the message is noted in any way
            return self._refuse(sender, MessageRefusal.CERTIFICATE, _other_certificate(sender, claimed))
        refusal = self._judge_list(sender, theirs)
        if refusal is not None:
            return refusal
        listed_at = self.address_of(sender)
        checked = self._checks_addresses and listed_at is not None
        if checked and not await self._addresses.is_host(str(listed_at).rpartition(":")[0], remote_address):
            why = f"it comes from {remote_address}, and {sender} is listed at {listed_at}"
            return self._refuse(sender, MessageRefusal.ADDRESS, why)
        return self._judge_term(sender, request)

    def _may_be_member(self, certificate: PeerCertificate) -> bool:
        return not self._role or certificate.may_be(self._role)

    async def speaks_for(
        self, member: str, remote_addresses: Sequence[str], certificate: PeerCertificate
    ) -> bool:
        """Whether a caller outside the Raft group, with a connection from one of these addresses, may be `member`."""
        listed_at = self.address_of(member)
        if listed_at is None:
            return False
        if not (certificate.speaks_for(listed_at) and self._may_be_member(certificate)):
            self._refuse(member, MessageRefusal.CERTIFICATE, _other_certificate(member, listed_at))
            return False
        host = listed_at.rpartition(":")[0]
        if not self._checks_addresses:
            return True
        for address in remote_addresses:
            if await self._addresses.is_host(host, address):
                return True
        why = (
            f"{remote_addresses[0]} asks in its name for the tables, and it is listed at {listed_at}; stop what runs there, "
            "or, if that is the member and it comes over another network, set haSlaveHostCheck=false on all members"
        )
        self._refuse(member, MessageRefusal.ADDRESS, why)
        return False

    def check_response(self, sender: str, response: Message, theirs: TheirList) -> MessageRefusal | None:
        """None if the answer of `sender`, which came from the sender's address, is accepted."""
        refusal = self._judge_list(sender, theirs) or self._judge_term(sender, response)
        if refusal is None:
            self._newer.reported(sender, theirs.members_index, theirs.text, self._clock.monotonic_ms())
        return refusal

    def needs_confirmation(self, sender: str, theirs: TheirList) -> bool:
        """Whether entries that this member does not have yet may have added `sender`. Known members must confirm that, and
        again after a while, because they may have removed it since. This includes a sender in the list from before an
        uncommitted change, because Raft refuses the sender once the change is committed."""
        return sender not in self.peers and self._names_both(sender, theirs)

    def check_refusal(self, sender: str, theirs: TheirList) -> MessageRefusal | None:
        """The reason why `sender` refused this member, if the sender's list of members is the reason; else None."""
        leaves_out = bool(theirs.text) and self.self_id not in listed(theirs.text)
        if leaves_out and NOT_SENT < theirs.members_index < self.members_index:
            why = (
                f"its list of members {theirs.text} is older and does not have {self.self_id}; it asks the members that it "
                "lists, and if none of them runs any more, start it with the present list and an empty disk"
            )
            return self._refuse(sender, MessageRefusal.UNCONFIRMED, why)
        if leaves_out and theirs.members_index > NO_INDEX:
            why = f"{self.self_id} is not among its members {theirs.text}; add it to the group, or stop it"
            return self._refuse(sender, MessageRefusal.PEERS, why)
        return self._judge_list(sender, theirs)

    def address_of(self, member: str) -> str | None:
        """The address of `member`, if its messages may be accepted; None for a stranger."""
        known = (self.peers, self.vouched, self._before)
        return next((addresses[member] for addresses in known if member in addresses), None)

    async def is_rival(
        self, sender: str, theirs: TheirList, remote_address: str, certificate: PeerCertificate
    ) -> bool:
        """Whether `sender` was started with another list that names this member, and sends from the sender's address in that
        list. False once the members have changed, because `sender` may then be a removed member that does not know of its
        removal."""
        others = listed(theirs.text)
        host = others.get(sender, "").rpartition(":")[0]
        settings_differ = max(theirs.members_index, self.members_index) <= NO_INDEX
        named = settings_differ and self.self_id in others and bool(host)
        if certificate.was_asked and others.get(sender) not in self.peers.values():
            return False  # else any server with a certificate could end elections here
        return named and await self._addresses.is_host(host, remote_address)

    def _judge_list(self, sender: str, theirs: TheirList) -> MessageRefusal | None:
        if theirs.members_index == NOT_SENT:
            self.knows_changes.discard(sender)
        elif sender in self.peers:
            self.knows_changes.add(sender)
        if theirs.text and theirs.origin != self.origin:
            self.on_other_origin(sender)
            why = (
                f"its log continues another one: here {self.origin or 'none'}, there {theirs.origin or 'none'}; a member "
                "that has nothing gets it by itself, else stop the one that is wrong, put its own aside, and copy another's"
            )
            return self._refuse(sender, MessageRefusal.ORIGIN, why)
        if not theirs.text or theirs.text == self.peer_list:
            return None
        others = listed(theirs.text)
        if max(theirs.members_index, self.members_index) > NO_INDEX:
            return self._judge_changed(sender, theirs)
        if others.keys() != self.peers.keys():
            why = (
                f"its list of members differs ({difference(self.peers, others)}): here {self.peer_list}, there "
                f"{theirs.text}; give all members the same list and restart those that had another, or add "
                "a new one to the group"
            )
            return self._refuse(sender, MessageRefusal.PEERS, why)
        if sender in self.peers and sender not in self._other_addresses:
            self._other_addresses.add(sender)
            logger.warning(
                "peer=%s lists other addresses: here %s, there %s", sender, self.peer_list, theirs.text
            )
        return None

    def _judge_changed(self, sender: str, theirs: TheirList) -> MessageRefusal | None:
        """Judges a list after a change of the members, when members that have not caught up have older lists. A sender in this
        member's list is accepted. Entries that this member does not have yet may have added another sender: if its list is
        newer and names both, it is accepted once a known member has confirmed it. A sender in the list from before an
        uncommitted change is accepted too."""
        if sender in self.peers or sender in self._before:
            return None
        if self._names_both(sender, theirs):
            if sender in self.vouched:
                return None
            why = (
                f"it is not among the members {self.peer_list}, and no answer of them names it; it lists {theirs.text}, entry "
                f"{theirs.members_index}. They are asked again. If none of them runs any more, start this member with the "
                "present list and an empty disk"
            )
            return self._refuse(sender, MessageRefusal.UNCONFIRMED, why)
        why = (
            f"it is not among the members {self.peer_list}, and lists {theirs.text}; stop it, if it was removed, or add it "
            "to the group"
        )
        return self._refuse(sender, MessageRefusal.PEERS, why)

    def _names_both(self, sender: str, theirs: TheirList) -> bool:
        is_newer = theirs.members_index > self.members_index
        return is_newer and {self.self_id, sender} <= listed(theirs.text).keys()

    def _judge_term(self, sender: str, message: Message) -> MessageRefusal | None:
        own = self._term()
        if self.address_of(sender) is None or self._bound.allows(sender, message.term, own):
            return None
        why = (
            f"its term {message.term} is more than {TERM_JUMP_MAX} above this member's, {own}, and no majority has it; "
            "find out what wrote that term"
        )
        return self._refuse(sender, MessageRefusal.TERM, why)

    def _refuse(self, sender: str, refusal: MessageRefusal, why: str) -> MessageRefusal:
        known = sender if sender in self.peers.keys() - {self.self_id} else STRANGER
        self.refused[known, refusal.value] += 1
        if (known, refusal) not in self._logged:
            self._logged.add((known, refusal))
            level = logging.WARNING if refusal is MessageRefusal.UNCONFIRMED else logging.ERROR
            logger.log(level, "peer=%s refused by %s: %s", sender, self.self_id, why)
        return refusal


RESOLVE_EVERY_MS = 5000

Address = IPv4Address | IPv6Address


def _other_certificate(member: str, listed_at: str) -> str:
    return (
        f"its certificate does not speak for {listed_at}, where {member} is listed; give that member a certificate with its "
        "host, or with rocketmq://HOST:PORT"
    )


@lru_cache(maxsize=1024)
def parsed(host: str) -> Address | None:
    """The address that `host` is; None if `host` is a name. An IPv4-mapped IPv6 address is the IPv4 address."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


class MemberAddresses:
    """The known addresses of hosts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, frozenset[Address]] = {}
        """Name -> the addresses to which it resolved last."""
        self._asked_ms: dict[str, int] = {}

    async def is_host(self, host: str, remote_address: str) -> bool:
        """Whether a connection from `remote_address` ("ip:port") comes from `host`, a name or an address."""
        remote = parsed(remote_address.rpartition(":")[0])
        if remote is None:
            return False
        own = parsed(host)
        if own is not None:
            return same(own, remote)
        return self._is_known(host, remote) or (await self._resolved(host) and self._is_known(host, remote))

    def _is_known(self, host: str, remote: Address) -> bool:
        return any(same(known, remote) for known in self._known.get(host, ()))

    async def _resolved(self, host: str) -> bool:
        """Resolves a name, unless this was done a moment ago. False if the result is nothing new."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms.get(host, -RESOLVE_EVERY_MS) < RESOLVE_EVERY_MS:
            return False
        self._asked_ms[host] = now_ms
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return False
        addresses = (parsed(str(sockaddr[0])) for *_, sockaddr in found)
        self._known[host] = frozenset(address for address in addresses if address is not None)
        return True


def same(one: Address, other: Address) -> bool:
    return one == other or (one.is_loopback and other.is_loopback)
