"""Whether what clients saw of a register can have happened one operation after the other, each between its call and its answer.

After Wing and Gong (1993), with Lowe's memory of what was tried. Shares no rule with the product.
Invariant: an operation of unknown outcome may have taken effect at any moment after its call, or never. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

NEVER = float("inf")


class Kind(Enum):
    READ = "read"
    WRITE = "write"
    SWAP = "swap"


@dataclass(slots=True)
class Operation:
    """`value` is what was read, or is written; a SWAP writes it where the register has `expected`, and tells whether it did.
    `returned` is NEVER while nobody knows what came of it."""

    kind: Kind
    key: str
    client: int
    called: float
    value: str | None
    expected: str | None = None
    swapped: bool | None = None
    returned: float = NEVER

    def after(self, state: str | None) -> tuple[bool, str | None]:
        """Whether it can take effect on a register that has `state`, and what that has then."""
        match self.kind:
            case Kind.READ:
                return self.value == state, state
            case Kind.WRITE:
                return True, self.value
        swaps = state == self.expected
        if self.swapped is not None and self.swapped is not swaps:
            return False, state
        return True, self.value if swaps else state

    def told(self) -> str:
        end = "?" if self.returned == NEVER else f"{self.returned:.3f}"
        what = (
            f"{self.expected} -> {self.value}: {self.swapped}" if self.kind is Kind.SWAP else f"{self.value}"
        )
        return f"{self.called:.3f} .. {end} client {self.client} {self.kind.value} {self.key} {what}"


@dataclass
class History:
    """What clients did, by register; reads that came to nothing are taken back."""

    by_key: dict[str, list[Operation]] = field(default_factory=dict)

    def called(self, operation: Operation) -> Operation:
        self.by_key.setdefault(operation.key, []).append(operation)
        return operation

    def take_back(self, operation: Operation) -> None:
        """It certainly did not happen, or nobody knows what it saw."""
        mine = self.by_key[operation.key]
        del mine[next(at for at, each in enumerate(mine) if each is operation)]

    def unexplained(self) -> list[Operation] | None:
        """The operations on a register of which no order explains what was seen, up to where none goes further."""
        return next(filter(None, (first_unexplained(mine) for mine in self.by_key.values())), None)

    @property
    def answered(self) -> int:
        return sum(each.returned != NEVER for each in self.operations())

    def operations(self) -> Iterable[Operation]:
        return (each for mine in self.by_key.values() for each in mine)


def first_unexplained(operations: Sequence[Operation]) -> list[Operation] | None:
    """None when the history of one register, which begins empty, is linearizable; else its operations up to the one that
    cannot be placed by whichever order went furthest."""
    ordered = sorted(operations, key=lambda each: each.called)
    answered = sum(1 << at for at, each in enumerate(ordered) if each.returned != NEVER)
    seen: set[tuple[int, str | None]] = {(0, None)}
    waiting: list[tuple[int, str | None]] = [(0, None)]
    furthest = 0
    while waiting:
        placed, state = waiting.pop()
        if placed & answered == answered:
            return None
        furthest = max(furthest, _first_missing(placed))
        for at in _next(ordered, placed):
            possible, result = ordered[at].after(state)
            reached = placed | 1 << at, result
            if possible and reached not in seen:
                seen.add(reached)
                waiting.append(reached)
    return ordered[: furthest + 1]


def _first_missing(placed: int) -> int:
    return (~placed & (placed + 1)).bit_length() - 1


def _next(ordered: Sequence[Operation], placed: int) -> list[int]:
    """Those that may come next: none that is not placed yet has ended before they were called."""
    found: list[int] = []
    ended = NEVER
    for at in range(_first_missing(placed), len(ordered)):
        if placed >> at & 1:
            continue
        if ordered[at].called > ended:
            break
        found.append(at)
        ended = min(ended, ordered[at].returned)
    return found
