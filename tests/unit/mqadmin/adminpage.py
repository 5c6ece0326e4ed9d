"""The rows of docs/mqadmin.md: upstream's commands with the state of each here."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "mqadmin.md").read_text()
ROWS = {
    name: (state, why)
    for name, state, why in re.findall(r"^\| (\w+) \| ([a-z ]+) \| (.*?) ?\|$", PAGE, re.MULTILINE)
    if name not in ("command", "code")
}
UPSTREAMS, NEWER = list(ROWS)[:89], list(ROWS)[89:]
"""The commands of 5.3.3, and the new ones of 5.5.0. The interop layer compares them with upstream's tools."""
