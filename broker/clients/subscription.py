"""Which messages of a topic a subscription wants, judged by the tag hashes of its expression.

Invariant: the filter is computed from the expression's text; a client's own list of hashes is never trusted. Equal
hashes of different tags pass: clients compare the tags themselves. Pure."""

from __future__ import annotations

from messagestore.messages import TagFilter
from messagestore.properties import tag_hash
from remoting.errors import HeaderError

ALL = ("", "*")
TAG = ("", "TAG")
TAGS_MAX = 1000


def tag_filter(expression: str | None, expression_type: str | None) -> TagFilter | None:
    """The filter of `A || B`; None when every message is wanted. Raises HeaderError for what is no tag expression."""
    if (expression_type or "") not in TAG:
        raise HeaderError("expressionType", expression_type, "only TAG subscriptions are served")
    text = (expression or "").strip()
    if text in ALL:
        return None
    tags = [tag for part in text.split("||") if (tag := part.strip())]
    if not tags or len(tags) > TAGS_MAX:
        raise HeaderError("subscription", expression, f"is no list of up to {TAGS_MAX} tags separated by ||")
    hashes = frozenset(map(tag_hash, tags))
    return hashes.__contains__
