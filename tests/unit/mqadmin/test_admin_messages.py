"""The commands on single messages, against upstream's output and against a server that answers as scripted."""

from __future__ import annotations

import json
import re
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqadmin import bodyfiles, showmessage
from mqadmin.bodyfiles import save_body
from mqadmin.calls import messages
from mqadmin.calls.tracks import NOT_ONLINE, Track
from mqadmin.commands import consume_message, query_by_key
from mqadmin.errors import AdminError
from mqclient.message import StoredMessage, decode_messages
from mqclient.route import MessageQueue
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

VECTORS = Path(__file__).parents[2] / "vectors" / "config"
REPLIES = json.loads((VECTORS / "replies.json").read_text())
RECORD = bytes.fromhex(REPLIES["queryMsgById"][0]["body_hex"])
OFFSET_ID = "7F00000100005E9C0000000000000340"
UNIQUE_ID = "FD0000000000000000000000000000021C444E0E2F2A69389F900003"
PULLED = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0"}


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
    """Where bodies go instead of upstream's place."""
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
    printed = query_by_key.HEADING + query_by_key.format_row(stored("queryMsgByKey"))
    assert printed == upstream_printed("queryMsgByKey")


def test_a_consumed_message_reads_as_upstreams() -> None:
    expected = upstream_printed("printMsg").splitlines()
    end = consume_message.format_end(MessageQueue("VecTopic", "broker-a", 3), 3)
    assert end.startswith(
        expected[0].partition(", MessageQueue ")[2].join(("MessageQueue ", " print msg finished."))
    )
    printed = messages.format_line("broker-a", stored("queryMsgById"), "NOT PRINT BODY")
    assert in_any_order(printed.rstrip("\n")) == in_any_order(expected[1])


@pytest.mark.parametrize("text", ["", "7F", "xyz", OFFSET_ID[:-1], OFFSET_ID.replace("00000000", "F0000000")])
def test_what_is_no_offset_id_names_no_place(text: str) -> None:
    assert messages.offset_in(text) is None
    assert messages.offset_in(OFFSET_ID) == 832


def test_a_body_is_kept_under_a_plain_name_only(tmp_path: Path) -> None:
    assert save_body("../../evil", OFFSET_ID, b"x", tmp_path) == tmp_path / OFFSET_ID
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AdminError, match="cannot be written"):
        save_body("link", OFFSET_ID, b"x", tmp_path)
    assert str(bodyfiles.FOLDER) in upstream_printed("queryMsgById")


def test_a_message_is_found_by_its_place(server: ScriptedServer, folder: Path) -> None:
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
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert told["messages"][0]["body"] == "with keys"
    assert "does not serve that request" in told["notes"][0]  # the groups of the topic
    [request] = server.requests(RequestCode.QUERY_MESSAGE)
    assert request.ext["_UNIQUE_KEY_QUERY"] == "true"


def test_a_message_that_no_index_has_is_not_found(server: ScriptedServer) -> None:
    server.says(
        RequestCode.QUERY_MESSAGE, status=22, remark="can not find message, maybe time range not correct"
    )
    result = server.run("queryMsgById", "-t", "VecTopic", "-i", "nonsense")
    assert result.exit_code == 1
    assert "no message with id nonsense" in result.stderr


def test_messages_are_found_by_key_and_strangers_are_left_out(server: ScriptedServer) -> None:
    server.says(RequestCode.QUERY_MESSAGE, RECORD)
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck2", "-m", "5").stdout.count("\n") == 2
    [request] = server.requests(RequestCode.QUERY_MESSAGE)
    assert request.ext["maxNum"] == "5"
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck").exit_code == 1
    assert server.run("queryMsgByKey", "-t", "VecTopic", "-k", "Veck1", "-m", "0").exit_code == 1


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


def sent_as(server: ScriptedServer, status: int) -> None:
    ext = {"msgId": OFFSET_ID, "queueId": "1", "queueOffset": "7"}
    server.says(RequestCode.SEND_MESSAGE_V2, ext=ext, status=status)


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


def test_a_message_that_may_be_lost_is_no_success(server: ScriptedServer) -> None:
    sent_as(server, 12)
    result = server.run("sendMessage", "-t", "T", "-p", "hi", "--json")
    told: Any = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["status"] == "FLUSH_SLAVE_TIMEOUT"
    assert "not safe" in told["error"]


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
    told = json.loads(server.run(*options, "--json").stdout)
    assert told["messages"][0]["offsetMsgId"] == OFFSET_ID
    assert server.run("consumeMessage", "-t", "VecTopic", "-o", "3").exit_code == 1
    assert server.run("consumeMessage", "-t", "VecTopic", "-b", "broker-x").exit_code == 1
