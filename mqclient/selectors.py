"""What a consumer wants of a topic: all messages, those with certain tags, or those that an SQL92 expression selects.
Upstream: MessageSelector, FilterAPI.

Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mqruntime.javahash import java_string_hash
from remoting.bodies.heartbeats import SubscriptionData

ALL = "*"
RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True)
class Selector:
    """`expression` is `A||B` for tags, `*` for all messages, or a condition on properties if `is_sql`."""

    expression: str = ALL
    is_sql: bool = False

    @property
    def expression_type(self) -> str:
        return "SQL92" if self.is_sql else "TAG"

    @property
    def tags(self) -> frozenset[str] | None:
        """The wanted tags; None if tags decide nothing."""
        if self.is_sql or self.expression == ALL:
            return None
        return frozenset(tags_in(self.expression))

    def data(self, topic: str, version: int) -> SubscriptionData:
        """The subscription as heartbeats have it. Java's brokers use the hashes that the client sends."""
        tags = sorted(self.tags or ())
        return SubscriptionData(
            topic,
            self.expression,
            tags,
            [java_string_hash(tag) for tag in tags],
            version,
            self.expression_type,
        )


def tags(expression: str) -> Selector:
    """Messages with one of the tags in `A||B`; `*` or "" selects all messages. Raises ValueError if it names no tag."""
    if expression in ("", ALL):
        return Selector()
    tags_in(expression)
    return Selector(expression)


def sql(condition: str) -> Selector:
    """Messages whose properties fulfil an SQL92 condition. Brokers need `enablePropertyFilter=true`. Raises ValueError for an
    empty condition."""
    if not condition.strip():
        raise ValueError("an SQL92 condition is not empty; to read all messages leave the selector out")
    return Selector(condition, is_sql=True)


def tags_in(expression: str) -> list[str]:
    """The tags of `A||B`. Raises ValueError if there is none."""
    named = [tag for part in expression.split("||") if (tag := part.strip())]
    if not named:
        raise ValueError(f"tags {expression!r} name no tag; they look like A||B, or * for every message")
    return named


Topics = str | Iterable[str] | Mapping[str, Selector | str]
"""A topic, several, or topics with a selector each; a selector that is a text names tags."""


def selectors_of(topics: Topics) -> dict[str, Selector]:
    """Topic -> selector. Raises ValueError for no topic, an empty name or bad tags, and TypeError for other things."""
    if isinstance(topics, str):
        topics = [topics]
    given = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, Selector())
    found: dict[str, Selector] = {}
    for topic, selector in given.items():
        if not isinstance(topic, str):
            raise TypeError(f"a topic is a text, not {topic!r}")
        if not topic or topic.startswith(RETRY_PREFIX):
            raise ValueError(f"no topic to subscribe to: {topic!r}; retries of the group come by themselves")
        found[topic] = tags(selector) if isinstance(selector, str) else selector
    if not found:
        raise ValueError("name at least one topic to subscribe to")
    return found
