"""The output of a command: upstream's text, printed at once, or one JSON object, printed at the end.

Invariant: if JSON is requested, standard output holds exactly one object per round and nothing else. The object has the member
`error` if and only if the command fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from remoting.wirefields import camel


class Report:
    """One round of one command. The command adds both text and JSON members, and one of the two is shown."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._members: dict[str, Any] = {}
        self._noted: set[str] = set()

    def text(self, text: str) -> None:
        """Print `text` as it is, with its own line ends, unless JSON is requested."""
        if not self.as_json:
            sys.stdout.write(text)
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print one line about missing output on stderr, once a round. In JSON it is in the member `notes`."""
        if text in self._noted:
            return
        self._noted.add(text)
        if self.as_json:
            self.add("notes", text)
        else:
            print(text, file=sys.stderr)

    def put(self, **members: Any) -> None:
        """Set members of the JSON object, with names in camel case. `plain` converts the values."""
        self._members.update({camel(name): plain(value) for name, value in members.items()})

    def add(self, name: str, row: Any) -> None:
        """Add one row to the list `name` of the JSON object."""
        self._members.setdefault(name, []).append(plain(row))

    def finish(self, error: str | None = None) -> None:
        """Print the JSON object, if requested, with everything found before `error`."""
        if self.as_json:
            if error is not None:
                self._members["error"] = error
            print(json.dumps(self._members, ensure_ascii=False, separators=(",", ":")), flush=True)
        self._members = {}
        self._noted = set()


def plain(value: Any) -> Any:
    """`value` in JSON's types. Dataclasses become objects with field names in camel case, as on the wire."""
    if is_dataclass(value):
        return {camel(row.name): plain(getattr(value, row.name)) for row in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value


def java_text(value: object) -> str:
    """`value` as text, as upstream prints its objects."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def java_map(values: Mapping[Any, object]) -> str:
    """A map as Java prints it: `{a=1, b=2}`."""
    return f"{{{', '.join(f'{key}={value}' for key, value in values.items())}}}"
