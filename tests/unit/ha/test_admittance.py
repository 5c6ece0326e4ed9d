"""Admission of slaves to a mastership: decisions of the core, and connections that a master refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ha.frames import Handshake, HandshakeReply, encode_ack
from ha.master.admittance import (
    LOOPBACK,
    READ_AGAIN_MS,
    Admit,
    Admittance,
    Newcomer,
    Read,
    Refuse,
    RegisteredReplica,
    Why,
    newcomer_of,
    plain,
)
from mqruntime.peercertificate import names_in
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


def at(*hosts: str) -> RegisteredReplica:
    """A replica registered with the first of these hosts."""
    return RegisteredReplica(frozenset(hosts), f"{hosts[0]}:10911")


TABLE = {1: at("10.0.0.1"), 2: at("10.0.0.2", "10.1.0.2")}


def knowing(*, checks_hosts: bool = True) -> Admittance:
    """The core of broker 1, which read TABLE at time 0."""
    admittance = Admittance(checks_hosts=checks_hosts, role="broker/broker-a")
    assert admittance.begin(1, 0) == [Read(0)]
    admittance.read_begins()
    assert admittance.table_read(TABLE, 0) == []
    return admittance


def from_host(broker_id: int, host: str) -> Newcomer:
    return newcomer_of(broker_id, host, "10.0.0.1")


@pytest.mark.parametrize("host", ["10.0.0.2", "10.1.0.2", "::ffff:10.0.0.2"])
def test_a_known_id_from_its_registered_host_is_admitted_without_a_read(host: str) -> None:
    slave = from_host(2, host)
    assert knowing().come(slave, 1) == [Admit(slave, 2)]


@pytest.mark.parametrize(
    ("broker_id", "host", "why", "registered"),
    [
        (3, "10.0.0.3", Why.UNKNOWN_ID, frozenset()),
        (2, "10.0.0.3", Why.ELSEWHERE, TABLE[2].hosts),
        (2, "10.0.0.1", Why.ELSEWHERE, TABLE[2].hosts),
        (2, "127.0.0.1", Why.ELSEWHERE, TABLE[2].hosts),
    ],
    ids=["unknown id", "other host", "the master's host", "loopback"],
)
def test_an_unregistered_slave_is_refused_after_one_more_read(
    broker_id: int, host: str, why: Why, registered: frozenset[str]
) -> None:
    admittance, stranger = knowing(), from_host(broker_id, host)
    assert admittance.come(stranger, READ_AGAIN_MS) == [Read(0)]
    admittance.read_begins()
    assert admittance.table_read(TABLE, READ_AGAIN_MS) == [Refuse(stranger, why, registered)]


@pytest.mark.parametrize("checks_hosts", [True, False])
@pytest.mark.parametrize(
    ("names", "is_admitted"),
    [
        ([("IP Address", "10.0.0.2")], True),
        ([("URI", "rocketmq://10.0.0.2:10911")], True),
        ([("IP Address", "10.0.0.3")], False),
        ([("IP Address", "10.0.0.2"), ("URI", "rocketmq://10.0.0.2:10921")], False),
        ([("IP Address", "10.0.0.2"), ("URI", "rocketmq:broker/broker-a")], True),
        ([("IP Address", "10.0.0.2"), ("URI", "rocketmq:broker/broker-b")], False),
        ([("IP Address", "10.0.0.2"), ("URI", "rocketmq:namesrv")], False),
        ([("URI", "rocketmq://10.0.0.2:10911"), ("URI", "rocketmq:controller")], False),
        ([], False),
    ],
)
def test_a_slave_is_admitted_only_with_a_certificate_of_its_registered_address(
    names: list[tuple[str, str]], is_admitted: bool, checks_hosts: bool
) -> None:
    admittance = knowing(checks_hosts=checks_hosts)
    slave = newcomer_of(2, "10.0.0.2", "10.0.0.1", certificate=names_in({"subjectAltName": names}))
    if is_admitted:
        assert admittance.come(slave, 1) == [Admit(slave, 2)]
        return
    assert admittance.come(slave, READ_AGAIN_MS) == [Read(0)]
    admittance.read_begins()
    refused = Refuse(slave, Why.OTHER_CERTIFICATE, TABLE[2].hosts)
    assert admittance.table_read(TABLE, READ_AGAIN_MS) == [refused]


def test_a_newly_registered_or_moved_broker_is_admitted_by_the_next_read() -> None:
    admittance = knowing()
    new, moved = from_host(3, "10.0.0.3"), from_host(2, "10.0.0.9")
    assert admittance.come(new, READ_AGAIN_MS) == [Read(0)]
    assert admittance.come(moved, READ_AGAIN_MS) == []
    admittance.read_begins()
    newer = {**TABLE, 2: at("10.0.0.9"), 3: at("10.0.0.3")}
    assert admittance.table_read(newer, READ_AGAIN_MS) == [Admit(new, 3), Admit(moved, 2)]
    former = from_host(2, "10.0.0.2")
    assert admittance.come(former, READ_AGAIN_MS) == [Read(READ_AGAIN_MS)]


def test_a_read_that_began_earlier_may_admit_but_not_refuse() -> None:
    """The table may be older than the registration of the new slave."""
    admittance = knowing()
    first, second, third = from_host(3, "10.0.0.3"), from_host(4, "10.0.0.4"), from_host(5, "10.0.0.5")
    admittance.come(first, 1_000)
    admittance.read_begins()
    assert admittance.come(second, 1_001) == [] and admittance.come(third, 1_001) == []
    actions = admittance.table_read({**TABLE, 5: at("10.0.0.5")}, 1_002)
    assert actions == [Admit(third, 5), Refuse(first, Why.UNKNOWN_ID), Read(READ_AGAIN_MS)]
    admittance.read_begins()
    assert admittance.table_read(TABLE, 2_000) == [Refuse(second, Why.UNKNOWN_ID)]


def test_a_slave_that_sends_its_address_gets_the_id_registered_with_it() -> None:
    admittance = knowing()
    slave = newcomer_of(0, "10.0.0.2", "10.0.0.1", "10.0.0.2:10911")
    assert admittance.come(slave, 1_000) == [Admit(slave, 2)]


@pytest.mark.parametrize(
    ("host", "address", "why"),
    [
        ("10.0.0.2", "10.0.0.2:10921", Why.UNKNOWN_ID),
        ("10.0.0.9", "10.0.0.2:10911", Why.ELSEWHERE),
        ("10.0.0.1", "10.0.0.1:10911", Why.ELSEWHERE),
    ],
)
def test_an_unknown_or_foreign_address_or_the_masters_own_is_refused(
    host: str, address: str, why: Why
) -> None:
    admittance = knowing()
    stranger = newcomer_of(0, host, "10.0.0.1", address)
    assert admittance.come(stranger, 1_000) == [Read(0)]
    admittance.read_begins()
    [refused] = admittance.table_read(TABLE, 1_000)
    assert isinstance(refused, Refuse) and refused.why is why


def test_many_unknown_slaves_cause_one_read_at_a_time() -> None:
    admittance = knowing()
    reads = [
        action
        for at in range(100)
        for action in admittance.come(from_host(7, f"10.9.0.{at}"), 0)
        if isinstance(action, Read)
    ]
    assert reads == [Read(READ_AGAIN_MS)]
    admittance.read_begins()
    assert len(admittance.table_read(TABLE, READ_AGAIN_MS)) == 100


def test_without_controllers_only_slaves_of_the_last_table_are_admitted() -> None:
    admittance, stranger, slave = knowing(), from_host(3, "10.0.0.3"), from_host(2, "10.0.0.2")
    assert admittance.come(stranger, 1_000) == [Read(0)]
    admittance.read_begins()
    assert admittance.table_unread(2_000) == [Refuse(stranger, Why.UNCHECKED)]
    assert admittance.come(slave, 2_000) == [Admit(slave, 2)]
    assert admittance.begin(1, 3_000) == [Read(0)]
    again = from_host(2, "10.0.0.2")
    assert admittance.come(again, 3_000) == [Admit(again, 2)]


def test_a_slave_that_disconnected_since_gets_no_decision() -> None:
    admittance = knowing()
    waiting, asked = from_host(3, "10.0.0.3"), from_host(4, "10.0.0.4")
    admittance.come(asked, 1_000)
    admittance.read_begins()
    admittance.come(waiting, 1_000)
    admittance.left(waiting)
    admittance.left(asked)
    assert admittance.table_read(TABLE, 1_000) == []


def test_without_the_host_check_ids_are_still_checked() -> None:
    admittance = knowing(checks_hosts=False)
    slave, stranger = from_host(2, "192.168.0.9"), from_host(3, "192.168.0.9")
    assert admittance.come(slave, 0) == [Admit(slave, 2)]
    assert admittance.come(stranger, 0) == [Read(READ_AGAIN_MS)]


@pytest.mark.parametrize("registered", ["127.0.0.1", "10.0.0.1"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "127.0.0.9", "::1", "10.0.0.1"])
def test_all_addresses_of_this_machine_are_one_host(registered: str, peer: str) -> None:
    admittance = Admittance(checks_hosts=True)
    admittance.begin(1, 0)
    admittance.table_read({1: at("10.0.0.1"), 2: at(registered)}, 0)
    slave = newcomer_of(2, peer, peer)
    assert admittance.come(slave, 0) == [Admit(slave, 2)]


def test_addresses_are_normalised() -> None:
    written = ["127.3.2.1", "::1", "[::1]", "fe80::1%eth0", "FE80:0::1", "::ffff:10.0.0.2", "broker-a-0.svc"]
    expected = [LOOPBACK, LOOPBACK, LOOPBACK, "fe80::1", "fe80::1", "10.0.0.2", "broker-a-0.svc"]
    assert [plain(host) for host in written] == expected


# -- connections

REFUSED = "replication link refused"


@played_by(1)
async def test_a_slave_with_an_address_handshake_is_served_under_its_registered_id(a: Node) -> None:
    a.replicas = {1: at(HOST), 2: RegisteredReplica(frozenset({HOST}), f"{HOST}:20911")}
    await a.lead(1)
    fill(a, "x", 3)
    reader, writer = await asyncio.open_connection(HOST, a.port)
    writer.write(Handshake(0, address=f"{HOST}:20911").encode())
    header = await reader.readexactly(20)
    await reader.readexactly(HandshakeReply.body_size(header))
    writer.write(encode_ack(0))
    await reader.readexactly(36)
    assert list(a.ha.slaves()) == [2]
    writer.close()


async def knocked(a: Node, broker_id: int) -> None:
    """Connect as this broker and wait until the master refuses."""
    reader, writer = await asyncio.open_connection(HOST, a.port)
    writer.write(Handshake(broker_id).encode())
    assert await hung_up(reader)
    writer.close()


async def registered_elsewhere(a: Node, broker_id: int) -> None:
    """Register the broker at another host and let the master read that."""
    a.replicas = {**a.replicas, broker_id: at("10.0.0.3")}
    await knocked(a, 77)


@played_by(1)
@pytest.mark.parametrize(
    ("registered", "said"),
    [({1: at(HOST)}, "no broker of this id"), ({2: at("10.0.0.2")}, "at another host")],
    ids=["unknown id", "other host"],
)
async def test_a_refused_link_gets_no_reply_and_leaves_no_state(
    a: Node, registered: dict[int, RegisteredReplica], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    a.replicas = registered
    await a.lead(1)
    for _ in range(3):
        await knocked(a, 2)
    await until(lambda: not a.ha.status()["haConnectionInfo"])
    assert a.ha.counters.refused_links == 3
    [line] = [record for record in caplog.records if record.getMessage() == REFUSED]
    assert said in line.__dict__["fields"]["why"]
    assert a.ha.mastership is not None
    assert a.ha.mastership.sync_state_set._slaves == {} and a.ha.slaves() == {}


@played_by(1, 2)
async def test_an_unknown_slave_does_not_replace_a_members_link(a: Node, b: Node) -> None:
    await in_step(a, b)
    await registered_elsewhere(a, 2)
    mastership = a.ha.mastership
    assert mastership is not None
    [link] = mastership.connections
    await knocked(a, 2)
    await until(lambda: mastership.connections == [link])
    assert a.ha.in_sync_count() == 2


@played_by(1, 2)
async def test_a_slave_that_registers_later_is_admitted_at_once(a: Node, b: Node) -> None:
    a.replicas = {1: at(HOST)}
    await a.lead(1)
    await b.follow(a, 1)
    await until(lambda: a.ha.counters.refused_links > 0)
    a.replicas = {1: at(HOST), 2: at(HOST)}
    await until(lambda: a.ha.in_sync_count() == 2)
    fill(a, "x", 10)
    await until(lambda: a.ha.confirm_offset() == a.log.max_offset())


@played_by(1)
async def test_without_controllers_a_master_admits_only_slaves_of_the_last_table(a: Node) -> None:
    await a.lead(1)
    await until(lambda: a.replicas_read == 1)
    await turns(5)
    a.controller_up = False
    _reader, known = await greeted(a.port, Handshake(2), 0)
    await knocked(a, 77)
    assert a.ha.slaves().keys() == {2}
    known.close()


@played_by(1, settings=replace(SETTINGS, slave_host_check=False))
async def test_without_the_host_check_a_slave_may_connect_from_any_host(a: Node) -> None:
    a.replicas = {2: at("10.0.0.2")}
    await a.lead(1)
    _reader, writer = await greeted(a.port, Handshake(2), 0)
    writer.close()


@played_by(1)
async def test_a_copy_at_another_host_that_took_the_registration_is_logged(
    a: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await a.lead(1)
    _reader, original = await greeted(a.port, Handshake(2), 0)
    await until(lambda: a.ha.slaves().keys() == {2})
    await registered_elsewhere(a, 2)
    while "two brokers replicate under one id" not in caplog.text:
        await knocked(a, 2)
    original.close()
