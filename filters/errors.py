"""Errors of expressions.

Invariant: for any text this package raises only these errors. Pure."""

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
    """The text consists of tokens, but the grammar does not allow their order."""


class NotComparable(Exception):
    """A property's value is not of the kind that the expression compares it with. As in upstream, the message then does not
    match, whatever else the expression contains."""
