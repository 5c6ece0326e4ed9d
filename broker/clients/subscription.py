"""Filters of subscriptions: by the hashes of the tags in an expression, or by an SQL92 expression on message properties.

Invariant: the filter is computed from the expression's text; a client's own list of hashes is never trusted. Different tags
with equal hashes pass the filter, because clients compare the tags themselves. Pure."""

from __future__ import annotations

from filters.errors import FilterError
from filters.sql92 import SQL92, compiled
from messagestore.messages import PropertyFilter, TagFilter
from messagestore.properties import tag_hash
from remoting.errors import HeaderError

ALL = ("", "*")
TAG = ("", "TAG")
TAGS_MAX = 1000
TAGS_CHARACTERS_MAX = 64 * 1024  # each takes 0.1 us to hash


def is_tag_type(expression_type: str | None) -> bool:
    return (expression_type or "") in TAG


def tag_filter(expression: str | None, expression_type: str | None) -> TagFilter | None:
    """The filter of a tag expression like `A || B`; None if every message matches. Raises HeaderError for text that is no tag
    expression."""
    if not is_tag_type(expression_type):
        raise HeaderError("expressionType", expression_type, "is no type of tags")
    text = (expression or "").strip()
    if text in ALL:
        return None
    tags = [tag for part in text[: TAGS_CHARACTERS_MAX + 1].split("||") if (tag := part.strip())]
    if not tags or len(tags) > TAGS_MAX or len(text) > TAGS_CHARACTERS_MAX:
        why = f"is no list of up to {TAGS_MAX} tags separated by ||, of {TAGS_CHARACTERS_MAX} characters together"
        raise HeaderError("subscription", expression, why)
    hashes = frozenset(map(tag_hash, tags))
    return hashes.__contains__


def property_filter(expression: str | None, expression_type: str | None) -> PropertyFilter:
    """The filter of an expression of another type than tags. Raises FilterError for an invalid expression."""
    if expression_type != SQL92:
        raise FilterError(
            f"{expression_type} is no type of expressions that this broker knows: TAG or {SQL92}"
        )
    return compiled(expression or "")


def not_supported(expression_type: str | None) -> str:
    """The remark while `enablePropertyFilter` is false, in upstream's words."""
    return f"The broker does not support consumer to filter message by {expression_type}"
