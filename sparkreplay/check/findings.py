"""Findings of a verification.

Invariant: the number of kept findings is bounded. Dropped findings are counted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

KEPT_MAX = 100


@dataclass(frozen=True)
class Finding:
    """One fault: the check that found it, the file, the physical offset if there is one, and a description."""

    check: str
    path: str
    offset: int | None
    what: str

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at physical offset {self.offset}"
        return f"{self.check}: {self.path}{place}: {self.what}"


@dataclass
class Findings:
    """The first KEPT_MAX findings, and the number of all."""

    kept: list[Finding] = field(default_factory=list)
    count: int = 0

    def add(self, check: str, path: str, offset: int | None, what: str) -> None:
        self.extend([Finding(check, path, offset, what)])

    def extend(self, found: Iterable[Finding], count: int | None = None) -> None:
        """`count` is the number of findings that `found` represents, if some were dropped already."""
        listed = list(found)
        self.count += len(listed) if count is None else count
        self.kept += listed[: KEPT_MAX - len(self.kept)]
