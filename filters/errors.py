"""Why an expression is refused.

Invariant: whatever text comes in, nothing but these leaves this package. Pure."""

from __future__ import annotations


class FilterError(ValueError):
    """An expression that no message can be judged by."""


class SyntaxFault(FilterError):
    """The text is no expression; `line` and `column` count from 1, as upstream's parser counts them."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class UnexpectedToken(SyntaxFault):
    """Made of tokens, but not in an order that the grammar knows."""


class NotComparable(Exception):
    """A property's value is none of the kind that the expression compares it with: the message does not match, whatever else
    the expression says, as upstream has it."""
