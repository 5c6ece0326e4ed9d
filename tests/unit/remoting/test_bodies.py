"""Bodies: ours have the content of Java's, in the form that all Java versions read."""

from __future__ import annotations

import json
import zlib
from typing import Any

import orjson
import pytest

from remoting import fastjson
from remoting.bodies import epochs, groups, heartbeats, offsets, queues, replicas, routes, topics
from remoting.bodies.body import Body
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.registration import RegisterBrokerBody, body_crc32, read_register_body
from remoting.errors import BodyError
from remoting.frame import FrameReader
from remoting.headers.nameserver import RegisterBrokerHeader
from tests.unit.remoting.goldenframes import FOLDER, golden_frames

REQUESTS: dict[int, type[Body]] = {
    34: heartbeats.HeartbeatData,
    46: heartbeats.CheckClientConfigBody, 103: RegisterBrokerBody, 200: groups.SubscriptionGroupConfig,
    217: routes.TopicRouteData, 322: DataVersion, 1001: replicas.SyncStateSetBody, 1008: replicas.SyncStateSetBody,
}  # fmt: skip
RESPONSES: dict[int, type[Body]] = {
    21: topics.TopicConfigWrapper, 28: routes.KVTable, 38: heartbeats.ConsumerIdList,
    43: offsets.ConsumerOffsetWrapper, 45: offsets.DelayOffsetWrapper,
    105: routes.TopicRouteData, 106: routes.ClusterInfo, 201: groups.SubscriptionGroupWrapper,
    202: queues.TopicStatsTable, 203: heartbeats.ConsumerConnection, 204: heartbeats.ProducerConnection,
    206: routes.TopicList, 208: queues.ConsumeStats, 219: routes.KVTable, 222: queues.ResetOffsetBody,
    224: routes.TopicList, 300: routes.GroupList, 304: routes.TopicList, 322: DataVersion, 351: topics.TopicConfig,
    352: groups.SubscriptionGroupConfig, 402: groups.MessageRequestModes, 901: routes.GetBrokerMemberGroupBody,
    1001: replicas.SyncStateSetBody, 1002: replicas.ElectMasterBody,
    1003: replicas.SyncStateSetBody, 1004: replicas.SyncStateSetBody, 1006: replicas.BrokerReplicasInfo,
    1007: epochs.EpochCache,
}  # fmt: skip
ANSWERED_WITH_BODY = (0, 2011)


def comparable(value: Any) -> Any:
    """Java's maps and sets come in hash order, object keys in two forms, nulls mean absent."""
    if isinstance(value, dict):
        return {
            json.dumps(fastjson.object_key(key), sort_keys=True) if key.startswith("{") else key: comparable(
                member
            )
            for key, member in value.items()
            if member is not None
        }
    if isinstance(value, list):
        return sorted((comparable(member) for member in value), key=repr)
    return value


def within(value: Any, source: Any) -> Any:
    """`value` without members at their defaults that a hand-written `source` left out."""
    if isinstance(value, dict) and isinstance(source, dict):
        return {key: within(member, source[key]) for key, member in value.items() if key in source}
    return value


def test_captured_bodies_are_read_and_written_back_with_the_same_content() -> None:
    seen: set[tuple[bool, int]] = set()
    for golden in golden_frames():
        (command,) = FrameReader().receive(golden.data)
        kind = (REQUESTS if golden.is_request else RESPONSES).get(golden.request_code)
        if kind is None or not command.body or golden.row["set"] == "remoting-compressed-register":
            continue
        if not golden.is_request and command.code not in ANSWERED_WITH_BODY:
            continue
        body = kind.decode(command.body)
        written = body.encode()
        assert kind.decode(written) == body
        source = comparable(fastjson.loads(command.body))
        assert within(comparable(fastjson.loads(written)), source) == source
        seen.add((golden.is_request, golden.request_code))
    unseen = {(True, code) for code in REQUESTS} | {(False, code) for code in RESPONSES}
    assert unseen - seen <= {(False, 21), (False, 201)}  # too big for the repository


def test_members_are_written_in_alphabetical_order_without_nulls() -> None:
    info = replicas.SyncStateSetBody(frozenset({3, 1, 2}), 5)
    assert info.encode() == b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":5}'
    assert routes.TopicList(["T"]).encode() == b'{"topicList":["T"]}'
    group = routes.BrokerData("c", "b", {0: "10.0.0.1:1"})
    assert group.encode() == (
        b'{"brokerAddrs":{"0":"10.0.0.1:1"},"brokerName":"b","cluster":"c","enableActingMaster":false}'
    )


KEYED_BY_QUEUES: dict[str, type[Body]] = {
    "TopicStatsTable": queues.TopicStatsTable, "ConsumeStats": queues.ConsumeStats,
    "ConsumeStatsList": queues.ConsumeStatsList, "ResetOffsetBody": queues.ResetOffsetBody,
    "GetConsumerStatusBody": queues.ConsumerStatusBody, "ConsumerRunningInfo": queues.ConsumerQueues,
}  # fmt: skip
"""Upstream's classes whose maps are keyed by MessageQueue."""


@pytest.mark.parametrize("name", KEYED_BY_QUEUES)
def test_maps_keyed_by_queues_are_written_byte_by_byte_as_java_does(name: str) -> None:
    kind, golden = KEYED_BY_QUEUES[name], (FOLDER / "json-5.5.1" / f"{name}.json").read_bytes()
    body = kind.decode(golden)
    assert body.encode() == golden
    former = orjson.dumps(body.to_json())
    assert former != golden, "with keys that are strings"
    assert kind.decode(former) == body


