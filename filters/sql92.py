"""An expression as what messages are judged by.

Invariant: an expression is compiled once as long as it is in use, and a message matches where upstream's evaluator says true.
Pure."""

from __future__ import annotations

from functools import lru_cache

from filters.compiler import PropertyFilter, compile_filter
from filters.parser import parse

SQL92 = "SQL92"
KEPT_MAX = 256
"""Expressions of pulls that bring their own; subscriptions keep theirs."""


@lru_cache(maxsize=KEPT_MAX)
def compiled(expression: str) -> PropertyFilter:
    """Raises FilterError for what is no expression, SyntaxFault where a place in it can be named."""
    return compile_filter(parse(expression))
