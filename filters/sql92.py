"""Compiled SQL92 expressions.

Invariant: an expression is compiled again only if it was dropped from the cache. A message matches if and only if upstream's
evaluator returns true. Pure."""

from __future__ import annotations

from filters.compiler import PropertyFilter
from filters.kept import KeptFilters

SQL92 = "SQL92"
KEPT = KeptFilters()
"""Shared by all subscriptions, and by pulls with their own expressions."""


def compiled(expression: str) -> PropertyFilter:
    """The compiled expression. Raises FilterError for an invalid expression: a SyntaxFault if the error has a place in the
    text."""
    return KEPT.compiled(expression)
