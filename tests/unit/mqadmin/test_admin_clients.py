"""Commands that reach connected consumers, and messages that are sent or consumed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqadmin.calls.givemessage import format_verdict
from mqclient.message import SYS_FLAG_COMPRESSED, decode_messages
from remoting.bodies.queues import ConsumeDirectlyResult
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

VECTORS = Path(__file__).parents[2] / "vectors"
REPLIES = json.loads((VECTORS / "config" / "replies.json").read_text())
RECORD = bytes.fromhex(REPLIES["queryMsgById"][0]["body_hex"])
RUNNING = (VECTORS / "broker" / "consumer-running-info.json").read_bytes()
"""The running info of a Java 5.3.3 push consumer of queues 0 to 3 of P1386."""
GROUP, CLIENT_ID = "G13865", "192.0.2.2@7#8"
OFFSET_ID = "7F00000100005E9C0000000000000340"
BY_ID = ("queryMsgById", "-t", "VecTopic", "-i", OFFSET_ID)
GIVEN = (*BY_ID, "-g", GROUP, "-d", CLIENT_ID)


def queue(queue_id: int) -> str:
    return f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"P1386"}}'


def has_a_consumer(server: ScriptedServer, *, running: bytes | None = RUNNING) -> None:
    """Group G13865 has offsets in queues 0 and 7 and one client; with `running` None it is silent."""
    row = {"brokerOffset": 9, "consumerOffset": 5, "pullOffset": 7, "lastTimestamp": 0}
    server.says(
        RequestCode.GET_CONSUME_STATS, {"consumeTps": 0.0, "offsetTable": {queue(0): row, queue(7): row}}
    )
    member = {"clientId": CLIENT_ID, "clientAddr": "192.0.2.2:9", "language": "JAVA", "version": 479}
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"connectionSet": [member]})
    if running is None:
        server.says(RequestCode.GET_CONSUMER_RUNNING_INFO, status=207, remark="consumer <G> <c> Timeout")
    else:
        server.says(RequestCode.GET_CONSUMER_RUNNING_INFO, running)


def consumes(server: ScriptedServer, result: str) -> None:
    """The consumer's result for each message."""
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, RECORD)
    verdict = {"autoCommit": True, "consumeResult": result, "order": False, "spentTimeMills": 3}
    server.says(RequestCode.CONSUME_MESSAGE_DIRECTLY, verdict)


def test_the_client_ip_of_each_queue_is_shown_as_upstream_does(server: ScriptedServer) -> None:
    has_a_consumer(server)
    result = server.run("consumerProgress", "-g", GROUP, "-s", "TRUE")
    assert result.exit_code == 0, result.stderr
    heading, first, second, *_ = result.stdout.splitlines()
    at = heading.index("#Client IP")
    assert (at, heading.index("#Diff"), heading.index("#LastTime")) == (150, 171, 212)
    assert first[at : at + 21] == f"{'192.0.2.2':<21}"
    assert second[at : at + 21] == f"{'N/A':<21}", "no consumer has queue 7"
    assert first.split()[-3:] == ["4", "2", "N/A"]
    report = json.loads(server.run("consumerProgress", "-g", GROUP, "-s", "true", "--json").stdout)
    assert [row["clientIp"] for row in report["queues"]] == ["192.0.2.2", None]


def test_a_consumer_that_does_not_answer_is_named_and_the_rest_is_shown(server: ScriptedServer) -> None:
    has_a_consumer(server, running=None)
    result = server.run("consumerProgress", "-g", GROUP, "-s", "true")
    assert result.exit_code == 0
    assert result.stderr.count("\n") == 1
    assert f"{CLIENT_ID} does not report its queues" in result.stderr
    assert "Consume Diff Total: 8" in result.stdout


def test_without_the_option_no_consumer_is_asked(server: ScriptedServer) -> None:
    has_a_consumer(server)
    for wanted in ((), ("-s", "false")):
        assert "Client IP" not in server.run("consumerProgress", "-g", GROUP, *wanted).stdout
    assert server.requests(RequestCode.GET_CONSUMER_RUNNING_INFO) == []


