"""Changes of the attributes of topics and groups: `+key` sets an attribute, `-key` drops it. In a body, where the changes are a
map, a key without sign also sets the attribute (upstream rejects such a key). Attributes that a request does not name stay.

Invariant: a change is applied as a whole or rejected. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.topics import TopicConfig

T = TypeVar("T", TopicConfig, SubscriptionGroupConfig)

SET, DROP = "+", "-"
FORM = "write +key=value to set and -key to drop, each key once, separated by commas"


class AttributesRefused(ValueError):
    """The text is no valid change of attributes."""


def changes_in(text: str | None) -> dict[str, str]:
    """Parse `+key=value,-key2`, the form in UPDATE_AND_CREATE_TOPIC (17). The keys of the result have their sign. Raises
    AttributesRefused."""
    changes: dict[str, str] = {}
    for part in text.removesuffix(",").split(",") if text else ():
        key, separator, value = part.partition("=")
        sets = part.startswith(SET) and value != ""
        if not (sets or (part.startswith(DROP) and not separator)) or key in changes:
            raise AttributesRefused(f"attributes {text}: {FORM}")
        changes[key] = value
    return changes


def changed(before: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes `before` with `changes` applied. A key to drop may be missing, because the same request may have been sent
    before. Raises AttributesRefused."""
    after, named = dict(before), set()
    for key, value in changes.items():
        name = key[1:] if key.startswith((SET, DROP)) else key
        if not name or name in named:
            raise AttributesRefused(f"attribute {key}={value}: {FORM}")
        named.add(name)
        if key.startswith(DROP):
            after.pop(name, None)
        else:
            after[name] = value
    return after


def with_changes(asked: T, known: T | None) -> T:
    """`asked`, whose attributes are changes, with these changes applied to the attributes of `known`. Raises
    AttributesRefused."""
    before = {} if known is None else known.attributes
    return replace(asked, attributes=changed(before, asked.attributes))
