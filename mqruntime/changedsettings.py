"""Changes of a running server's settings on request.

Invariant: a change is taken whole or not at all, and lasts until the process ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from mqruntime.properties import PropertiesError, parse
from mqruntime.settings import HIDDEN, Settings, in_words, is_secret

BODY_BYTES_MAX = 64 << 10
"""Of one change: several times all settings of a server. Reading it blocks all other clients."""
SHOWN_MAX = 100
"""Characters of a rejected value that are shown."""
FORBIDDEN = "Can not update config in black list."


class SettingsRefused(ValueError):
    """A change that was rejected as a whole."""

    def __init__(self, why: str, *, forbidden: bool = False) -> None:
        super().__init__(why)
        self.forbidden = forbidden


def asked_for(
    settings: Settings,
    body: bytes | bytearray | memoryview | None,
    changeable: Set[str],
    *,
    black_list: Set[str] = frozenset(),
    trimmed: bool = False,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The new values among the properties in `body`, key -> value; nothing is changed yet. Keys unknown to the server are
    ignored, as upstream does; so are blanks around a value if `trimmed`. `reasons` explain why a key is not changeable.
    Raises ChangeRefused for more than BODY_BYTES_MAX, a key in `black_list`, an invalid value, and a new value of a key that
    is not `changeable`. Such a key with a secret is refused whatever its value is: otherwise the file that it names would be
    read, and the answer would depend on the present secret."""
    if body is not None and len(body) > BODY_BYTES_MAX:
        raise SettingsRefused(f"a change of {len(body)} bytes; {BODY_BYTES_MAX} are read")
    try:
        entries = parse(bytes(body or b"")).entries
    except PropertiesError as error:
        raise SettingsRefused(f"not in the format of properties: {error}") from None
    asked = {entry.key: entry.value.strip() if trimmed else entry.value for entry in entries}
    if not black_list.isdisjoint(asked):
        raise SettingsRefused(FORBIDDEN, forbidden=True)
    now = settings.in_force()
    if secret := sorted(key for key in asked.keys() & now.keys() - changeable if is_secret(key)):
        raise SettingsRefused(_fixed(secret, reasons), forbidden=True)
    known = {key: value for key, value in asked.items() if key in now}
    names = settings.keys()
    given = {key: value for key, value in now.items() if names[key] in settings.model_fields_set}
    try:  # a default must not count as an explicitly set value
        wanted = type(settings).model_validate(given | known).in_force()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        shown = HIDDEN if is_secret(key) else known.get(key, "")[:SHOWN_MAX]
        where = f"{key}={shown}: " if key else ""
        raise SettingsRefused(where + in_words(first["msg"])) from None
    changed = {key: wanted[key] for key in known if wanted[key] != now[key]}
    if fixed := sorted(changed.keys() - changeable):
        raise SettingsRefused(_fixed(fixed, reasons), forbidden=True)
    return changed


def _fixed(keys: Sequence[str], reasons: Mapping[str, str]) -> str:
    named = ", ".join(f"{key} ({reasons[key]})" if key in reasons else key for key in keys)
    return f"{FORBIDDEN} {named}: change the properties file and restart"


def take(settings: Settings, changed: Mapping[str, Any]) -> None:
    """Put the result of `asked_for` into force."""
    names = settings.keys()
    for key, value in changed.items():
        setattr(settings, names[key], value)


def change(
    settings: Settings,
    body: bytes | bytearray | memoryview | None,
    changeable: Set[str],
    *,
    black_list: Set[str] = frozenset(),
) -> dict[str, Any]:
    """Put the result of `asked_for` into force and return it. Raises ChangeRefused."""
    changed = asked_for(settings, body, changeable, black_list=black_list)
    take(settings, changed)
    return changed
