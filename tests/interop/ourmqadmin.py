"""Commands of our mqadmin, run in the process of the test."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from mqadmin.cli import admin


def printed(namesrv: str, *arguments: object) -> str:
    """The output of a command that succeeds."""
    words = [str(word) for word in (*arguments, "-n", namesrv)]
    result = CliRunner().invoke(admin, words, prog_name="mqadmin")
    assert result.exit_code == 0, result.output
    return result.stdout


def json_of(namesrv: str, *arguments: object) -> Any:
    """The JSON of a command that succeeds."""
    return json.loads(printed(namesrv, *arguments, "--json"))
