"""What the transcripts say comes of their commands is what comes of them."""

from __future__ import annotations

import pytest

from tests.unit.dledger.transcript import FOLDER, Transcript, played

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"), key=lambda file: file.name)


@pytest.mark.parametrize("name", [file.name for file in TRANSCRIPTS])
def test_a_transcript_is_what_comes_of_its_commands(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert played(text) == text, "python -m tests.unit.dledger.transcript rewrites it"


def test_there_are_scenarios_of_every_part() -> None:
    scenarios = [
        line for file in TRANSCRIPTS for line in file.read_text().splitlines() if line.startswith("# ")
    ]
    assert len(scenarios) >= 20 and all(line.endswith(":") for line in scenarios)


def test_what_is_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match="no such command: choose a"):
        Transcript().run("choose a")
