"""Typed headers: as strict as Java about numbers, and true to captured requests."""

from __future__ import annotations

import pytest

from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.frame import FrameReader
from remoting.header import Header
from remoting.headers import admin, controller, group, messages, nameserver, offsets, pull, send
from tests.unit.remoting.goldenframes import golden_frames

REQUESTS: dict[int, type[Header]] = {
    11: pull.PullMessageHeader, 361: pull.PullMessageHeader, 12: messages.QueryMessageHeader,
    14: offsets.QueryConsumerOffsetHeader, 15: offsets.UpdateConsumerOffsetHeader,
    29: offsets.SearchOffsetHeader, 30: offsets.GetMaxOffsetHeader, 31: offsets.QueueHeader,
    32: offsets.QueueHeader, 33: messages.ViewMessageHeader, 35: admin.UnregisterClientHeader,
    36: messages.ConsumerSendMsgBackHeader, 17: admin.CreateTopicHeader, 202: admin.TopicHeader,
    208: admin.GetConsumeStatsHeader, 207: admin.DeleteSubscriptionGroupHeader, 222: offsets.ResetOffsetHeader,
    351: admin.TopicHeader, 100: nameserver.PutKVConfigHeader,
    101: nameserver.KVConfigHeader, 103: nameserver.RegisterBrokerHeader, 104: nameserver.UnregisterBrokerHeader,
    105: nameserver.GetRouteInfoHeader, 322: nameserver.UnregisterBrokerHeader,
    901: nameserver.BrokerMemberGroupHeader, 904: controller.BrokerHeartbeatHeader,
    1001: controller.AlterSyncStateSetHeader, 1002: controller.ElectMasterHeader,
    1003: controller.RegisterBrokerToControllerHeader, 1004: controller.GetReplicaInfoHeader,
    1008: controller.NotifyBrokerRoleChangedHeader, 1011: controller.CleanBrokerDataHeader,
    1012: controller.GetNextBrokerIdHeader, 1013: controller.ApplyBrokerIdHeader,
}  # fmt: skip
RESPONSES: dict[int, type[Header]] = {
    10: send.SendMessageResponseHeader, 310: send.SendMessageResponseHeader, 11: pull.PullMessageResponseHeader,
    12: messages.QueryMessageResponseHeader, 14: offsets.OffsetResponseHeader, 30: offsets.OffsetResponseHeader,
    26: admin.GetBrokerConfigResponseHeader,
    103: nameserver.RegisterBrokerResponseHeader, 205: nameserver.WipeWritePermResponseHeader,
    322: nameserver.QueryDataVersionResponseHeader, 327: nameserver.AddWritePermResponseHeader,
    906: group.ExchangeHAInfoHeader, 1001: controller.AlterSyncStateSetResponseHeader,
    1002: controller.ElectMasterResponseHeader, 1003: controller.RegisterBrokerToControllerResponseHeader,
    1004: controller.GetReplicaInfoResponseHeader, 1005: controller.GetMetadataResponseHeader,
    1012: controller.GetNextBrokerIdResponseHeader, 1013: controller.ApplyBrokerIdResponseHeader,
}  # fmt: skip


def test_captured_headers_are_read_and_written_back_with_the_same_texts() -> None:
    seen: set[type[Header]] = set()
    for golden in golden_frames():
        kinds = REQUESTS if golden.is_request else RESPONSES
        kind = kinds.get(golden.request_code)
        (command,) = FrameReader().receive(golden.data)
        if kind is None or not command.ext:
            continue
        try:
            ext = kind.from_ext(command.ext).to_ext()
        except HeaderError as error:  # some captured requests were made to provoke errors
            assert error.value is None and (golden.is_request or command.code != 0)
            continue
        seen.add(kind)
        assert {name: ext[name] for name in ext if name in command.ext} == {
            name: value for name, value in command.ext.items() if name in ext
        }
        assert set(command.ext) - set(ext) <= {"ReqT", "bname", "lo", "nsd", "ns", "oway", "Signature"}
    assert seen == {*REQUESTS.values(), *RESPONSES.values()}


def test_send_headers_are_read_by_the_names_their_code_uses() -> None:
    read = 0
    for golden in golden_frames():
        if golden.is_request and golden.request_code in (10, 310, 320, 325):
            (command,) = FrameReader().receive(golden.data)
            try:
                header = send.SendMessageHeader.of(command)
            except HeaderError as error:
                assert error.value is None
                continue
            ext = header.to_ext() if command.code == 10 else header.to_short_ext()
            assert ext == {name: value for name, value in command.ext.items() if name in ext}
            read += 1
    assert read > 20


def test_a_missing_field_is_named_with_its_wire_name() -> None:
    with pytest.raises(HeaderError, match="header field brokerName is absent") as raised:
        controller.GetReplicaInfoHeader.from_ext({})
    assert raised.value.field == "brokerName"


BAD_INTEGERS = ["", " 1", "1 ", "1_0", "1e9", "0x1", "١", "--1", "+", "1.0", "true", "9" * 5000]


@pytest.mark.parametrize("text", [*BAD_INTEGERS, "2147483648", "-2147483649"])
def test_text_that_is_no_32_bit_integer_for_java_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="header field queueId"):
        offsets.QueueHeader.from_ext({"topic": "T", "queueId": text})


@pytest.mark.parametrize("text", [*BAD_INTEGERS, "9223372036854775808", "-9223372036854775809"])
def test_text_that_is_no_64_bit_integer_for_java_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="header field offset"):
        messages.ViewMessageHeader.from_ext({"offset": text})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_integers_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert messages.ViewMessageHeader.from_ext({"offset": text}).offset == value


def test_booleans_are_words_or_the_digits_of_old_clients() -> None:
    def batch(text: str) -> bool | None:
        command = RemotingCommand(RequestCode.SEND_MESSAGE, ext=OLD_CLIENT_SEND | {"batch": text})
        return send.SendMessageHeader.of(command).batch

    assert [batch(text) for text in ("true", "1", "false", "0")] == [True, True, False, False]
    with pytest.raises(HeaderError, match="batch"):
        batch("yes")


OLD_CLIENT_SEND = {
    "producerGroup": "PG",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "unitMode": "0",
}
