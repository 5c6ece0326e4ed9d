"""User errors of every command: one line with what, where and a hint, exit 1, no traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import mqadmin.admin
from mqadmin import commands
from mqadmin.cli import COMMANDS, admin
from mqadmin.command import AdminCommand
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

ROOT = Path(__file__).parents[3]
NOBODY = "127.0.0.1:9"  # the discard port: nothing listens there
OFFSET_ID = "7F00000100005E9C0000000000000340"
USES = [
    "updateTopic -c C -t T -n ADDRESS",
    "updateTopic -b ADDRESS -t T",
    "deleteTopic -c C -t T -n ADDRESS",
    "updateSubGroup -c C -g G -n ADDRESS",
    "updateSubGroup -b ADDRESS -g G",
    "deleteSubGroup -c C -g G -n ADDRESS",
    "topicRoute -t T -n ADDRESS",
    "topicStatus -t T -c C -n ADDRESS",
    "topicList -n ADDRESS",
    "clusterList -c C -n ADDRESS",
    "brokerStatus -b ADDRESS",
    "brokerStatus -c C -n ADDRESS",
    "getBrokerConfig -b ADDRESS",
    "getBrokerConfig -c C -n ADDRESS",
    "updateBrokerConfig -b ADDRESS -k key -v value",
    "updateBrokerConfig -c C -k key -v value -n ADDRESS",
    f"queryMsgById -t T -i {OFFSET_ID} -c C -n ADDRESS",
    f"queryMsgById -t T -i {OFFSET_ID} -s true -n ADDRESS",
    f"queryMsgById -t T -i {OFFSET_ID} -g G -d client -n ADDRESS",
    "queryMsgByKey -t T -k key -c C -n ADDRESS",
    "queryMsgByOffset -t T -b broker-a -i 0 -o 0 -n ADDRESS",
    "sendMessage -t T -p body -n ADDRESS",
    "consumeMessage -t T -n ADDRESS",
    "consumerProgress -c C -n ADDRESS",
    "consumerProgress -g G -s true -n ADDRESS",
    "resetOffsetByTime -g G -t T -s now -n ADDRESS",
    "resetOffsetByTime -g G -t T -s now -b ADDRESS",
    "cleanExpiredCQ -b ADDRESS",
    "cleanExpiredCQ -c C -n ADDRESS",
    "deleteExpiredCommitLog -b ADDRESS",
    "deleteExpiredCommitLog -c C -n ADDRESS",
    "watch --once -c C -n ADDRESS",
    "haStatus -b ADDRESS",
    "haStatus -c C -n ADDRESS",
    "getBrokerEpoch -c C -n ADDRESS",
    "getSyncStateSet -a ADDRESS -b broker-a",
    "getSyncStateSet -a ADDRESS -c C -n ADDRESS",
    "getControllerMetaData -a ADDRESS",
    "getControllerConfig -a ADDRESS",
    "updateControllerConfig -a ADDRESS -k key -v value",
    "electMaster -a ADDRESS -b 1 -bn broker-a -c C",
    "leadershipTransfer -a ADDRESS -t n1",
    "addController -a ADDRESS -m n3-127.0.0.1:9878",
    "addController -a ADDRESS -m n3-127.0.0.1:9878 -d",
    "removeController -a ADDRESS -i n0",
    "cleanBrokerMetadata -a ADDRESS -b 1 -bn broker-a -c C",
    "resyncBroker -b ADDRESS",
    "updateTopicList -b ADDRESS -f CONFIGS",
    "updateTopicList -c C -f CONFIGS -n ADDRESS",
    "updateSubGroupList -b ADDRESS -f CONFIGS",
    "updateSubGroupList -c C -f CONFIGS -n ADDRESS",
    "updateTopicPerm -c C -t T -p 4 -n ADDRESS",
    "updateTopicPerm -b ADDRESS -t T -p 4 -n ADDRESS",
    "topicClusterList -t T -n ADDRESS",
    "allocateMQ -t T -i 10.0.0.1,10.0.0.2 -n ADDRESS",
    "updateOrderConf -t Orders -m put -v broker-a:4 -n ADDRESS",
    "updateOrderConf -t Orders -m get -n ADDRESS",
    "queryMsgByUniqueKey -t T -i key -c C -n ADDRESS",
    "queryMsgByUniqueKey -t T -i key -g G -d client -n ADDRESS",
    "queryMsgTraceById -i key -n ADDRESS",
    "printMsg -t T -n ADDRESS",
    "printMsgByQueue -t T -a broker-a -i 0 -n ADDRESS",
    "sendMsgStatus -b broker-a -n ADDRESS",
    "checkMsgSendRT -t T -n ADDRESS",
    "clusterRT -c C -n ADDRESS",
    "brokerConsumeStats -b ADDRESS -t 20",
    "producerConnection -g G -t T -n ADDRESS",
    "consumerConnection -g G -n ADDRESS",
    "consumerConnection -g G -b ADDRESS",
    "consumerStatus -g G -n ADDRESS",
    "consumerStatus -g G -b ADDRESS",
    "cloneGroupOffset -s G -d H -t T -n ADDRESS",
    "skipAccumulatedMessage -g G -t T -c C -n ADDRESS",
    "producer -b ADDRESS",
    "updateKvConfig -s space -k key -v value -n ADDRESS",
    "deleteKvConfig -s space -k key -n ADDRESS",
    "wipeWritePerm -b broker-a -n ADDRESS",
    "addWritePerm -b broker-a -n ADDRESS",
    "getNamesrvConfig -n ADDRESS",
    "updateNamesrvConfig -k key -v value -n ADDRESS",
    "startMonitoring -n ADDRESS",
    "statsAll -n ADDRESS",
    "statsAll -t T -n ADDRESS",
    "getConsumerConfig -g G -n ADDRESS",
    "queryCq -t T -q 0 -i 0 -n ADDRESS",
    "queryCq -t Orders -q 0 -i 0 -b ADDRESS",
    "exportMetadata -c C -n ADDRESS",
    "exportMetadata -b ADDRESS",
    "exportConfigs -c C -n ADDRESS",
    "exportMetrics -c C -n ADDRESS",
    "createUser -b ADDRESS -u u -p p",
    "createUser -c C -u u -p p -n ADDRESS",
    "updateUser -b ADDRESS -u u -s disable",
    "updateUser -c C -u u -s disable -n ADDRESS",
    "deleteUser -b ADDRESS -u u",
    "deleteUser -c C -u u -n ADDRESS",
    "getUser -b ADDRESS -u u",
    "getUser -c C -u u -n ADDRESS",
    "listUser -b ADDRESS",
    "listUser -c C -n ADDRESS",
    "copyUser -f ADDRESS -t ADDRESS",
    "copyUser -f ADDRESS -t ADDRESS -u u",
    "createAcl -b ADDRESS -s User:u -r Topic:T -a Pub -d Allow",
    "createAcl -c C -s User:u -r Topic:T -a Pub -d Allow -n ADDRESS",
    "updateAcl -b ADDRESS -s User:u -r Topic:T -a Pub -d Allow",
    "updateAcl -c C -s User:u -r Topic:T -a Pub -d Allow -n ADDRESS",
    "deleteAcl -b ADDRESS -s User:u",
    "deleteAcl -c C -s User:u -n ADDRESS",
    "getAcl -b ADDRESS -s User:u",
    "getAcl -c C -s User:u -n ADDRESS",
    "listAcl -b ADDRESS",
    "listAcl -c C -n ADDRESS",
    "copyAcl -f ADDRESS -t ADDRESS",
    "copyAcl -f ADDRESS -t ADDRESS -s User:u",
    "importPlainAcl -f PLAIN_ACL --apply -b ADDRESS",
    "importPlainAcl -f PLAIN_ACL --apply -c C -n ADDRESS",
    "compareAcl -b ADDRESS",
    "compareAcl -c C -n ADDRESS",
]
"""A valid line of each command, for each of its forms."""


FOLDER = Path(__file__).parent
FILES = {"CONFIGS": str(FOLDER / "configs.json"), "PLAIN_ACL": str(FOLDER / "plain_acl.yml")}


def run(line: str | list[str]) -> Result:
    words = line.split() if isinstance(line, str) else line
    words = [FILES.get(word, word) for word in words]
    return CliRunner(env={"NAMESRV_ADDR": ""}).invoke(admin, words, prog_name="mqadmin")


def complaint(result: Result) -> str:
    """The one line on stderr of a command that failed."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.fixture
