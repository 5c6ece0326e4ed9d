"""Compiles the nodes of an expression to a function of a message's properties. The function's source text comes from this
module only: names and literals of the expression are passed as constants.

Invariant: a condition evaluates as in upstream: to true, to false, or to None if a property is missing. Its parts are evaluated
in upstream's order, and parts that upstream skips are skipped. If a property's value is not of the kind that the expression
compares it with, the message does not match, whatever the other parts are. The expression decides how a property is parsed (as
Integer, Long or Double), so this is known when the function is made. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from filters.errors import FilterError, NotComparable
from filters.syntax import (
    Chained,
    Compared,
    Negated,
    Node,
    Not,
    Number,
    NumberKind,
    OneOf,
    Present,
    Property,
    Searched,
    Text,
    Truth,
)
from filters.values import double_of, int_of, long_of, order

PropertyFilter: TypeAlias = Callable[[bytes], bool]
"""Separator of the stored properties."""
Source: TypeAlias = str

CONDITIONS_MAX = 256
"""Limit of the conditions of one expression. Each condition costs about 80 us once, when the function is made."""
LISTED_MAX = 4
"""Up to this number of values, searching a tuple is faster than a hash look-up."""
READERS: dict[NumberKind, Callable[[str], int | float]] = {
    NumberKind.INT: int_of,
    NumberKind.LONG: long_of,
    NumberKind.DOUBLE: double_of,
}
SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def compile_filter(node: Node) -> PropertyFilter:
    """A function that returns whether a message matches the condition `node`. Raises FilterError for too many conditions."""
    return _Maker().function(node)


def value_of(properties: str, led: str) -> str | None:
    """The last value after `led` that is not empty. `led` is a property's name between separators; `properties` begin and end
    with a separator."""
    at = properties.rfind(led)
    while at >= 0:
        start = at + len(led)
        end = properties.find("\x02", start)
        if end > start:
            return properties[start:end]
        at = properties.rfind(led, 0, at + 1)
    return None


class _Maker:
    """The source of one function, and its constants."""

    def __init__(self) -> None:
        self._constants: dict[str, Any] = {
            "value_of": value_of, "int_of": int_of, "long_of": long_of, "double_of": double_of, "order": order,
            "equal": _equal, "ordered": _ordered, "searched": _searched, "nothing": _nothing, "NotComparable": NotComparable,
        }  # fmt: skip
        self._read: dict[str, str] = {}
        self._lines: list[str] = []
        self._conditions = 0
        self._temporaries = 0

    def function(self, node: Node) -> PropertyFilter:
        """The function. Of parts joined by AND, those after a false part are not evaluated."""
        for part in _parts_of_and(node):
            self._lines += [*self._reads(part), f"if not ({self._truth(part)}): return False"]
        body = "".join(f"        {line}\n" for line in self._lines)
        source = (
            "def judged(stored):\n"
            "    properties = f\"\\x02{stored.decode('utf-8', 'replace')}\\x02\"\n"
            "    find, rfind = properties.find, properties.rfind\n"
            f"    try:\n{body}        return True\n"
            "    except NotComparable: return False\n"
        )
        exec(compile(source, "<filter>", "exec"), self._constants)  # noqa: S102 - no text of the expression is in it
        judged: PropertyFilter = self._constants["judged"]
        judged.__dict__["conditions"] = self._conditions  # for those who limit what filters cost
        return judged

    def _reads(self, part: Node) -> Iterable[Source]:
        """Lines that read the properties of `part`, except those that an earlier part has read."""
        for name in _names_in(part):
            if name not in self._read:
                self._read[name] = variable = f"v{len(self._read)}"
                led = f"\x02{name}\x01"
                constant = self._constant(led)
                yield (
                    f"{variable} = properties[at:find('\\x02', at)] or value_of(properties, {constant}) "
                    f"if (at := rfind({constant}) + {len(led)}) >= {len(led)} else None"
                )

    def _constant(self, value: object) -> Source:
        name = f"k{len(self._constants)}"
        self._constants[name] = value
        return name

    def _temporary(self) -> Source:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def _truth(self, node: Node) -> Source:
        """Source of a value that is True if the condition is true, else any other value."""
        match node:
            case Present():
                self._count()
                return "False"
            case Not():
                return f"({self._exactly(node.operand)}) is False"
            case Chained(word="OR"):
                return " or ".join(f"({self._truth(operand)})" for operand in node.operands)
            case OneOf(operand=Property() as operand):
                return f"{self._read[operand.name]} is not None and {self._exactly_present(node)}"
            case Compared(left=Property() as operand, right=Text() | Number()):
                return f"{self._read[operand.name]} is not None and {self._exactly_present(node)}"
        return self._exactly(node)

    def _exactly(self, node: Node) -> Source:
        """Source of the condition's exact value: True, False or None."""
        match node:
            case Truth():
                return str(node.value)
            case Present():
                self._count()
                return f"None if {self._read[node.operand.name]} is None else False"
            case Not():
                value = self._temporary()
                return f"None if ({value} := {self._exactly(node.operand)}) is None else not {value}"
            case Chained():
                return self._chained(node)
            case OneOf(operand=Property() as operand):
                return f"None if {self._read[operand.name]} is None else {self._exactly_present(node)}"
            case Searched():
                return self._searched(node)
            case Compared(left=Property() as operand, right=Text() | Number()):
                return f"None if {self._read[operand.name]} is None else {self._exactly_present(node)}"
            case Compared():
                return self._compared(node)
        raise AssertionError(f"{node} is no condition")

    def _exactly_present(self, node: Node) -> Source:
        """Source of True or False, for a condition on one property if the message has this property."""
        self._count()
        match node:
            case OneOf():
                few = len(node.values) <= LISTED_MAX
                values = self._constant(tuple(node.values) if few else frozenset(node.values))
                return f"{self._read[node.operand.name]} {'not in' if node.negated else 'in'} {values}"
            case Compared(left=Property() as operand, right=Text() as text):
                return f"{self._read[operand.name]} == {self._constant(text.value)}"
            case Compared(left=Property() as operand, right=Number() as number):
                value, constant = self._read[operand.name], self._constant(number.value)
                if number.kind is NumberKind.DOUBLE:
                    return f"order(double_of({value}), {constant}) {node.sign} 0"
                quick = f"int({value}) if len({value}) < 10 and {value}.isdigit() and {value}.isascii()"
                return f"({quick} else {READERS[number.kind].__name__}({value})) {node.sign} {constant}"
        raise AssertionError(f"{node} is about no property alone")

    def _chained(self, node: Chained) -> Source:
        """Source for AND or OR: AND ends at the first false operand, OR at the first true operand."""
        values = [self._temporary() for _ in node.operands]
        parts = [
            f"({value} := {self._exactly(operand)})"
            for value, operand in zip(values, node.operands, strict=True)
        ]
        some_unknown = " or ".join(f"{value} is None" for value in values)
        if node.word == "OR":
            return f"True if {' or '.join(parts)} else None if {some_unknown} else False"
        some_false = " or ".join(f"{part} is False" for part in parts)
        return f"False if {some_false} else None if {some_unknown} else True"

    def _searched(self, node: Searched) -> Source:
        self._count()
        if not node.wanted:
            return "False"
        wanted = self._constant(node.wanted)
        if not isinstance(node.operand, Property):
            looks = self._constant(SEARCHES[node.word])
            return f"searched({self._value(node.operand)}, {wanted}, {looks}, {node.negated})"
        value = self._read[node.operand.name]
        found = (
            f"{wanted} in {value}" if node.word == "CONTAINS" else f"{value}.{node.word.lower()}({wanted})"
        )
        return f"{value} is not None and {'not ' if node.negated else ''}({found})"

    def _compared(self, node: Compared) -> Source:
        """Source of a comparison. Equality evaluates both sides; any other comparison evaluates the right side only if the left
        side has a value."""
        self._count()
        read = self._constant(_reader(node.left, node.right))
        left, right = self._value(node.left), self._value(node.right)
        if node.sign == "==":
            return f"equal({left}, {right}, {read})"
        value = self._temporary()
        order_of_both = self._temporary()
        return (
            f"None if ({value} := {left}) is None or ({order_of_both} := ordered({value}, {right}, {read})) is None "
            f"else {order_of_both} {node.sign} 0"
        )

    def _value(self, node: Node) -> Source:
        """Source of the value of a node of any kind."""
        match node:
            case Property():
                return self._read[node.name]
            case Number() | Text():
                return self._constant(node.value)
            case Negated():
                return f"nothing({self._value(node.operand)})"
        return f"({self._exactly(node)})"

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > CONDITIONS_MAX:
            raise FilterError(
                f"the expression has more than the {CONDITIONS_MAX} conditions that are accepted"
            )


