"""How the admin tool takes its arguments and how it fails, against upstream's usage texts."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqadmin.cli import COMMANDS, admin

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "tests" / "vectors" / "config"
NOBODY = "127.0.0.1:9"  # the discard port: nothing listens there


def mqadmin(*args: str) -> Result:
    return CliRunner(env={"NAMESRV_ADDR": ""}).invoke(admin, args, prog_name="mqadmin")


@pytest.mark.parametrize(
    "arguments",
    [
        ["getControllerMetaData"],
        ["electMaster", "-b", "2", "-a", NOBODY],
        ["updateControllerConfig", "-a", NOBODY, "-k", "x"],
    ],
)
def test_missing_options_are_named_with_upstreams_usage(arguments: list[str]) -> None:
    result = mqadmin(*arguments)
    assert result.exit_code == 1
    assert result.stdout == (VECTORS / f"{arguments[0]}-noopt.stdout").read_text()
    assert result.stderr == (VECTORS / f"{arguments[0]}-noopt.stderr").read_text()


def test_neither_broker_nor_cluster_shows_the_usage_and_fails() -> None:
    result = mqadmin("getSyncStateSet", "-a", NOBODY)
    assert result.exit_code == 1
    assert result.stdout == (VECTORS / "getSyncStateSet-noopt.stdout").read_text()


def test_an_unknown_command_is_named_and_fails() -> None:
    result = mqadmin("nosuchcommand")
    assert result.exit_code == 1
    assert result.stdout == (VECTORS / "nosuchcommand.stdout").read_text()
    assert result.stderr == "mqadmin: there is no command nosuchcommand; mqadmin alone lists the commands\n"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("updatetopc", "there is no command updatetopc; did you mean updateTopic"),
        ("SETCONSUMEMODE", "upstream's setConsumeMode is not built yet: there is no POP consumption yet"),
        ("addBroker", "upstream's addBroker has nothing to do here: brokers run as processes"),
    ],
)
def test_a_mistyped_command_is_answered_with_similar_ones(typed: str, answer: str) -> None:
    assert mqadmin(typed).stderr.startswith(f"mqadmin: {answer}")


def test_the_version_is_printed() -> None:
    result = mqadmin("--version")
    assert (result.exit_code, result.stdout) == (0, f"mqadmin {version('autoswitch-mq')}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_usage_in_any_case_of_its_name(name: str) -> None:
    asked = mqadmin(name.upper(), "-h")
    assert asked.exit_code == 0
    assert asked.stdout.startswith(f"usage: mqadmin {name} ")
    assert mqadmin("help", name).stdout == asked.stdout


def test_a_long_usage_is_broken_as_upstream_breaks_it() -> None:
    lines = mqadmin("updateTopic", "-h").stdout.splitlines()
    assert lines[1].startswith("       ")
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["getControllerMetaData", "-a", NOBODY], "no answer from 127.0.0.1:9"),
        (["getControllerMetaData", "-a", "nowhere"], "'nowhere' is not HOST:PORT (the port is missing)"),
        (["electMaster", "-a", NOBODY, "-b", "1", "-bn", "broker-a", "-c", "C"], "knows a leader"),
        (["haStatus", "-c", "C"], "no name server is known"),
        (["updateTopic", "-b", NOBODY, "-t", "T"], "UPDATE_AND_CREATE_TOPIC: no answer"),
    ],
)
def test_a_failure_is_one_line_on_stderr_and_a_non_zero_exit(arguments: list[str], said: str) -> None:
    result = mqadmin(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["electMaster", "-a", NOBODY, "-b", "first", "-bn", "b", "-c", "C"],
        ["updateTopic", "-b", NOBODY, "-t", "T", "-p", "7"],
        ["updateTopic", "-b", NOBODY, "-t", "T", "-r", "many"],
        ["updateTopic", "-b", NOBODY, "-t", "T", "-a", "key=value"],
        ["haStatus", "-b", NOBODY, "-i", "soon"],
        ["topicRoute", "-t", "T", "-x"],
        ["topicRoute", "-t", "T", "stray"],
    ],
)
def test_an_unusable_value_shows_the_usage(arguments: list[str]) -> None:
    result = mqadmin(*arguments)
    assert result.exit_code == 1
    assert f"usage: mqadmin {arguments[0]}" in result.stdout
    assert result.stderr


def test_help_loads_neither_the_event_loop_nor_the_network() -> None:
    probe = (
        "import sys; from mqadmin.cli import admin\n"
        "admin(['--help'], standalone_mode=False)\n"
        "loaded = {'asyncio', 'orjson', 'pydantic', 'remoting', 'mqadmin.command'} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "electMaster" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mqadmin topicSt", ["topicStatus"]),
        ("mqadmin help topicSt", ["topicStatus"]),
        ("mqadmin topicStatus --to", ["--topic"]),
        ("mqadmin electMaster -b 1 --brokerN", ["--brokerName"]),
        ("mqadmin watch --js", ["--json"]),
        ("mqadmin nosuch --x", []),
    ],
)
def test_shell_completion_offers_commands_and_options(typed: str, offered: list[str]) -> None:
    words = typed.split()
    env = {"_MQADMIN_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner(env=env).invoke(admin, [], prog_name="mqadmin")
    found = [line.removeprefix("plain,") for line in done.stdout.splitlines() if line]
    assert found == offered
    assert done.stderr == ""
