"""Signatures: those of upstream's hook, also recomputed here without the product's code, and requests that a client signs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.frame import FrameReader, encode
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from remoting.signing import Credentials, Signer, signature_of

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "acl" / "signatures.json").read_text()
)
ECHO = 7001


def hmac_sha1(key: bytes, content: bytes) -> bytes:
    """RFC 2104, written out."""
    block = (hashlib.sha1(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in block) + content).digest()
    return hashlib.sha1(bytes(byte ^ 0x5C for byte in block) + inner).digest()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_request_is_signed_as_javas_hook_signs_it(vector: dict[str, Any]) -> None:
    [sent] = FrameReader().receive(bytes.fromhex(vector["frameHex"]))
    token = vector.get("securityToken", sent.ext.get("SecurityToken"))
    signer = Signer(Credentials(vector["accessKey"], vector["secretKey"], token))
    request = RemotingCommand(sent.code, ext=dict(vector["ext"]), body=sent.body)
    signer.sign(request)
    assert request.ext == sent.ext
    content = bytes.fromhex(vector["contentHex"])
    assert base64.b64encode(hmac_sha1(vector["secretKey"].encode(), content)).decode() == vector["signature"]
    pieces = [sent.body] if sent.body is not None else []
    assert signature_of(sent.ext, pieces, vector["secretKey"].encode()) == vector["signature"]


def test_pieces_of_a_body_are_signed_as_the_whole() -> None:
    whole = RemotingCommand(10, ext={"a": "b"}, body=b"one two three")
    pieces = RemotingCommand(10, ext={"a": "b"}, body=b"one ", behind=[b"two ", memoryview(b"three")])
    for request in (whole, pieces):
        Signer(Credentials("user", "secret")).sign(request)
    assert whole.ext == pieces.ext


def test_signing_again_replaces_the_former_signature() -> None:
    request = RemotingCommand(10, ext={"a": "b"})
    Signer(Credentials("one", "secret")).sign(request)
    Signer(Credentials("two", "secret")).sign(request)
    again = RemotingCommand(10, ext={"a": "b"})
    Signer(Credentials("two", "secret")).sign(again)
    assert request.ext == again.ext


@pytest.mark.parametrize(("access_key", "secret_key"), [("", "secret"), ("user", "")])
def test_half_of_the_credentials_are_none(access_key: str, secret_key: str) -> None:
    with pytest.raises(ValueError, match="an access key and a secret key are needed"):
        Credentials(access_key, secret_key)


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials("user", "geheim", "merkmal"))
    assert "user" in shown and "geheim" not in shown and "merkmal" not in shown


def test_a_client_signs_each_request_and_no_answer() -> None:
    received: list[RemotingCommand] = []

    def echo(peer: Peer, command: RemotingCommand) -> RemotingCommand | None:
        received.append(RemotingCommand(command.code, ext=dict(command.ext), body=bytes(command.body or b"")))
        return None if command.is_oneway else command.reply(header={"answer": "yes"})

    async def story() -> None:
        router = Router()
        router.add(ECHO, echo)
        server = RemotingServer(router, host="127.0.0.1", port=0, clock=SystemClock())
        await server.start()
        client = RemotingClient(clock=SystemClock(), signer=Signer(Credentials("user", "secret")))
        address = f"127.0.0.1:{server.port}"
        answer = await client.call(address, RemotingCommand.request(ECHO, {"b": "2", "a": "1"}, b"body"))
        assert answer.ext == {"answer": "yes"}
        await client.one_way(address, RemotingCommand.request(ECHO, {"c": "3"}))
        await client.call(address, RemotingCommand.request(ECHO))
        await client.close()
        await server.stop()

    asyncio.run(story())
    for command in received:
        signature = command.ext.pop("Signature")
        content = "".join(value for _, value in sorted(command.ext.items())).encode() + bytes(
            command.body or b""
        )
        assert base64.b64decode(signature) == hmac_sha1(b"secret", content)
        assert command.ext["AccessKey"] == "user"
    assert len(received) == 3 and encode(received[0])
