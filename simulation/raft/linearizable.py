"""Checks whether the history of a register (a variable that clients read and write) is linearizable: all operations, with the
results that clients saw, could have happened one after the other, each between its call and its answer.

The algorithm is that of Wing and Gong (1993), with Lowe's memory of tried states. This module shares no code with the product.
Invariant: an operation of unknown outcome may have taken effect at any moment after its call, or never. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

NEVER = float("inf")


class OperationKind(Enum):
    READ = "read"
    WRITE = "write"
    SWAP = "swap"


@dataclass(slots=True)
class Operation:
    """One operation. `value` is the value that was read or is written. A SWAP writes it if the register has `expected`, and
    returns whether it did. `returned` is NEVER while the outcome is unknown."""

    kind: OperationKind
    key: str
    client: int
    called: float
    value: str | None
    expected: str | None = None
    swapped: bool | None = None
    returned: float = NEVER

    def after(self, state: str | None) -> tuple[bool, str | None]:
        """Whether the operation can take effect on a register that has `state`, and the register's state afterwards."""
        match self.kind:
            case OperationKind.READ:
                return self.value == state, state
            case OperationKind.WRITE:
                return True, self.value
        swaps = state == self.expected
        if self.swapped is not None and self.swapped is not swaps:
            return False, state
        return True, self.value if swaps else state

    def described(self) -> str:
        end = "?" if self.returned == NEVER else f"{self.returned:.3f}"
        what = (
            f"{self.expected} -> {self.value}: {self.swapped}"
            if self.kind is OperationKind.SWAP
            else f"{self.value}"
        )
        return f"{self.called:.3f} .. {end} client {self.client} {self.kind.value} {self.key} {what}"


@dataclass
class OperationHistory:
    """The operations of clients, by register. Reads without an answer are taken back."""

    by_key: dict[str, list[Operation]] = field(default_factory=dict)

    def called(self, operation: Operation) -> Operation:
        self.by_key.setdefault(operation.key, []).append(operation)
        return operation

    def take_back(self, operation: Operation) -> None:
        """Remove an operation that certainly did not happen, or whose result nobody knows."""
        mine = self.by_key[operation.key]
        del mine[next(at for at, each in enumerate(mine) if each is operation)]

    def unexplained(self) -> list[Operation] | None:
        """The operations on a register whose history no order explains, up to the first operation that cannot be placed."""
        return next(filter(None, (first_unexplained(mine) for mine in self.by_key.values())), None)

    @property
    def answered(self) -> int:
        return sum(each.returned != NEVER for each in self.operations())

    def operations(self) -> Iterable[Operation]:
        return (each for mine in self.by_key.values() for each in mine)


def first_unexplained(operations: Sequence[Operation]) -> list[Operation] | None:
    """None if the history of one register, which begins empty, is linearizable. Otherwise its operations up to the first one
    that fits into none of the longest orders found."""
    ordered = sorted(operations, key=lambda each: each.called)
    stuck = Search(ordered).stuck()
    return None if stuck is None else [each for each in ordered if each.called <= stuck.called]


UNSEEN = "a value that no operation names"


class Search:
    """A search for an order of all answered operations and as few unknown operations (whose outcome is unknown) as possible.

    An unknown operation takes effect just before an answered operation that would not be possible without it, because at any
    other moment it does nothing that it could not do later. If two ways lead to the same placed operations and register, the
    way whose unknown operations contain those of the other way is dropped. Among operations that do the same, the one that was
    called first is used first."""

    def __init__(self, ordered: Sequence[Operation]) -> None:
        seen = {each.value for each in ordered if each.kind is OperationKind.READ} | {
            each.expected for each in ordered if each.kind is OperationKind.SWAP
        }
        renamed = [each if each.value in seen else replace(each, value=UNSEEN) for each in ordered]
        self.answered = [each for each in renamed if each.returned != NEVER]
        self.unknown = [each for each in renamed if each.returned == NEVER]
        self.least: dict[tuple[int, str | None], list[int]] = {}
        """(placed answered operations, register) -> the unknown operations used, for each way that may count."""

    def stuck(self) -> Operation | None:
        """The answered operation that none of the longest orders could place; None if one order placed all."""
        waiting: list[tuple[int, str | None, int]] = [(0, None, 0)]
        furthest = 0
        while waiting:
            placed, state, used = waiting.pop()
            furthest = max(furthest, _first_missing(placed))
            if furthest == len(self.answered):
                return None
            nexts, ended = _next(self.answered, placed)
            for at in nexts:
                operation = self.answered[at]
                for before, using in self.before(operation, state, used, ended):
                    reached = placed | 1 << at, operation.after(before)[1]
                    if self.counts(reached, using):
                        waiting.append((*reached, using))
        return self.answered[furthest]

    def before(
        self, operation: Operation, state: str | None, used: int, ended: float
    ) -> Iterator[tuple[str | None, int]]:
        """The states, reached from `state`, in which `operation` is possible, each with the unknown operations used up to
        then."""
        if operation.after(state)[0]:
            yield state, used
        elif operation.kind is OperationKind.SWAP and not operation.swapped:  # any value but the expected one
            for at in self.usable(used, ended):
                _, result = self.unknown[at].after(state)
                if result != state:
                    yield result, used | 1 << at
        else:
            wanted = operation.value if operation.kind is OperationKind.READ else operation.expected
            for using in self.chains(wanted, state, used, ended, frozenset()):
                yield wanted, using

    def chains(
        self, wanted: str | None, state: str | None, used: int, ended: float, behind: frozenset[str | None]
    ) -> Iterator[int]:
        """The unknown operations that lead the register from `state` to `wanted`, without those `behind` in the chain."""
        for at in self.usable(used, ended):
            last, using = self.unknown[at], used | 1 << at
            if last.value != wanted:
                continue
            if last.kind is OperationKind.WRITE or last.expected == state:
                yield using
            elif last.expected != wanted and last.expected not in behind:
                yield from self.chains(last.expected, state, using, ended, behind | {wanted})

    def usable(self, used: int, ended: float) -> Iterator[int]:
        """The first unused one of the operations that do the same, if it was called before `ended`."""
        alike: set[tuple[OperationKind, str | None, str | None]] = set()
        for at, each in enumerate(self.unknown):
            if each.called > ended:
                return
            does = each.kind, each.value, each.expected
            if not used >> at & 1 and does not in alike:
                alike.add(does)
                yield at

    def counts(self, reached: tuple[int, str | None], used: int) -> bool:
        """Note this way, unless another way led to the same point with only a part of `used`. Returns whether it was noted."""
        ways = self.least.setdefault(reached, [])
        if any(way & used == way for way in ways):
            return False
        ways[:] = [way for way in ways if way & used != used]
        ways.append(used)
        return True


def _first_missing(placed: int) -> int:
    return (~placed & (placed + 1)).bit_length() - 1


def _next(ordered: Sequence[Operation], placed: int) -> tuple[list[int], float]:
    """The operations that may come next, because no unplaced operation ended before they were called, and when the first of
    them ends."""
    found: list[int] = []
    ended = NEVER
    for at in range(_first_missing(placed), len(ordered)):
        if placed >> at & 1:
            continue
        if ordered[at].called > ended:
            break
        found.append(at)
        ended = min(ended, ordered[at].returned)
    return found, ended
