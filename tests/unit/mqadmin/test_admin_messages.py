"""The commands on single messages, against upstream's output and against a scripted server."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqadmin import bodyfiles
from mqadmin.bodyfiles import save_body
from mqadmin.calls import messages, showmessage
from mqadmin.calls.tracks import NOT_ONLINE, Track
from mqadmin.commands import messages as message_commands
from mqadmin.errors import AdminError
from mqclient.message import StoredMessage, decode_messages
from mqclient.route import MessageQueue
from remoting.codes import RequestCode
from tests.unit.mqadmin.messageanswers import (
    OFFSET_ID,
    PULLED,
    RECORD,
    REPLIES,
    VECTORS,
    sent_as,
    two_queues,
)

if TYPE_CHECKING:
    from remoting.command import RemotingCommand
    from tests.unit.mqadmin.conftest import ScriptedServer

UNIQUE_ID = "FD0000000000000000000000000000021C444E0E2F2A69389F900003"


def stored(name: str) -> StoredMessage:
    [message] = decode_messages(bytes.fromhex(REPLIES[name][0]["body_hex"]))
    return message


def upstream_printed(name: str) -> str:
    return (VECTORS / f"{name}.stdout").read_text()


def in_any_order(line: str) -> str:
    """A line whose properties, which Java prints in the order of its hash table, are sorted; those that a client adds
    to what it pulled are left out."""
    inside = re.search(r"\{(MSG_REGION.*?|UNIQ_KEY.*?)\}", line)
    if inside is None:
        return line
    kept = [part for part in inside[1].split(", ") if not re.match("(MIN|MAX)_OFFSET=", part)]
    return line.replace(inside[1], ", ".join(sorted(kept)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of bodies, instead of upstream's."""
    monkeypatch.setattr(showmessage, "save_body", partial(save_body, folder=tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["queryMsgById", "queryMsgByOffset"])
def test_a_message_reads_as_upstreams(name: str) -> None:
    printed = messages.format_message(stored(name), UTC).splitlines()
    expected = upstream_printed(name).splitlines()[: len(printed)]
    assert [in_any_order(line) for line in printed] == [in_any_order(line) for line in expected]


def test_a_track_reads_as_upstreams() -> None:
    track = Track("Vec_CG", "NOT_ONLINE", NOT_ONLINE.format("Vec_CG"))
    assert f"{track}\n" in upstream_printed("queryMsgById")


def test_messages_of_a_key_read_as_upstreams() -> None:
    printed = message_commands.KEY_HEADING + message_commands.format_index_row(stored("queryMsgByKey"))
    assert printed == upstream_printed("queryMsgByKey")


def test_a_consumed_message_reads_as_upstreams() -> None:
    expected = upstream_printed("printMsg").splitlines()
    end = message_commands.format_end(MessageQueue("VecTopic", "broker-a", 3), 3)
    assert end.startswith(
        expected[0].partition(", MessageQueue ")[2].join(("MessageQueue ", " print msg finished."))
    )
    printed = messages.format_line("broker-a", stored("queryMsgById"), "NOT PRINT BODY")
    assert in_any_order(printed.rstrip("\n")) == in_any_order(expected[1])


@pytest.mark.parametrize("text", ["", "7F", "xyz", OFFSET_ID[:-1], OFFSET_ID.replace("00000000", "F0000000")])
def test_text_that_is_no_offset_message_id_gives_no_offset(text: str) -> None:
    assert messages.offset_in(text) is None
    assert messages.offset_in(OFFSET_ID) == 832


def test_a_body_is_stored_under_a_plain_file_name_only(tmp_path: Path) -> None:
    assert save_body("../../evil", OFFSET_ID, b"x", tmp_path) == tmp_path / OFFSET_ID
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AdminError, match="cannot be written"):
        save_body("link", OFFSET_ID, b"x", tmp_path)
    assert str(bodyfiles.FOLDER) in upstream_printed("queryMsgById")


def test_a_message_is_found_by_its_offset_message_id(server: ScriptedServer, folder: Path) -> None:
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, RECORD)
    server.says(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"groupList": ["G"]})
    server.says(RequestCode.GET_CONSUMER_CONNECTION_LIST, status=206)
    result = server.run("queryMsgById", "-t", "VecTopic", "-i", OFFSET_ID.lower())
    assert result.exit_code == 0, result.stderr
    assert f"OffsetID:            {OFFSET_ID}\n" in result.stdout
    assert "MessageTrack [consumerGroup=G, trackType=NOT_ONLINE" in result.stdout
    assert (folder / UNIQUE_ID).read_bytes() == b"with keys"
    [request] = server.requests(RequestCode.VIEW_MESSAGE_BY_ID)
    assert request.ext["offset"] == "832"


