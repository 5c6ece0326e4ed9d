"""Each transcript shows the real result of its commands."""

from __future__ import annotations

import pytest

from tests.unit.dledger.transcript import FOLDER, Transcript, played

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"), key=lambda file: file.name)


@pytest.mark.parametrize("name", [file.name for file in TRANSCRIPTS])
def test_a_transcript_matches_the_result_of_its_commands(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert played(text) == text, "python -m tests.unit.dledger.transcript rewrites it"


def test_there_are_at_least_twenty_scenarios() -> None:
    scenarios = [
        line for file in TRANSCRIPTS for line in file.read_text().splitlines() if line.startswith("# ")
    ]
    assert len(scenarios) >= 20 and all(line.endswith(":") for line in scenarios)


def test_an_unknown_transcript_command_is_rejected() -> None:
    with pytest.raises(ValueError, match="no such command: choose a"):
        Transcript().run("choose a")
