"""Writes docs/configuration.md from the settings classes; with --check only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from broker.settings.broker import BrokerSettings
from controller.settings import ControllerSettings
from mqruntime.settingstable import markdown_table
from namesrv.settings import NamesrvSettings

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

INTRODUCTION = """# Configuration

Written by `scripts/configuration-docs` from the settings classes; a test fails when it is out of date.

The servers take RocketMQ's properties files with `-c FILE`, and `KEY=VALUE` after it, which counts more. `-p` prints what is in
force and ends. A key or value that is not understood is warned of with its file and line and the nearest key; with `--strict`
it is refused. Keys of upstream that have no meaning here are taken without a word. Sizes are in bytes, times in milliseconds
unless the key says otherwise.

The third column shows upstream's default where it is another one.
"""


def page() -> str:
    parts = [INTRODUCTION]
    for command, settings_class in (
        ("mqbroker", BrokerSettings),
        ("mqcontroller", ControllerSettings),
        ("mqnamesrv", NamesrvSettings),
    ):
        parts.append(f"## {command}\n\n{markdown_table(settings_class)}")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        current = PAGE.exists() and PAGE.read_text() == page()
        print(f"{PAGE.name} is {'up to date' if current else 'stale; run scripts/configuration-docs'}")
        return 0 if current else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