def test_a_message_is_found_by_its_producers_id(server: ScriptedServer) -> None:
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, status=1, remark="can not find message")
    server.says(RequestCode.QUERY_MESSAGE, RECORD)
    result = server.run("queryMsgById", "-t", "VecTopic", "-i", UNIQUE_ID, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["messages"][0]["body"] == "with keys"
    assert "does not serve that request" in report["notes"][0]  # the groups of the topic
    [request] = server.requests(RequestCode.QUERY_MESSAGE)
    assert request.ext["_UNIQUE_KEY_QUERY"] == "true"


def test_a_message_that_no_index_has_is_not_found(server: ScriptedServer) -> None:
    server.says(
        RequestCode.QUERY_MESSAGE, status=22, remark="can not find message, maybe time range not correct"
    )
    result = server.run("queryMsgById", "-t", "VecTopic", "-i", "nonsense")
    assert result.exit_code == 1
    assert "no message with id nonsense" in result.stderr


def test_messages_are_found_by_key_and_other_keys_are_left_out(server: ScriptedServer) -> None:
    server.says(RequestCode.QUERY_MESSAGE, RECORD)
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck2", "-m", "5").stdout.count("\n") == 2
    [request] = server.requests(RequestCode.QUERY_MESSAGE)
    assert request.ext["maxNum"] == "5"
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck").exit_code == 1
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck1", "-m", "0").exit_code == 1


def test_newer_brokers_are_queried_by_tag_and_for_the_next_page(server: ScriptedServer) -> None:
    server.says(RequestCode.QUERY_MESSAGE, RECORD)
    tag = stored("queryMsgByKey").properties["TAGS"]
    by_tag = ("queryMsgByKey", "-t", "VecTopic", "-k", tag, "-p", "T")
    assert server.run(*by_tag, "-l", "1700000000000@x").stdout.count("\n") == 2
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "other", "-p", "T").exit_code == 1
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck2", "-p", "K").exit_code == 0
    asked = [(each.ext.get("indexType"), each.ext.get("lastKey")) for each in server.requests(12)]
    assert asked == [("T", "1700000000000@x"), ("T", None), (None, None)]
    wrong = server.run("queryMsgByKey", "-t", "VecTopic", "-k", tag, "-p", "U")
    assert wrong.exit_code != 0 and "K for words of the keys, T for tags" in wrong.stderr


@pytest.mark.parametrize("found", [True, False])
def test_a_brokers_remark_on_missing_index_entries_is_shown(server: ScriptedServer, *, found: bool) -> None:
    tag, why = stored("queryMsgByKey").properties["TAGS"], "messages stored up to 7 (ms) may be missing here"
    if found:
        server.says(RequestCode.QUERY_MESSAGE, RECORD, remark=why)
    else:
        plain = "can not find message, maybe time range not correct"
        server.says(RequestCode.QUERY_MESSAGE, status=22, remark=f"{plain}; {why}")
    result = server.run("queryMsgByKey", "-t", "VecTopic", "-k", tag, "-p", "T")
    assert result.exit_code == (0 if found else 1)
    assert f": {why}\n" in result.stderr and "maybe time range" not in result.stderr


def test_a_broker_without_an_index_says_so_in_one_line(server: ScriptedServer) -> None:
    result = server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck1")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "QUERY_MESSAGE" in result.stderr


def test_a_message_is_found_by_its_queue_offset(server: ScriptedServer, folder: Path) -> None:
    server.says(RequestCode.PULL_MESSAGE, RECORD, ext=PULLED)
    options = ("queryMsgByOffset", "-t", "VecTopic", "-b", "broker-a", "-i", "1")
    shown = server.run(*options, "-o", "0", "-f", "UTF-8")
    assert shown.exit_code == 0
    assert "Message Body:        with keys\n" in shown.stdout
    missing = server.run(*options, "-o", "5")
    assert missing.exit_code == 1
    assert "which holds [0, 1)" in missing.stderr
    assert server.run(*options, "-o", "0", "-f", "klingon").exit_code == 1


def test_a_message_is_sent_to_the_queue_that_is_named(server: ScriptedServer) -> None:
    sent_as(server, 0)
    options = ("sendMessage", "-t", "T", "-p", "hi", "-k", "k", "-c", "tag")
    result = server.run(*options, "-b", "broker-a", "-i", "1")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^broker-a +1 +SEND_OK +[0-9A-F]{32}$", result.stdout, re.MULTILINE)
    [request] = server.requests(RequestCode.SEND_MESSAGE_V2)
    assert (request.ext["e"], bytes(request.body or b"")) == ("1", b"hi")
    assert server.run(*options, "-i", "1").exit_code == 1
    assert server.run(*options, "-b", "broker-b").exit_code == 1


