"""Messages between members that come late, twice, or from no member.

Invariant: a message that is delivered late or twice was sent by a member. A forged message was sent by none, and must change
nothing."""

from __future__ import annotations

import random
from collections import deque

from dledger.node.messagejson import Envelope, encode_request
from dledger.raft.election import TERM_JUMP_MAX
from dledger.raft.membership import peer_list
from dledger.raft.messages import (
    CODE_OF,
    HeartBeatRequest,
    Message,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    ResultCode,
    VoteRequest,
)
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from simulation.kernel.node import Node, SimulatedClock
from simulation.raft.group import RaftGroup
from simulation.raft.member import PORT

KEPT_MAX = 3_000
NEW = 12
ELECTIONS_MEANWHILE = 20
"""How many elections a forged term may be on its way."""
MADE_UP_INDEX = 10**9
"""Later than the entry of each list of members."""


class Post:
    """The messages that members sent, whether they arrived or not, as (receiver, sender, message), newest last."""

    def __init__(self, group: RaftGroup, choose: random.Random) -> None:
        self.group = group
        self.choose = choose
        self.sent: deque[tuple[str, str, Message]] = deque(maxlen=KEPT_MAX)
        self.ambushes = 0
        """How many more times a follower whose acknowledgement arrives gets at once what a former leader had sent to it."""
        group.check.on_message = self.note

    def note(self, receiver: str, sender: str, message: Message) -> None:
        self.sent.append((receiver, sender, message))
        if self.ambushes and isinstance(message, PushResponse) and message.code is ResultCode.SUCCESS:
            self.ambush(sender, message)

    def ambush(self, follower: str, acknowledged: PushResponse) -> None:
        for receiver, leader, push in reversed(self.sent):
            if receiver != follower or not isinstance(push, PushRequest) or push.term >= acknowledged.term:
                continue
            if push.entries and push.prev_index < acknowledged.index + acknowledged.count:
                self.ambushes -= 1
                self.deliver(receiver, leader, push)
                return

    def deliver_late(self, count: int) -> None:
        """Deliver some messages again, or for the first time. Half of them are old, and half are recent."""
        for _ in range(min(count, len(self.sent))):
            age = self.choose.randint(
                1, min(NEW, len(self.sent)) if self.choose.random() < 0.5 else len(self.sent)
            )
            self.deliver(*self.sent[-age])

    def deliver(self, receiver: str, sender: str, message: Message) -> None:
        """Deliver the message to the member, if it runs."""
        node = self.group.world.nodes[receiver]
        member = self.group.member(node)
        if member is not None and node.running:
            node.spawn(hand_over(member.receive, sender, message))


async def hand_over(receive: object, sender: str, message: Message) -> None:
    """Pass the message on without expecting an answer."""
    assert callable(receive)
    receive(sender, message, 0)


def forge(group: RaftGroup, choose: random.Random, stranger: Node) -> None:
    """Send a forged message. Either the first member is broken and sends a term far too high (two such members would be a
    majority), or a foreign host sends in a member's name, and in its own name with a made-up newer list of members."""
    broken = choose.random() < 0.5 and group.nodes[0].running
    member = group.nodes[0] if broken else choose.choice(group.nodes)
    receiver = choose.choice([node for node in group.nodes if node is not member])
    term = max((core.term for core in group.running_cores()), default=0)
    if broken:
        term += TERM_JUMP_MAX + choose.choice((ELECTIONS_MEANWHILE, 1 << 30, 1 << 58))
    else:
        term += choose.choice((1, 3))
    request = choose.choice(
        (
            VoteRequest(term, 1 << 20, term - 1),
            HeartBeatRequest(term),
            PushRequest(term, PushType.COMMIT, -1, -1, 1 << 20),
        )
    )
    speaker = member if broken else stranger
    speaker.spawn(say(speaker, receiver, Envelope("g", member.name, receiver.name), request))
    if not broken:
        both = {each.name: f"{each.host}:{PORT}" for each in (receiver, stranger)}
        made_up = peer_list(group.peers | both)
        envelope = Envelope("g", stranger.name, receiver.name, made_up, members_index=MADE_UP_INDEX)
        stranger.spawn(say(stranger, receiver, envelope, request))


async def say(speaker: Node, receiver: Node, envelope: Envelope, request: Request) -> None:
    client = RemotingClient(clock=SimulatedClock(speaker))
    body = encode_request(envelope, request)
    try:
        await client.call(
            f"{receiver.host}:{PORT}", RemotingCommand.request(CODE_OF[type(request)], body=body), 500
        )
    except RemotingError:
        pass
    finally:
        await client.close()
