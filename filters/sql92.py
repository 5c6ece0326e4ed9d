"""Compiled SQL92 expressions.

Invariant: an expression is compiled once as long as it is in use and there is room for it, and a message matches where
upstream's evaluator returns true. Pure."""

from __future__ import annotations

from filters.compiler import PropertyFilter
from filters.kept import KeptFilters

SQL92 = "SQL92"
KEPT = KeptFilters()
"""Shared by all subscriptions, and by pulls with their own expressions."""


def compiled(expression: str) -> PropertyFilter:
    """The compiled expression. Raises FilterError for an invalid one, SyntaxFault where a place in it can be named."""
    return KEPT.compiled(expression)