def _parts_of_and(node: Node) -> Iterable[Node]:
    if isinstance(node, Chained) and node.word == "AND":
        for operand in node.operands:
            yield from _parts_of_and(operand)
    else:
        yield node


def _names_in(node: Node) -> Iterable[str]:
    match node:
        case Property():
            yield node.name
        case Compared():
            yield from _names_in(node.left)
            yield from _names_in(node.right)
        case Chained():
            for operand in node.operands:
                yield from _names_in(operand)
        case Not() | Negated() | Present() | OneOf() | Searched():
            yield from _names_in(node.operand)


def _reader(left: Node, right: Node) -> Callable[[Any], Any]:
    """The parser that makes numbers of both sides, chosen by the kind of the number among them; without one both sides are
    Doubles."""
    kinds = [side.kind for side in (left, right) if isinstance(side, Number)]
    if not kinds or NumberKind.DOUBLE in kinds:
        return lambda value: double_of(value) if isinstance(value, str) else float(value)
    read = READERS[kinds[0]]
    return lambda value: read(value) if isinstance(value, str) else value


def _nothing(value: object) -> None:
    """Returns None: a sign before an operand that is no number has no value."""


def _searched(value: object, wanted: str, looks: Callable[[str, str], bool], negated: bool) -> bool:
    return isinstance(value, str) and looks(value, wanted) is not negated


def _ordered(one: Any, other: Any, read: Callable[[Any], Any]) -> int | None:
    return None if other is None else order(read(one), read(other))


def _equal(one: Any, other: Any, read: Callable[[Any], Any]) -> bool | None:
    """Compare two values. A string on the left is parsed as a boolean if the right side is a boolean; a string on the right of
    a boolean raises NotComparable, because upstream fails there."""
    if one is None:
        return True if other is None else None
    if other is None:
        return False
    if isinstance(one, bool) or isinstance(other, bool):
        if isinstance(one, str):
            return (one.lower() == "true") is other
        if isinstance(other, str):
            raise NotComparable(other)
        return one is other
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return order(read(one), read(other)) == 0
