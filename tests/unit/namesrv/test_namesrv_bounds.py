"""Registrations of made-up brokers use a limited amount of a name server's memory and time."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace

import pytest

from namesrv import kvconfig, routes
from namesrv.kvconfig import KVConfig, KVConfigFull
from namesrv.routes import RouteTable, TableFull
from remoting import fastjson
from remoting.bodies import registration
from remoting.bodies.registration import RegisterBrokerBody, read_register_body
from remoting.bodies.routes import QueueData
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from remoting.errors import BodyError
from tests.support.doubles import MemoryFiles
from tests.unit.namesrv.registrations import A, B, C, registration_of, topics


def registered(topics: list[bytes], servers: bytes = b"") -> bytes:
    """A compressed registration with these lines."""
    version, *lines, last = [len(part).to_bytes(4, "big") + part for part in (b"{}", *topics, servers)]
    return zlib.compress(version + len(topics).to_bytes(4, "big") + b"".join(lines) + last)


def test_the_number_of_brokers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BROKERS_MAX", 2)
    table = RouteTable()
    for broker_id, address in ((0, A), (1, B), (0, A)):
        table.register(registration_of(broker_id, address), now_ms=0)
    with pytest.raises(TableFull, match="2 brokers"):
        table.register(registration_of(0, C, name="made-up"), now_ms=0)
    assert "made-up" not in table.groups
    table.unregister("DefaultCluster", "broker-a", B)
    table.register(registration_of(0, C, name="another"), now_ms=0)


def test_the_number_of_topic_rows_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ROWS_MAX", 4)
    table, three = RouteTable(), topics(T=6, U=6, V=6)
    table.register(registration_of(0, A, table=three), now_ms=0)
    table.register(registration_of(0, A, table=three, counter=2), now_ms=0)
    more = registration_of(0, B, name="broker-b", table=topics(T=6, U=6))
    with pytest.raises(TableFull, match="4 topics"):
        table.register(more, now_ms=0)
    assert B not in str(table.live)
    table.add_topic("W", [QueueData("broker-a", 1, 1, 6, 0)])
    with pytest.raises(TableFull):
        table.add_topic("X", [QueueData("broker-a", 1, 1, 6, 0)])
    table.delete_topic("U", None)
    table.delete_topic("W", None)
    table.register(more, now_ms=0)
    table.unregister("DefaultCluster", "broker-a", A)
    table.register(replace(more, broker_name="broker-c", broker_addr=C), now_ms=0)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_number_of_topics_in_a_registration_has_a_limit(
    compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "TOPICS_MAX", 2)
    for count in (2, 3):
        names = [f"T{number}" for number in range(count)]
        body = RegisterBrokerBody(TopicConfigWrapper({name: TopicConfig(name) for name in names})).encode()
        if compressed:
            body = registered([f"{name} 1 1 6 SINGLE_TAG".encode() for name in names])
        if count == 2:
            read = read_register_body(body, compressed=compressed)
            assert list(read.topic_config_serialize_wrapper.topic_config_table) == names
            continue
        with pytest.raises(BodyError, match="3 topics; 2 are taken"):
            read_register_body(body, compressed=compressed)


MANY = fastjson.REQUEST_DIALECT_MAX


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{filterServerList:[" + b"1," * MANY + b"]}", f"of which {MANY} are read"),
        (b'{"filterServerList":[' + b"1," * registration.FILTER_SERVERS_MAX + b"1]}", "filter servers"),
        (
            registered(
                [b"T%d 1 1 6 SINGLE_TAG {" % number + b"k:'v'," * 300 + b"}" for number in range(100)]
            ),
            r"not strict JSON, of which \d+ are read",
        ),
        (registered([], b"[" + b"1," * MANY + b"]"), f"of which {MANY} are read"),
        (registered([], b"[" + b"1," * registration.FILTER_SERVERS_MAX + b"1]"), "filter servers"),
    ],
    ids=["dialect", "servers", "attributes", "compressed dialect", "compressed servers"],
)
def test_a_registration_that_is_slow_to_parse_is_rejected_unparsed(body: bytes, why: str) -> None:
    """Lenient JSON takes microseconds a byte: 30 KB of zlib once blocked a name server for 76 s."""
    with pytest.raises(BodyError, match=why):
        read_register_body(body, compressed=not body.startswith(b"{"))


def test_the_key_value_configuration_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvconfig, "BYTES_MAX", 100)

    async def scenario() -> None:
        config = KVConfig(MemoryFiles(), "kvConfig.json")
        await config.put("N", "key", "v" * 40)
        with pytest.raises(KVConfigFull, match="100 are kept"):
            await config.put("N", "other", "v" * 40)
        assert config.namespace("N") == {"key": "v" * 40}
        await config.put("N", "key", "w" * 40)
        await config.delete("N", "key")
        await config.put("N", "other", "v" * 40)

    asyncio.run(scenario())
