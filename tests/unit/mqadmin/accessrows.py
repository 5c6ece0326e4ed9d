"""The commands of access control that upstream's mqadmin 5.3.3 ran against two brokers, in order, with the output of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple, Self

VECTORS = Path(__file__).parents[3] / "tests" / "vectors" / "acl"
MASTER, SLAVE, NAMESRV = "127.0.0.1:26210", "127.0.0.1:26200", "127.0.0.1:26001"
REFUSED_HERE = {
    "createUser-badType": ("Wizard", "Normal"),
    "createAcl-someBadAction": ("pUb,Publish", "pUb"),
    "createAcl-badAction": ("Publish", ""),
}
"""Commands that our tool refuses by itself: the words that it does not know, and words for the commands that follow."""


class Ran(NamedTuple):
    """One command. `error` is the code and text of the broker that refused it."""

    name: str
    arguments: list[str]
    stdout: str
    error: tuple[int, str] | None

    def at(self, **addresses: str) -> Self:
        """The same command for other servers: `master`, `slave` and `namesrv`."""
        arguments, stdout = "\0".join(self.arguments), self.stdout
        for before, kind in ((MASTER, "master"), (SLAVE, "slave"), (NAMESRV, "namesrv")):
            arguments = arguments.replace(before, addresses[kind])
            stdout = stdout.replace(before, addresses[kind])
        return self._replace(arguments=arguments.split("\0"), stdout=stdout)

    def accepted_here(self) -> Self:
        """The same command, but with words that our tool accepts."""
        before, after = REFUSED_HERE.get(self.name, ("", ""))
        return self._replace(arguments=[after if word == before else word for word in self.arguments])


def _ran(row: dict[str, str]) -> Ran:
    refusal = re.search(r"CODE: (\d+) +DESC: (.*)", row["stderrWithoutStackLines"])
    error = (int(refusal[1]), refusal[2]) if refusal else None
    return Ran(row["name"], row["args"].split(), row["stdout"], error)


ROWS = [_ran(row) for row in json.loads((VECTORS / "mqadmin.json").read_text())]


def lines(text: str) -> list[str]:
    """Sorted, because upstream's tool names the brokers of a cluster in the order of a hash table."""
    return sorted(text.splitlines(keepends=True))