def test_a_sent_message_without_safe_storage_is_no_success(server: ScriptedServer) -> None:
    sent_as(server, 12)
    result = server.run("sendMessage", "-t", "T", "-p", "hi", "--json")
    report: Any = json.loads(result.stdout)
    assert result.exit_code == 1
    assert report["status"] == "FLUSH_SLAVE_TIMEOUT"
    assert "not safe" in report["error"]


def test_messages_of_a_span_of_time_are_read(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_MIN_OFFSET, ext={"offset": "0"})
    server.says(RequestCode.GET_MAX_OFFSET, ext={"offset": "1"})
    server.says(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext={"offset": "0"})
    server.says(RequestCode.PULL_MESSAGE, RECORD, ext=PULLED)
    options = ("consumeMessage", "-t", "VecTopic", "-b", "broker-a", "-i", "1")
    shown = server.run(*options, "-s", "1795256518544")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "Consume ok"
    assert lines[1].endswith("BODY: with keys")
    assert lines[2].endswith("print msg finished. status=NO_NEW_MSG, offset=1")
    assert len(lines) == 3
    assert server.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)[0].ext["timestamp"] == "1795256518544"
    report = json.loads(server.run(*options, "--json").stdout)
    assert report["messages"][0]["offsetMsgId"] == OFFSET_ID
    assert server.run("consumeMessage", "-t", "VecTopic", "-o", "3").exit_code == 1
    assert server.run("consumeMessage", "-t", "VecTopic", "-b", "broker-x").exit_code == 1


def test_a_topic_is_printed_queue_by_queue(server: ScriptedServer) -> None:
    two_queues(server)
    shown = server.run("printMsg", "-t", "T", "-s", "*").stdout
    assert shown.startswith(
        "minOffset=0, maxOffset=1, MessageQueue [topic=T, brokerName=broker-a, queueId=0]\n"
    )
    assert shown.count(f"MSGID: {UNIQUE_ID} MessageExt [brokerName=broker-a, ") == 1
    assert shown.count("-" * 56 + "\n") == 2
    hidden = server.run("printMsg", "-t", "T", "-d", "false").stdout
    assert hidden.splitlines()[1].endswith(" BODY: NOT PRINT BODY")
    [report] = json.loads(server.run("printMsg", "-t", "T", "--json").stdout)["messages"]
    assert report["msgId"] == UNIQUE_ID


def test_printing_continues_after_no_match_and_stops_at_the_end(server: ScriptedServer) -> None:
    two_queues(server)
    server.says(RequestCode.PULL_MESSAGE, status=20, ext=PULLED)
    line = "MessageQueue [topic=T, brokerName=broker-a, queueId=0] "
    assert (
        f"{line}no matched msg. status=NO_MATCHED_MSG, offset=1\n" in server.run("printMsg", "-t", "T").stdout
    )
    server.says(RequestCode.PULL_MESSAGE, status=19, ext=PULLED)
    assert (
        f"{line}print msg finished. status=NO_NEW_MSG, offset=1\n" in server.run("printMsg", "-t", "T").stdout
    )


