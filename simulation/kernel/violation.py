"""The error that every check raises.

Invariant: `rule` names the rule that does not hold, as the checks' docstrings do."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def expect(rule: str, holds: bool, what: str) -> None:
    """Raises Violation."""
    if not holds:
        raise Violation(rule, what)
