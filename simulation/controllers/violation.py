"""The error that checks of the controllers' world raise.

Invariant: `rule` names the rule that does not hold, as the docstring of `simulation.controllers.check` does."""

from __future__ import annotations


class Violation(AssertionError):
    """A rule does not hold."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def expect(rule: str, holds: bool, what: str) -> None:
    """Raises Violation."""
    if not holds:
        raise Violation(rule, what)