def silent_address() -> Iterator[str]:
    """An address that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_every_command_has_a_test_line() -> None:
    assert {line.split()[0] for line in USES} == set(COMMANDS)


def test_every_command_is_in_the_table_by_its_place_and_name() -> None:
    modules = [import_module(f"mqadmin.commands.{each.name}") for each in iter_modules(commands.__path__)]
    found = {
        command.name: f"{module.__name__.rsplit('.', 1)[1]}.{name}"
        for module in modules
        for name, command in vars(module).items()
        if isinstance(command, AdminCommand)
    }
    assert found == {name: entry.place for name, entry in COMMANDS.items()}


@pytest.mark.parametrize("line", USES)
def test_an_address_that_refuses_connections_is_named(line: str) -> None:
    result = run(line.replace("ADDRESS", NOBODY).replace("-t 20", "-t 20000"))
    said = complaint(result)
    assert "127.0.0.1:9 (cannot connect: Connection refused); is it running, is the address right?" in said
    assert result.stdout == "" or line.startswith("resetOffsetByTime")


@pytest.mark.parametrize("line", USES)
def test_a_server_that_never_answers_is_not_waited_for_forever(
    line: str, silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqadmin.admin, "CALL_TIMEOUT_MS", 20)
    said = complaint(run(line.replace("ADDRESS", silent_address)))
    assert f"no answer from {silent_address} (" in said
    assert "20 ms" in said


def test_each_of_several_failed_servers_is_named_with_its_reason(
    silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqadmin.admin, "CALL_TIMEOUT_MS", 20)
    said = complaint(run(["topicList", "-n", f"{silent_address};{NOBODY}"]))
    assert f"no answer from any of {silent_address} (" in said
    assert f" 20 ms), {NOBODY} (cannot connect" in said


def test_a_server_of_another_protocol_is_reported_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "mqadmin", "topicList", "-n", address]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            _, said = process.communicate()
    assert process.returncode == 1
    assert said.count("\n") == 1
    assert f"no answer from {address} (" in said
    assert "cut by this end: frame of 1213486164 bytes" in said


@pytest.mark.parametrize("line", [line for line in USES if "-n ADDRESS" in line])
def test_a_text_that_is_no_address_is_named(line: str) -> None:
    said = complaint(run(line.replace("-n ADDRESS", "-n here").replace("ADDRESS", NOBODY)))
    assert "'here' is not HOST:PORT (the port is missing); several are separated by ;" in said


@pytest.mark.parametrize("line", [line for line in USES if "-c C" in line and "-n ADDRESS" in line])
def test_an_unknown_cluster_is_named_with_the_command_that_lists_them(
    line: str, server: ScriptedServer
) -> None:
    said = complaint(run(line.replace("ADDRESS", server.address).replace("-c C", "-c Elsewhere")))
    assert "Elsewhere" in said or line.startswith("watch")
    assert any(hint in said for hint in ("clusterList", "topicRoute"))


@pytest.mark.parametrize("line", [line for line in USES if " -t T" in line and "updateTopic" not in line])
def test_an_unknown_topic_is_named_with_what_to_do(line: str, server: ScriptedServer) -> None:
    server.says(RequestCode.GET_ROUTEINFO_BY_TOPIC, status=17, remark="no route for T See https://a.b/c")
    server.says(RequestCode.GET_TOPIC_CONFIG, status=17)
    server.says(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, status=17, remark="Topic T does not exist")
    said = complaint(run(line.replace("ADDRESS", server.address)))
    assert "https" not in said
    assert any(hint in said for hint in ("updateTopic", "topicList"))


@pytest.mark.parametrize("name", ["sendMessage -p body", "queryMsgByOffset -o 0"])
def test_a_broker_set_without_the_topic_is_named(name: str, server: ScriptedServer) -> None:
    said = complaint(run(f"{name} -t T -b elsewhere -i 0 -n {server.address}"))
    assert "broker set elsewhere has no topic T; topicRoute" in said


def without(line: str, option: str) -> list[str]:
    words = line.split()
    at = words.index(option)
    return words[:at] + words[at + 2 :]


def required_options() -> list[tuple[str, str]]:
    """(valid line, option that is required in it)."""
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for line in USES:
        name = line.split()[0]
        usage = run([name, "-h"]).stdout.partition("\n -")[0].split()
        if name not in seen:
            seen.add(name)
            found += [(line, word) for word in usage if word.startswith("-")]
    return found


@pytest.mark.parametrize(("line", "option"), required_options())
def test_a_required_option_is_asked_for_and_needs_a_text(line: str, option: str) -> None:
    line = line.replace("ADDRESS", NOBODY)
    result = run(without(line, option))
    assert complaint(result) == f"Missing required option: {option.removeprefix('-')}\n"
    assert result.stdout.startswith("usage: ")
    blank = run([*without(line, option), option, " "])
    assert blank.exit_code == 1
    may_be_blank = option in ("-v", "-p") and not line.startswith("updateTopicPerm")
    assert (blank.stderr == f"{option} is given without a text\n") != may_be_blank


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("wrong", [["--nope"], ["-z"], ["stray"]])
def test_an_option_that_a_command_does_not_take_is_named(name: str, wrong: list[str]) -> None:
    result = run([name, *wrong])
    assert wrong[0] in complaint(result)
    assert result.stdout.startswith(f"usage: mqadmin {name} ")


@pytest.mark.parametrize(
    "line",
    [
        "haStatus -b ADDRESS -i nan",
        "clusterList -n ADDRESS -i inf",
        "getBrokerEpoch -b broker-a -n ADDRESS -i 1e400",
        "getSyncStateSet -a ADDRESS -b broker-a -i 0",
        "updateSubGroup -b ADDRESS -g G -i 99999999999999999999999",
        "updateSubGroup -b ADDRESS -g G -r 99999999999",
        "sendMessage -t T -p x -b broker-a -i 99999999999 -n ADDRESS",
        "sendMessage -t T -p x -m maybe -n ADDRESS",
        "consumeMessage -t T -b broker-a -i 0 -o 99999999999999999999999 -n ADDRESS",
        "consumeMessage -t T -c 0 -n ADDRESS",
        "queryMsgByKey -t T -k key -b 99999999999999999999999 -n ADDRESS",
        "queryMsgByOffset -t T -b broker-a -i 0 -o -1 -n ADDRESS",
        "queryMsgByOffset -t T -b broker-a -i 0 -o 0 -f klingon -n ADDRESS",
        "queryMsgByOffset -t T -b broker-a -i 0 -o 0 -f rot13 -n ADDRESS",
        "queryMsgById -t T -i x -f idna -n ADDRESS",
        "consumerProgress -s true -n ADDRESS",
        "resetOffsetByTime -g G -t T -s now -q 99999999999 -n ADDRESS",
    ],
)
def test_a_wrong_value_is_refused_before_any_request(line: str, server: ScriptedServer) -> None:
    result = run(line.replace("ADDRESS", server.address))
    assert complaint(result)
    assert result.stdout.startswith("usage: ")
    assert server.asked == []


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_ends_a_repeated_command_between_two_lines(options: list[str], server: ScriptedServer) -> None:
    server.says(RequestCode.GET_BROKER_HA_STATUS, {"master": True, "masterCommitLogMaxOffset": 7})
    command = [sys.executable, "-m", "mqadmin", "haStatus", "-b", server.address, "-i", "0.01", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    begun = process.stdout.readline() + process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    rest, said = process.communicate()
    assert (process.returncode, said) == (130, b"")
    assert (begun + rest).endswith(b"\n")
