"""The error that every check raises.

Invariant: `rule` is the name, in the checks' docstrings, of the rule that does not hold."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def expect(rule: str, holds: bool, what: str) -> None:
    """Raise Violation unless the condition holds."""
    if not holds:
        raise Violation(rule, what)
