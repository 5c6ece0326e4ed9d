"""Nodes of expressions.

Invariant: `depth` counts the nodes from this node down to the deepest one; a chain of AND, or of OR, counts as one node. No
node is deeper than DEPTH_MAX. The text of a node is for errors only. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from filters.errors import FilterError

DEPTH_MAX = 64
"""Upstream's only limit is the stack of a thread."""


class NumberKind(Enum):
    """Upstream's Integer, Long and Double. A property that is compared with a number is parsed as a number of this kind."""

    INT = auto()
    LONG = auto()
    DOUBLE = auto()


@dataclass(slots=True, kw_only=True)
class Node:
    depth: int = field(default=1, repr=False)

    def above(self, *children: Node) -> None:
        """Put `children` below this node. Raises FilterError if the tree becomes too deep."""
        self.depth = 1 + max(child.depth for child in children)
        if self.depth > DEPTH_MAX:
            raise FilterError(
                f"the expression is nested deeper than the {DEPTH_MAX} levels that are accepted"
            )


@dataclass(slots=True)
class Property(Node):
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Number(Node):
    """A number literal. Upstream does not treat a literal after a sign (`signed`) as a constant."""

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
    """A sign before an operand that is no number; it evaluates to None."""

    operand: Node

    def __post_init__(self) -> None:
        self.above(self.operand)

    def __str__(self) -> str:
        return f"(- {self.operand})"


class BooleanNode(Node):
    """A node that evaluates to true, false or None."""

    __slots__ = ()


@dataclass(slots=True)
class Compared(BooleanNode):
    """A comparison; `sign` is ==, <, <=, > or >=."""

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
    """A property used as a condition: false if the message has the property, None if not."""

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
    """A search in a string; `word` is CONTAINS, STARTSWITH or ENDSWITH."""

    word: str
    operand: Node
    wanted: str
    negated: bool

    def __post_init__(self) -> None:
        self.above(self.operand)

    def __str__(self) -> str:
        return f"({'NOT ' if self.negated else ''}{self.word} {self.operand})"
