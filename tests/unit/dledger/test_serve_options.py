"""The settings that `python -m dledger serve` derives from its options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger import DLedger
from dledger.cli import dledger
from dledger.raft.settings import DLedgerSettings
from mqruntime import serve
from mqruntime.network import Network

PEERS = "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[DLedger]:
    """The members that would have run."""
    members: list[DLedger] = []

    def run(make: Callable[[], DLedger], networks: Sequence[Network]) -> int:
        async def make_one() -> None:
            members.append(make())

        asyncio.run(make_one())
        return 0

    monkeypatch.setattr(serve, "run", run)
    return members


def served(store: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(
        dledger, ["serve", "--peers", PEERS, "--id", "n0", "--store", str(store), *options]
    )
    return done.exit_code, done.output


def test_serve_options_set_the_push_window(made: list[DLedger], tmp_path: Path) -> None:
    options = "--pushes-in-flight", "3", "--bytes-in-flight", "65536", "--push-gap", "0"
    assert served(tmp_path, *options)[0] == 0
    wanted = DLedgerSettings(pushes_in_flight_max=3, bytes_in_flight_max=65536, push_gap_ms=0)
    assert [member.settings for member in made] == [wanted]


def test_serve_without_options_uses_the_default_settings(made: list[DLedger], tmp_path: Path) -> None:
    assert served(tmp_path)[0] == 0
    assert [member.settings for member in made] == [DLedgerSettings()]


@pytest.mark.parametrize("option", ["--pushes-in-flight", "--bytes-in-flight"])
def test_a_push_window_of_zero_is_rejected(made: list[DLedger], tmp_path: Path, option: str) -> None:
    code, said = served(tmp_path, option, "0")
    assert (code, made) == (2, []) and option in said
