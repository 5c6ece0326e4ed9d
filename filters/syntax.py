"""What an expression is made of.

Invariant: `depth` counts the nodes from here down to the deepest one, chains of AND and of OR as one; no node is deeper than
DEPTH_MAX. What a node shows as is for errors alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from filters.errors import FilterError

DEPTH_MAX = 64
"""Upstream goes as deep as the stack of a thread."""


class NumberKind(Enum):
    """Upstream's Integer, Long and Double: what a property is read as when it is compared with one."""

    INT = auto()
    LONG = auto()
    DOUBLE = auto()


@dataclass(slots=True, kw_only=True)
class Node:
    depth: int = field(default=1, repr=False)

    def above(self, *children: Node) -> None:
        """`children` stand below this node. FilterError where that is too deep."""
        self.depth = 1 + max(child.depth for child in children)
        if self.depth > DEPTH_MAX:
            raise FilterError(f"the expression is nested deeper than the {DEPTH_MAX} levels that are taken")


@dataclass(slots=True)
class Property(Node):
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Number(Node):
    """A literal, or what a sign in front of it makes of it, which upstream does not take for a constant (`signed`)."""

    kind: NumberKind
    value: int | float
    signed: bool = False

    def __str__(self) -> str:
        return f"(- {-self.value})" if self.signed else str(self.value)


@dataclass(slots=True)
class Text(Node):
    value: str

    def __str__(self) -> str:
        return "'" + self.value.replace("'", "''") + "'"


@dataclass(slots=True)
class Truth(Node):
    """TRUE, FALSE or NULL."""

    value: bool | None

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value).upper()


@dataclass(slots=True)
class Negated(Node):
    """A sign in front of what is no number: nothing, once that was evaluated."""

    operand: Node

    def __post_init__(self) -> None:
        self.above(self.operand)

    def __str__(self) -> str:
        return f"(- {self.operand})"


class BooleanNode(Node):
    """Evaluates to true, false or nothing."""

    __slots__ = ()


@dataclass(slots=True)
class Compared(BooleanNode):
    """`sign`: ==, <, <=, > or >=."""

    sign: str
    left: Node
    right: Node

    def __post_init__(self) -> None:
        self.above(self.left, self.right)

    def __str__(self) -> str:
        return f"({self.left} {self.sign} {self.right})"


@dataclass(slots=True)
class Chained(BooleanNode):
    """AND or OR of all `operands`, from left to right."""

    word: str
    operands: list[Node]

    def __post_init__(self) -> None:
        self.above(*self.operands)

    def __str__(self) -> str:
        return "(" + f" {self.word} ".join(map(str, self.operands)) + ")"


@dataclass(slots=True)
class Not(BooleanNode):
    operand: Node

    def __post_init__(self) -> None:
        self.above(self.operand)

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@dataclass(slots=True)
class Present(BooleanNode):
    """A property where a condition should stand: false where the message has it, and nothing where not."""

    operand: Property

    def __post_init__(self) -> None:
        self.above(self.operand)

    def __str__(self) -> str:
        return str(self.operand)


@dataclass(slots=True)
class OneOf(BooleanNode):
    operand: Property
    values: list[str]
    negated: bool

    def __post_init__(self) -> None:
        self.above(self.operand)

    def __str__(self) -> str:
        return f"{self.operand} {'NOT IN' if self.negated else 'IN'} ( {', '.join(self.values)} )"


@dataclass(slots=True)
class Searched(BooleanNode):
    """`word`: CONTAINS, STARTSWITH or ENDSWITH."""

    word: str
    operand: Node
    wanted: str
    negated: bool

    def __post_init__(self) -> None:
        self.above(self.operand)

    def __str__(self) -> str:
        return f"({'NOT ' if self.negated else ''}{self.word} {self.operand})"
