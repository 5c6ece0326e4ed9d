"""Fields of a request that a former master changes before it passes the request on to its successor.

Invariant: the successor can restore all fields as they came from the client, because the client has signed them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

FORMER_FIELDS = "formerFields"
"""Ext field with the former values of changed fields; null for those that were absent."""
CHANGED = frozenset({"sysFlag", "subscription", "expressionType"})
"""The fields that former masters change, all of pulls. Of other fields nothing is believed."""


def change(ext: dict[str, str], changes: Mapping[str, str]) -> None:
    """Change fields of a request that is passed on."""
    former = {key: ext.get(key) for key in changes}
    ext.update(changes)
    ext[FORMER_FIELDS] = orjson.dumps(former).decode()


def as_it_came(ext: dict[str, str]) -> dict[str, str]:
    """The fields before `change`. Fields of which this is not known stay as they are."""
    text = ext.get(FORMER_FIELDS)
    if text is None:
        return ext
    try:
        former = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ext
    if not isinstance(former, dict) or not former.keys() <= CHANGED:
        return ext
    came = {key: value for key, value in ext.items() if key != FORMER_FIELDS and key not in former}
    return came | {key: value for key, value in former.items() if isinstance(value, str)}
