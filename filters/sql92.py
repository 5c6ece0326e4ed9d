"""An expression as what messages are judged by.

Invariant: an expression is compiled once as long as it is in use and there is room for it, and a message matches where
upstream's evaluator says true. Pure."""

from __future__ import annotations

from filters.compiler import PropertyFilter
from filters.kept import KeptFilters

SQL92 = "SQL92"
KEPT = KeptFilters()
"""Of all subscriptions, and of pulls that bring their own expressions."""


def compiled(expression: str) -> PropertyFilter:
    """Raises FilterError for what is no expression, SyntaxFault where a place in it can be named."""
    return KEPT.compiled(expression)
