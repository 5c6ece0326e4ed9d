"""Cache of compiled expressions. Compiling an expression may take 10 ms, and the result may occupy 250 KB.

Invariant: the cache holds the expressions used last, at most `count_max` of them and at most `bytes_max` in total. The errors
of invalid expressions are cached too. Pure."""

from __future__ import annotations

from collections import OrderedDict
from types import FunctionType
from typing import NamedTuple

from filters.compiler import PropertyFilter, compile_filter
from filters.errors import FilterError
from filters.parser import parse

COUNT_MAX = 16_384
BYTES_MAX = 64 << 20
ENTRY_BYTES, BYTES_A_CHARACTER, BYTES_A_CODE = 2_000, 12, 3
"""Estimate of a function's bytes: a fixed part, a part for each character of the expression, and a part for each byte of
code."""


class Kept(NamedTuple):
    """The result of compiling an expression."""

    found: PropertyFilter | FilterError
    bytes: int


class KeptFilters:
    """The results of compiling, by the expression's text."""

    def __init__(self, count_max: int = COUNT_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # in the order of their last use
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def compiled(self, expression: str) -> PropertyFilter:
        """The compiled expression. Raises FilterError for an invalid expression: a SyntaxFault if the error has a place in the
        text."""
        kept = self._kept.get(expression)
        if kept is None:
            kept = self._make(expression)
        else:
            self._kept.move_to_end(expression)
        if isinstance(kept.found, FilterError):
            raise _without_traceback(kept.found)
        return kept.found

    def _make(self, expression: str) -> Kept:
        kept = _made(expression)
        self._kept[expression] = kept
        self.bytes += kept.bytes
        while len(self._kept) > self._count_max or self.bytes > self._bytes_max:
            _, gone = self._kept.popitem(last=False)
            self.bytes -= gone.bytes
        return kept


def _made(expression: str) -> Kept:
    size = ENTRY_BYTES + BYTES_A_CHARACTER * len(expression)
    try:
        judged = compile_filter(parse(expression))
    except FilterError as error:
        return Kept(_without_traceback(error), size)
    assert isinstance(judged, FunctionType)
    return Kept(judged, size + BYTES_A_CODE * len(judged.__code__.co_code))


def _without_traceback(error: FilterError) -> FilterError:
    """A copy without a traceback, which would keep its frames alive."""
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    return made
