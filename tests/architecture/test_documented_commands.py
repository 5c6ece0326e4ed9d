"""Each command that a document shows is in the table of those that are run, and is marked as a command."""

from __future__ import annotations

from tests.documentedcommands import BLOCK, COMMANDS, DOCUMENTS, PROGRAM, documented


def test_every_documented_command_is_known_here() -> None:
    unknown = {command: where for command, where in documented().items() if command not in COMMANDS}
    assert not unknown, "say in COMMANDS how these are run"


def test_commands_are_in_blocks_that_are_marked_as_such() -> None:
    for document in DOCUMENTS:
        for kind, body in BLOCK.findall(document.read_text()):
            if kind != "sh":
                assert not [line for line in body.splitlines() if PROGRAM.match(line)], document.name
