"""A member as those before frames were: it writes JSON only, says of frames nothing, and refuses them as what is no JSON.

Invariant: nothing else about it is another's."""

from __future__ import annotations

from dledger.node.messageframe import is_framed
from dledger.node.messagejson import Envelope, encode_refusal
from dledger.node.transport import HEADER_CODE, PeerTransport
from dledger.raft.messages import ResultCode
from remoting.command import RemotingCommand
from remoting.peer import Peer


class OldConversation(PeerTransport):
    frames = 0
    frames_refused = 0

    async def on_request(self, peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        if command.body is not None and is_framed(memoryview(command.body)):
            self.frames_refused += 1
            body = encode_refusal(Envelope(self.group, "", self.self_id), ResultCode.UNEXPECTED_ARGUMENT)
            return command.reply(HEADER_CODE, body=body)
        return await super().on_request(peer, command)

    def note_frames(self, peer: str, envelope: Envelope) -> None:
        return None
