"""Errors of expressions.

Invariant: for any text this package raises only these. Pure."""

from __future__ import annotations


class FilterError(ValueError):
    """The expression cannot be evaluated for any message."""


class SyntaxFault(FilterError):
    """The text is no expression; `line` and `column` count from 1, as in upstream's parser."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class UnexpectedToken(SyntaxFault):
    """The text consists of tokens, but not in an order of the grammar."""


class NotComparable(Exception):
    """A property's value is not of the kind that the expression compares it with: the message does not match, whatever else
    the expression contains, as in upstream."""