def test_a_message_is_consumed_directly_by_one_client(server: ScriptedServer) -> None:
    has_a_consumer(server)
    consumes(server, "CR_SUCCESS")
    result = server.run(*GIVEN)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS, remark=null, "
        "spentTimeMills=3]\n"
    )
    [request] = server.requests(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert request.ext == {
        "consumerGroup": GROUP,
        "clientId": CLIENT_ID,
        "msgId": OFFSET_ID,
        "brokerName": "broker-a",
        "topic": "VecTopic",
    }
    assert json.loads(server.run(*GIVEN, "--json").stdout)["results"][0]["consumeResult"] == "CR_SUCCESS"


def test_a_message_that_the_consumer_rejected_is_no_success(server: ScriptedServer) -> None:
    has_a_consumer(server)
    consumes(server, "CR_LATER")
    result = server.run(*GIVEN)
    assert result.exit_code == 1
    assert f"{CLIENT_ID} did not consume the message: CR_LATER" in result.stderr


def test_a_pull_consumer_cannot_consume_a_message_directly(server: ScriptedServer) -> None:
    has_a_consumer(server, running=RUNNING.replace(b"CONSUME_PASSIVELY", b"CONSUME_ACTIVELY"))
    consumes(server, "CR_SUCCESS")
    result = server.run(*GIVEN)
    assert result.exit_code == 1
    assert "is no push consumer" in result.stderr
    assert server.requests(RequestCode.CONSUME_MESSAGE_DIRECTLY) == []


def test_the_result_of_a_failed_consumer_keeps_its_remark() -> None:
    result = ConsumeDirectlyResult(order=True, consume_result="CR_THROW_EXCEPTION", remark="no disk")
    assert "order=true" in format_verdict(result) and "remark=no disk, " in format_verdict(result)


def sends(server: ScriptedServer, status: int = 0) -> None:
    ext = {"msgId": "7F0000010000277600000000000000FF", "queueId": "1", "queueOffset": "7"}
    server.says(RequestCode.SEND_MESSAGE_V2, ext=ext, status=status)


def test_a_message_is_sent_once_more_with_its_properties(server: ScriptedServer) -> None:
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, RECORD)
    sends(server)
    [message] = decode_messages(RECORD)
    result = server.run(*BY_ID, "-s", "true")
    assert result.exit_code == 0, result.stderr
    prepared, sent = result.stdout.splitlines()
    assert prepared == f"prepare resend msg. originalMsgId={message.message_id}"
    assert sent == (
        f"SendResult [sendStatus=SEND_OK, msgId={message.message_id}, offsetMsgId=7F0000010000277600000000000000FF, "
        "messageQueue=MessageQueue [topic=VecTopic, brokerName=broker-a, queueId=1], queueOffset=7, recallHandle=null]"
    )
    [request] = server.requests(RequestCode.SEND_MESSAGE_V2)
    assert (bytes(request.body or b""), request.ext["a"]) == (b"with keys", "ReSendMsgById")
    assert "colour\x01blue\x02" in request.ext["i"]


def test_a_compressed_message_stays_compressed_when_it_is_sent_once_more(server: ScriptedServer) -> None:
    flagged = bytearray(RECORD)
    flagged[39] |= SYS_FLAG_COMPRESSED
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, bytes(flagged))
    sends(server)
    assert server.run(*BY_ID, "-s", "true").exit_code == 0
    [request] = server.requests(RequestCode.SEND_MESSAGE_V2)
    assert request.ext["f"] == str(SYS_FLAG_COMPRESSED)


def test_a_resent_message_without_safe_storage_is_no_success(server: ScriptedServer) -> None:
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, RECORD)
    sends(server, status=12)
    result = server.run(*BY_ID, "-s", "true")
    assert (result.exit_code, "not safe" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    "options",
    [
        ("-g", GROUP),
        ("-d", CLIENT_ID),
        ("-g", GROUP, "-d", CLIENT_ID, "-s", "true"),
        ("-s", "maybe"),
    ],
)
def test_contradicting_options_send_nothing(server: ScriptedServer, options: Any) -> None:
    result = server.run(*BY_ID, *options)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert server.asked == []


def test_options_without_effect_are_reported(server: ScriptedServer) -> None:
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, RECORD)
    sends(server)
    assert "-u changes nothing" in server.run(*BY_ID, "-s", "true", "-u", "unit1").stderr
    traced = server.run("sendMessage", "-t", "T", "-p", "hi", "-m", "true")
    assert (traced.exit_code, "sends no trace" in traced.stderr) == (0, True)
    assert server.run("sendMessage", "-t", "T", "-p", "hi", "-m", "false").stderr == ""
