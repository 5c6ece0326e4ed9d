"""Which messages of a topic a subscription wants, judged by the tag hashes of its expression, or by what an SQL92 expression
says of their properties.

Invariant: the filter is computed from the expression's text; a client's own list of hashes is never trusted. Equal
hashes of different tags pass: clients compare the tags themselves. Pure."""

from __future__ import annotations

from filters.errors import FilterError
from filters.sql92 import SQL92, compiled
from messagestore.messages import PropertyFilter, TagFilter
from messagestore.properties import tag_hash
from remoting.errors import HeaderError

ALL = ("", "*")
TAG = ("", "TAG")
TAGS_MAX = 1000


def is_tag_type(expression_type: str | None) -> bool:
    return (expression_type or "") in TAG


def tag_filter(expression: str | None, expression_type: str | None) -> TagFilter | None:
    """The filter of `A || B`; None when every message is wanted. Raises HeaderError for what is no tag expression."""
    if not is_tag_type(expression_type):
        raise HeaderError("expressionType", expression_type, "is no type of tags")
    text = (expression or "").strip()
    if text in ALL:
        return None
    tags = [tag for part in text.split("||") if (tag := part.strip())]
    if not tags or len(tags) > TAGS_MAX:
        raise HeaderError("subscription", expression, f"is no list of up to {TAGS_MAX} tags separated by ||")
    hashes = frozenset(map(tag_hash, tags))
    return hashes.__contains__


def property_filter(expression: str | None, expression_type: str | None) -> PropertyFilter:
    """The filter of an expression that is none of tags. Raises FilterError for what is no such expression."""
    if expression_type != SQL92:
        raise FilterError(
            f"{expression_type} is no type of expressions that this broker knows: TAG or {SQL92}"
        )
    return compiled(expression or "")


def not_supported(expression_type: str | None) -> str:
    """What clients are told while `enablePropertyFilter` is false, in upstream's words."""
    return f"The broker does not support consumer to filter message by {expression_type}"
