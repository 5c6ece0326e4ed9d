"""A member that behaves like an older version, which did not know the binary frames of messages. It writes only JSON, does not
announce frames, and rejects frames as malformed JSON.

Invariant: everything else is as in the present version."""

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