def test_print_msg_by_queue_prints_messages_or_counts_tags(server: ScriptedServer) -> None:
    two_queues(server)
    of_queue = ("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0")
    assert server.run(*of_queue).stdout == ""
    shown = server.run(*of_queue, "-p", "true").stdout
    assert shown.startswith("MSGID: ") and shown.endswith(" BODY: NOT PRINT BODY\n")
    tag = stored("queryMsgById").properties["TAGS"]
    assert server.run(*of_queue, "-f", "true").stdout == f"Tag: {tag:<30} Count: 1\n"
    elsewhere = server.run("printMsgByQueue", "-t", "T", "-a", "broker-z", "-i", "0")
    assert "broker set broker-z has no topic T; topicRoute" in elsewhere.stderr
    beyond = server.run("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "77")
    assert (beyond.exit_code, beyond.stdout) == (1, "")
    assert "topic T has no queue 77 on broker-a; topicStatus shows which it has" in beyond.stderr


def test_a_character_set_that_is_not_known_is_named_with_its_option(server: ScriptedServer) -> None:
    two_queues(server)
    asked = {
        "-c": (["printMsg", "-t", "T"], ["printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0"]),
        "-f": (["queryMsgById", "-t", "T", "-i", "0"],),
    }
    for option, commands in asked.items():
        for command in commands:
            said = server.run(*command, option, "utf-99")
            assert said.exit_code == 1
            assert f"{option} utf-99: no known character set" in said.output


def test_a_body_without_its_decompressor_is_reported_once_with_the_package(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_queues(server)
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    flagged = RECORD[:36] + (0x101).to_bytes(4, "big") + RECORD[40:]
    server.says(RequestCode.PULL_MESSAGE, flagged + flagged, ext=PULLED)
    shown = server.run("printMsg", "-t", "T")
    assert shown.exit_code == 0
    assert (
        shown.stderr == "a body is compressed with LZ4 and shown as it is stored; pip install lz4 opens it\n"
    )


def test_a_message_is_found_by_the_id_of_its_producer_alone(server: ScriptedServer, folder: Path) -> None:
    found = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    server.says(RequestCode.QUERY_MESSAGE, RECORD + RECORD, ext=found)
    server.says(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"groupList": []})
    topic = stored("queryMsgById").topic
    by_id = ("queryMsgByUniqueKey", "-t", topic, "-i", UNIQUE_ID)
    assert server.run(*by_id).stdout.count("Queue Offset:") == 1
    assert server.run(*by_id, "-a").stdout.count("Queue Offset:") == 2
    assert (folder / UNIQUE_ID).exists()
    [asked, _] = server.requests(RequestCode.QUERY_MESSAGE)
    assert asked.ext["_UNIQUE_KEY_QUERY"] == "true"
    assert (asked.ext["beginTimestamp"], asked.ext["endTimestamp"]) == ("0", str((1 << 63) - 1))
    assert server.run(*by_id, "-s", "5", "-e", "9").exit_code == 0
    asked = server.requests(RequestCode.QUERY_MESSAGE)[-1]
    assert (asked.ext["beginTimestamp"], asked.ext["endTimestamp"]) == ("5", "9")
    server.says(RequestCode.QUERY_MESSAGE, status=22)
    assert f"with the id {UNIQUE_ID} was found" in server.run(*by_id).stderr


def sends(server: ScriptedServer, *, failing: int = 0) -> None:
    """Answers sends with success, but for the first ones."""
    left = [failing]

    def answer(asked: RemotingCommand) -> RemotingCommand:
        if left[0]:
            left[0] -= 1
            return asked.reply(1, "disk full")
        return asked.reply(0, None, {"msgId": OFFSET_ID, "queueId": asked.ext["e"], "queueOffset": "7"})

    server.answers[RequestCode.SEND_MESSAGE_V2] = answer


def test_sends_to_the_queues_of_a_topic_are_timed(server: ScriptedServer) -> None:
    sends(server)
    lines = server.run("checkMsgSendRT", "-t", "T", "-a", "3", "-s", "16").stdout.splitlines()
    assert lines[0].split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#RT"]
    assert [line.split()[2] for line in lines[1:4]] == ["true"] * 3
    assert lines[4].startswith("Avg RT: ")
    assert {len(request.body or b"") for request in server.requests(RequestCode.SEND_MESSAGE_V2)} == {16}
    sends(server, failing=2)
    failed = server.run("checkMsgSendRT", "-t", "T", "-a", "3")
    assert failed.exit_code == 1
    assert failed.stdout.splitlines()[1].split()[:3] == ["-", "-", "false"]
    assert "2 of 3 sends failed" in failed.stderr


def test_sends_to_a_broker_set_are_timed(server: ScriptedServer) -> None:
    sends(server)
    lines = server.run("sendMsgStatus", "-b", "broker-a", "-c", "2", "-s", "20").stdout.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, .*\]", lines[0])
    warm, *timed = server.requests(RequestCode.SEND_MESSAGE_V2)
    assert warm.body == b"hello jodie"
    assert [request.body for request in timed] == [b"hello jodiehello jodie"] * 2


def test_sends_to_every_broker_set_are_timed_in_a_round(server: ScriptedServer) -> None:
    sends(server, failing=1)
    shown = server.run("clusterRT", "-a", "3", "--once")
    assert shown.exit_code == 0
    heading, row = shown.stdout.splitlines()
    assert heading.split()[-2:] == ["#successCount", "#failCount"]
    assert row.split()[:2] + row.split()[3:] == ["C", "broker-a", "2", "1"]
    logged = server.run("clusterRT", "-a", "2", "-p", "true", "-m", "room", "--once").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\|room\|C\|broker-a\|\d+\n", logged)
