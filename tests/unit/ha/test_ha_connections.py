"""HAService: accepted connections, and connections that it opens."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from epochfile.history import EpochHistory
from ha.errors import HAAddressInUse
from ha.frames import Handshake, HandshakeReply, TransferHeader, encode_ack
from ha.master.connection import MasterConnection
from ha.master.link import MasterLink
from tests.unit.ha.hascene import (
    HOST,
    SETTINGS,
    Node,
    fill,
    greeted,
    hung_up,
    in_step,
    played_by,
    turns,
    until,
)
from tests.unit.ha.memorylog import record


@played_by(1, 2)
async def test_only_a_master_serves_r29(a: Node, b: Node) -> None:
    await a.lead(1)
    await b.follow(a, 1)
    reader, writer = await asyncio.open_connection(HOST, b.port)
    writer.write(Handshake(9).encode())
    assert await hung_up(reader)
    writer.close()


@played_by(1, 2)
@pytest.mark.parametrize(
    "garbage",
    [bytes(64), b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", Handshake(1).encode(), encode_ack(2**63 - 1)],
    ids=["zeros", "ones", "http", "own id", "ack"],
)
async def test_garbage_ends_only_its_connection(a: Node, b: Node, garbage: bytes) -> None:
    await in_step(a, b)
    reader, writer = await asyncio.open_connection(HOST, a.port)
    writer.write(garbage)
    assert await hung_up(reader)
    writer.close()
    fill(a, "after", 10)
    await until(lambda: a.ha.confirm_offset() == a.log.max_offset())
    assert a.ha.in_sync_count() == 2 and not a.fatal


@played_by(1)
async def test_the_newest_connection_of_a_broker_replaces_the_former_r11_r24(a: Node) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    end = a.log.max_offset()
    old_reader, old = await greeted(a.port, Handshake(2), end)
    await until(lambda: a.ha.in_sync_count() == 2)
    _new_reader, new = await greeted(a.port, Handshake(2), end)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await old_reader.readexactly(10_000)
    await until(lambda: len(a.ha.status()["haConnectionInfo"]) == 1)
    assert a.ha.in_sync_count() == 2
    fill(a, "y", 1)
    new.write(encode_ack(a.log.max_offset()))
    await until(lambda: a.ha.confirm_offset() == a.log.max_offset())
    for writer in (old, new):
        writer.close()


@played_by(1)
async def test_an_ack_does_not_poll_the_link_for_frames(a: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await a.lead(1)
    fill(a, "x", 10)
    reader, writer = await greeted(a.port, Handshake(2), a.log.max_offset())
    await until(lambda: a.ha.in_sync_count() == 2)
    fill(a, "y", 1)
    await until(lambda: all(link.link.next_offset == a.log.max_offset() for link in connections(a)))
    asked: list[int] = []
    writable = MasterLink.writable
    monkeypatch.setattr(
        MasterLink, "writable", lambda link, now_ms: asked.append(now_ms) or writable(link, now_ms)
    )
    writer.write(encode_ack(a.log.max_offset()))
    await until(lambda: a.ha.confirm_offset() == a.log.max_offset())
    assert not asked
    fill(a, "z", 3)
    await until(lambda: all(link.link.next_offset == a.log.max_offset() for link in connections(a)))
    assert len(asked) == 1, "once per loop turn, however many records it brought"
    writer.close()


def connections(node: Node) -> list[MasterConnection]:
    assert node.ha.mastership is not None
    return node.ha.mastership.connections


@played_by(1)
async def test_a_master_sends_its_log_to_a_protocol_client(a: Node) -> None:
    await a.ha.stop()
    a.files.content["epochFileCheckpoint"] = b"1\n1725254278\n1-0\n"
    await a.start_again()
    fill(a, "x", 100)
    a.log.cold_below = 16384  # the first segment is read outside the mapping
    await a.lead(1)
    reader, writer = await greeted(a.port, Handshake(2), 0)
    got = bytearray()
    while len(got) < a.log.max_offset():
        header = TransferHeader.decode(await reader.readexactly(36))
        assert header.offset == len(got) and header.body_size <= 4096
        got += await reader.readexactly(header.body_size)
    assert bytes(got) == a.log.content()
    assert (header.epoch, header.epoch_start_offset) in a.ha.history.entries
    writer.close()


@played_by(1)
async def test_a_connection_that_is_aborted_at_once_leaves_no_state_r28(a: Node) -> None:
    await a.lead(1)
    for _ in range(20):
        _reader, writer = await asyncio.open_connection(HOST, a.port)
        writer.write(Handshake(2).encode())
        writer.transport.abort()
    _reader, writer = await greeted(a.port, Handshake(3), 0)
    await until(lambda: len(a.ha.status()["haConnectionInfo"]) == 1)
    writer.close()


@played_by(2)
@pytest.mark.parametrize(
    "bad",
    [
        TransferHeader(10, 77, 1, 0, 0).encode() + bytes(10),
        bytes(36),
        TransferHeader(0, 0, 1, 0, 0).encode().replace(b"\0\0\0\0", b"\xff\xff\xff\xff", 1),
    ],
    ids=["offset", "state", "size"],
)
async def test_a_slave_disconnects_from_an_invalid_master_and_retries_r36(b: Node, bad: bytes) -> None:
    accepted = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        await reader.readexactly(16)
        writer.write(HandshakeReply(1000, EpochHistory([(1, 0)])).encode())
        await reader.readexactly(12)
        body = record("x", 500)
        writer.write(TransferHeader(len(body), 0, 1, 0, 0).encode() + body if accepted == 1 else bad)
        if accepted == 1:
            writer.write(bad)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    await b.ha.become_slave(1, 2, 9, f"{HOST}:{port}")
    await until(lambda: accepted >= 3)
    assert b.log.content() == record("x", 500) and not b.fatal
    await b.lead(2)
    server.close()
    await server.wait_closed()
    await until(lambda: len(asyncio.all_tasks()) == 1)


@played_by(1, settings=replace(SETTINGS, connections_max=2))
async def test_more_connections_than_allowed_are_refused(a: Node) -> None:
    await a.lead(1)
    kept = [await greeted(a.port, Handshake(broker_id), 0) for broker_id in (2, 3)]
    reader, writer = await asyncio.open_connection(HOST, a.port)
    assert await hung_up(reader)
    assert len(a.ha.status()["haConnectionInfo"]) == 2
    for _, other in kept:
        other.close()
    writer.close()


@played_by(1)
async def test_a_used_port_raises_address_in_use(a: Node) -> None:
    with pytest.raises(HAAddressInUse, match="haListenPort"):
        await a.new_service(a.port).start()


@played_by(1, 2)
async def test_a_damaged_record_ends_the_link_and_is_not_sent(a: Node, b: Node) -> None:
    await a.lead(1)
    fill(a, "epoch-1", 40)
    a.log.damaged_at = damaged_at = 9000
    await b.follow(a, 1)
    await until(lambda: b.log.max_offset() > 4096)
    await turns(200)
    assert b.log.max_offset() <= damaged_at
    a.log.damaged_at = None
    await until(lambda: b.log.content() == a.log.content())
