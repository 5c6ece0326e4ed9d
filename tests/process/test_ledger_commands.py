"""`python -m dledger`: a group of processes is served, written, read and handed over; and the errors of its
commands."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.process.forkedcommands import ForkedCommands
from tests.process.serverprocess import ServerProcess
from tests.support.waiting import wait_until
from tests.unit.dledger.ledgergroup import free_ports

PREFERRED = "n1"
Said = Callable[..., subprocess.CompletedProcess[str]]
"""The output of a command with these arguments, for these members."""


@pytest.fixture(scope="module")
def peers() -> str:
    return ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(free_ports(3)))


@pytest.fixture(scope="module")
def members(peers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    folder = tmp_path_factory.mktemp("group")
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(ServerProcess("dledger", *served(peers, name, folder / name)))
            for name in ("n0", "n1", "n2")
        }


def served(peers: str, name: str, store: Path) -> list[str]:
    return ["serve", "--peers", peers, "--id", name, "--store", str(store), "--preferred", PREFERRED]


@pytest.fixture(scope="module")
def said(commands: ForkedCommands) -> Said:
    def ask(peers: str, name: str, *rest: str) -> subprocess.CompletedProcess[str]:
        return commands.run("dledger", name, "--peers", peers, *rest)

    return ask


def preferred_leads(said: Said, peers: str) -> bool:
    lines = said(peers, "members").stdout.splitlines()
    return any(line.startswith(f"{PREFERRED} ") and line.endswith("leads") for line in lines)


def test_a_dledger_group_is_started_written_and_read(
    said: Said, members: dict[str, ServerProcess], peers: str
) -> None:
    members[PREFERRED].wait_to_say("role=LEADER")  # eventually
    appended = said(peers, "append", "one", "two", "--timeout", "60000")
    assert appended.returncode == 0, appended.stderr
    first, second = map(int, appended.stdout.split())
    assert second == first + 1
    assert said(peers, "get", str(second)).stdout == "two\n"
    status = said(peers, "status").stdout
    assert status.count("FOLLOWER") == 2 and status.count("LEADER ") == 1, status
    handed = said(peers, "transfer", "n2")
    assert handed.returncode == 0 and "has handed over" in handed.stdout, handed.stderr
    members["n2"].wait_to_say("role=LEADER")


def test_members_are_added_and_removed(
    said: Said, members: dict[str, ServerProcess], peers: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    new = f"n3-127.0.0.1:{port}"
    with ServerProcess("dledger", *served(f"{peers};{new}", "n3", tmp_path / "n3")) as fourth:
        fourth.wait_to_say("does not vote yet")
        dry = said(peers, "add", new, "--dry-run")
        assert dry.stdout == f"is        {peers}\nwould be  {peers} | {new}\n", dry.stderr
        added = said(peers, "add", new)
        assert added.stdout == f"was       {peers}\nis        {peers};{new}\n", added.stderr
        shown = said(peers, "members").stdout
        assert shown.startswith("by entry ") and shown.count(" voter") == 4 and shown.count("leads") == 1
        assert said(new, "append", "three").returncode == 0
        wait_until("it has taken the leadership back", lambda: preferred_leads(said, peers))
        dry = said(peers, "remove", PREFERRED, "--dry-run")
        assert dry.returncode == 1 and "transfer its leadership first" in dry.stderr
        removed = said(peers, "remove", "n3")
        assert removed.stdout == f"was       {peers};{new}\nis        {peers}\n", removed.stderr
        again = said(peers, "remove", "n3")
        assert again.returncode == 1 and "n3 is not among the members n0, n1, n2" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "1000000"], "no entry with this index is committed yet"),
        (["append", "--group", "other", "x", "--timeout", "300"], "nobody leads, nothing was done"),
        (["status", "--group", "other"], "member of another group; correct --group"),
        (["transfer", "n7"], "n7 is not among n0, n1, n2"),
        (["append", ""], "an entry has one byte at least"),
        (["add", "n3"], "is not ID-HOST:PORT"),
    ],
)
def test_an_impossible_ledger_command_is_refused_with_the_reason(
    said: Said, members: dict[str, ServerProcess], peers: str, arguments: list[str], words: str
) -> None:
    done = said(peers, *arguments)
    assert done.returncode in (1, 2) and words in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_bad_command_line_is_reported(said: Said, peers: str, tmp_path: Path) -> None:
    done = said("n0:1", "status")
    assert done.returncode == 2 and "'n0:1' in --peers is not ID-HOST:PORT" in done.stderr
    done = said(peers, "serve", "--id", "n7", "--store", str(tmp_path))
    assert done.returncode == 2 and "n7 is not among n0, n1, n2" in done.stderr


def test_a_folder_is_used_by_one_member_at_a_time(
    members: dict[str, ServerProcess], peers: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.getbasetemp() / "group0" / "n0"
    with ServerProcess("dledger", *served(peers, "n0", store)) as second:
        second.wait_to_say("holds this store; stop it, or give this one another store directory")
