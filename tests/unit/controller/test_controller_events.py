"""Golden: the log that three Java 5.3.3 controllers wrote during a failover, and texts of upstream's
serializer."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    UpdateBrokerAddress,
    decode,
    encode,
)
from controller.state import ReplicasState

VECTORS = Path(__file__).parents[2] / "vectors" / "controller"
JAVA_LOG = [bytes.fromhex(line) for line in (VECTORS / "java-5.3.3-log.hex").read_text().splitlines()]

GOLDEN: list[tuple[Event, bytes]] = [
    (
        AlterSyncStateSet("broker-a", frozenset({3, 1, 2})),
        b'\x00\x01{"brokerName":"broker-a","eventType":"ALTER_SYNC_STATE_SET_EVENT","newSyncStateSet":[1,2,3]}',
    ),
    (
        ElectMaster("broker-a", None),
        b'\x00\x03{"brokerName":"broker-a","eventType":"ELECT_MASTER_EVENT","newMasterElected":false}',
    ),
    (
        UpdateBrokerAddress("DefaultCluster", "broker-a", 2, "127.0.0.1:30921"),
        b'\x00\x06{"brokerAddress":"127.0.0.1:30921","brokerId":2,"brokerName":"broker-a",'
        b'"clusterName":"DefaultCluster","eventType":"UPDATE_BROKER_ADDRESS"}',
    ),
    (
        CleanBrokerData("a(b)<c>", None),
        b'\x00\x05{"brokerName":"a\\u0028b\\u0029\\u003Cc\\u003E","eventType":"CLEAN_BROKER_DATA_EVENT"}',
    ),
    (
        CleanBrokerData('q"\\/\n\x01\x7f\u0085\u2028\u00e9', frozenset({2})),
        b'\x00\x05{"brokerIdSetToClean":[2],"brokerName":"q\\"\\\\/\\n\\u0001\\u007F\\u0085\\u2028\xc3\xa9",'
        b'"eventType":"CLEAN_BROKER_DATA_EVENT"}',
    ),
]


@pytest.mark.parametrize(("event", "body"), GOLDEN)
def test_an_event_is_encoded_to_upstreams_bytes_and_decoded(event: Event, body: bytes) -> None:
    assert encode(event) == body
    assert decode(body) == event


@pytest.mark.parametrize("body", [body for body in JAVA_LOG if body])
def test_every_event_logged_by_java_is_decoded_and_encoded_to_the_same_bytes(body: bytes) -> None:
    event = decode(body)
    assert event is not None
    assert encode(event) == body


def test_the_java_log_replays_to_the_state_that_java_reported() -> None:
    state = ReplicasState()
    for body in JAVA_LOG:
        event = decode(body)
        if event is not None:
            state.apply(event)
    assert set(state.replicas) == set(state.sync_states) == {"broker-a"}
    replicas, sync_state = state.replicas["broker-a"], state.sync_states["broker-a"]
    assert {broker_id: replica.address for broker_id, replica in replicas.by_id.items()} == {
        1: "127.0.0.1:24200",
        2: "127.0.0.1:24220",
    }
    assert replicas.next_broker_id == 4
    assert (sync_state.master_id, sync_state.master_epoch) == (1, 4)
    assert (sync_state.members, sync_state.set_epoch) == ({1}, 8)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x00\x03",
        b"\x00\x04{}",
        b"\x00\x07{}",
        b'\xff\xff{"brokerName":"a"}',
        b"\x00\x03[]",
        b"\x00\x03{",
        b'\x00\x03{"newMasterElected":true,"newMasterBrokerId":1}',
        b'\x00\x03{"brokerName":"a","newMasterElected":true}',
        b'\x00\x03{"brokerName":"a","newMasterElected":true,"newMasterBrokerId":true}',
        b'\x00\x01{"brokerName":"a","newSyncStateSet":[1,"x"]}',
        b'\x00\x01{"brokerName":"a"}',
        b'\x00\x02{"brokerName":"a","newBrokerId":1}',
        b"\x00\x03" + b"[" * 100_000,
    ],
)
def test_unreadable_bytes_decode_to_no_event(body: bytes) -> None:
    assert decode(body) is None


def test_numbers_may_be_quoted_and_unknown_members_are_ignored() -> None:
    body = b'\x00\x03{"x":{},"newMasterBrokerId":"2","newMasterElected":true,"brokerName":"a"}'
    assert decode(body) == ElectMaster("a", 2)


def test_an_applied_broker_id_keeps_its_check_code() -> None:
    event = ApplyBrokerId("c", "a", 1, "10.0.0.1:10911", "10.0.0.1:10911;17")
    assert decode(encode(event)) == event
