"""Random SQL92 expressions, each with its evaluation to true, false or unknown.

Invariant: an expression is evaluated on a message's properties without the product's parser. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

NUMBER, WORD = "amount", "region"
NUMBERS, WORDS = range(10), ("north", "south", "east")
Meaning = Callable[[Mapping[str, str]], bool | None]


class Expression(NamedTuple):
    text: str
    meaning: Meaning

    def takes(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true. Unknown is not enough."""
        return self.meaning(properties) is True


def drawn(chance: random.Random, depth: int = 2) -> Expression:
    if not depth or chance.random() < 0.3:
        return chance.choice((above, between, among, absent))(chance)
    one = drawn(chance, depth - 1)
    if chance.random() < 0.2:
        return negated(one)
    other = drawn(chance, depth - 1)
    return chance.choice((both, either))(one, other)


def above(chance: random.Random) -> Expression:
    limit = chance.choice(NUMBERS)

    def meaning(properties: Mapping[str, str]) -> bool | None:
        return int(properties[NUMBER]) > limit if NUMBER in properties else None

    return Expression(f"{NUMBER} > {limit}", meaning)


def between(chance: random.Random) -> Expression:
    low, high = sorted(chance.sample(NUMBERS, 2))

    def meaning(properties: Mapping[str, str]) -> bool | None:
        return low <= int(properties[NUMBER]) <= high if NUMBER in properties else None

    return Expression(f"{NUMBER} BETWEEN {low} AND {high}", meaning)


def among(chance: random.Random) -> Expression:
    words = chance.sample(WORDS, 2)

    def meaning(properties: Mapping[str, str]) -> bool | None:
        return properties[WORD] in words if WORD in properties else None

    return Expression(f"{WORD} IN ('{words[0]}', '{words[1]}')", meaning)


def absent(chance: random.Random) -> Expression:
    name = chance.choice((NUMBER, WORD))
    return Expression(f"{name} IS NULL", lambda properties: name not in properties)


def negated(one: Expression) -> Expression:
    def meaning(properties: Mapping[str, str]) -> bool | None:
        found = one.meaning(properties)
        return None if found is None else not found

    return Expression(f"NOT ({one.text})", meaning)


def both(one: Expression, other: Expression) -> Expression:
    def meaning(properties: Mapping[str, str]) -> bool | None:
        found = {one.meaning(properties), other.meaning(properties)}
        return False if False in found else None if None in found else True

    return Expression(f"({one.text}) AND ({other.text})", meaning)


def either(one: Expression, other: Expression) -> Expression:
    def meaning(properties: Mapping[str, str]) -> bool | None:
        found = {one.meaning(properties), other.meaning(properties)}
        return True if True in found else None if None in found else False

    return Expression(f"({one.text}) OR ({other.text})", meaning)
