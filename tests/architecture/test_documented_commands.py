"""Each command in a document is in the table of tested commands, and is marked as a command."""

from __future__ import annotations

from tests.support.documentedcommands import BLOCK, COMMANDS, DOCUMENTS, PROGRAM, documented


def test_every_documented_command_is_in_the_table() -> None:
    unknown = {command: where for command, where in documented().items() if command not in COMMANDS}
    assert not unknown, "say in COMMANDS how these are run"


def test_documented_commands_are_in_blocks_marked_as_commands() -> None:
    for document in DOCUMENTS:
        for kind, body in BLOCK.findall(document.read_text()):
            if kind != "sh":
                assert not [line for line in body.splitlines() if PROGRAM.match(line)], document.name