def test_maps_keyed_by_queues_keep_all_rows_and_any_name() -> None:
    queue = queues.MessageQueue('T"{:},\\\n', "bröker", 1)
    for rows in ({}, {queue: 7}, {queue: 7, queues.MessageQueue("U", "b", 0): 8}):
        body = queues.ConsumerStatusBody(rows, {"c1": rows, "c2": {}})
        assert queues.ConsumerStatusBody.decode(body.encode()) == body


def test_an_old_client_s_heartbeat_with_ordinals_and_quoted_numbers_is_read() -> None:
    text = (
        b'{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"CG",'
        b'"messageModel":1,"subscriptionDataSet":[{"codeSet":[0],"subString":"*","subVersion":"1700000000000",'
        b'"topic":"T"}]}]}'
    )
    (consumer,) = heartbeats.HeartbeatData.decode(text).consumer_data_set
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert consumer.subscription_data_set[0].sub_version == 1_700_000_000_000


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        (replicas.SyncStateSetBody, b"", "no body"),
        (replicas.SyncStateSetBody, b"{}", "syncStateSet"),
        (replicas.SyncStateSetBody, b"[]", "not a JSON object"),
        (replicas.SyncStateSetBody, b'{"syncStateSet":1}', "syncStateSet"),
        (replicas.SyncStateSetBody, b'{"syncStateSet":["1_0"]}', r"syncStateSet\[0\]"),
        (replicas.SyncStateSetBody, b'{"syncStateSet":[9223372036854775808]}', r"syncStateSet\[0\]"),
        (replicas.SyncStateSetBody, b'{"syncStateSet":[true]}', r"syncStateSet\[0\]"),
        (
            replicas.SyncStateSetBody,
            b'{"syncStateSet":[1],"syncStateSetEpoch":2147483648}',
            "syncStateSetEpoch",
        ),
        (routes.BrokerData, b'{"cluster":"c","brokerName":"b","brokerAddrs":{"x":"y"}}', "brokerAddrs"),
        (topics.TopicConfig, b'{"topicName":"T","order":"maybe"}', "order"),
        (queues.ResetOffsetBody, b'{"offsetTable":{"x":1}}', "offsetTable"),
        (heartbeats.ConsumerData, b'{"groupName":"g","consumeType":9}', "consumeType"),
        (queues.ConsumeStats, b'{"consumeTps":"fast"}', "consumeTps"),
    ],
)
def test_a_body_of_the_wrong_shape_is_refused_naming_the_member(
    kind: type[Body], text: bytes, names: str
) -> None:
    with pytest.raises(BodyError, match=names):
        kind.decode(text)


def test_a_long_list_in_a_request_is_refused_before_its_rows_are_read() -> None:
    names = [*["a"] * 9_999, {}]  # the last row has the wrong type
    with pytest.raises(BodyError, match="topicList"):
        routes.TopicList.from_request(orjson.dumps({"topicList": names}))
    with pytest.raises(BodyError, match="topicList has 10001 rows; 10000 are read"):
        routes.TopicList.from_request(orjson.dumps({"topicList": [*names, "b"]}))
    assert len(routes.TopicList.decode(orjson.dumps({"topicList": ["a"] * 10_001})).topic_list) == 10_001


def test_a_request_with_too_many_rows_within_rows_is_refused_before_it_is_read() -> None:
    def heartbeat(**subscription: Any) -> bytes:
        consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t"} | subscription]}
        return orjson.dumps({"clientID": "c", "consumerDataSet": [consumer]})

    refused: list[dict[str, Any]] = [
        {"codeSet": [1] * 500_000},
        {"tagsSet": ["a"] * 250_000},
        {"codeSet": [{}] * 40_000},
    ]
    for many in refused:
        with pytest.raises(BodyError, match="HeartbeatData: a body of [0-9]+ pieces; 40000 are read"):
            heartbeats.HeartbeatData.from_request(heartbeat(**many))
    read = heartbeats.HeartbeatData.from_request(heartbeat(codeSet=[1] * 39_000))
    assert len(read.consumer_data_set[0].subscription_data_set[0].code_set) == 39_000


def test_a_compressed_registration_is_read_with_or_without_its_flag() -> None:
    (golden,) = [
        g
        for g in golden_frames()
        if g.row["set"] == "remoting-compressed-register" and g.row["kind"] != "response"
    ]
    (command,) = FrameReader().receive(golden.data)
    header = RegisterBrokerHeader.from_ext(command.ext)
    body = bytes(command.body or b"")
    assert not header.compressed
    assert header.body_crc32 == body_crc32(body)
    read = read_register_body(body, compressed=header.compressed).topic_config_serialize_wrapper
    assert read == read_register_body(body, compressed=True).topic_config_serialize_wrapper
    assert read.topic_config_table["TBW102"].perm == 7
    assert read.data_version.timestamp > 0


def test_a_registration_without_a_body_has_no_topics() -> None:
    assert read_register_body(None, compressed=False) == RegisterBrokerBody()


def test_broken_compressed_registrations_are_refused() -> None:
    bomb = zlib.compress(bytes(65 << 20), 1)
    whole = zlib.compress((2).to_bytes(4, "big") + b"{}" + (1).to_bytes(4, "big"))
    negative = zlib.compress((-1).to_bytes(4, "big", signed=True))
    for body in (bomb, whole, negative, whole[:-5], b"\x00", zlib.compress(b"")):
        with pytest.raises(BodyError):
            read_register_body(body, compressed=True)


def test_the_next_data_version_is_greater() -> None:
    first = DataVersion(state_version=0, timestamp=900, counter=7)
    second = first.next_version(now_ms=100, state_version=0)
    third = DataVersion(state_version=1, timestamp=0, counter=0)
    assert first.order < second.order < third.order
