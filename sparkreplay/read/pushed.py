"""Converts filters that Spark offers to a source into conditions on records, if possible. Spark evaluates every filter again.

Invariant: no row that a filter would keep is dropped. Conditions on anything but offsets, epochs, fixed fields and topics are
left to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sparkreplay.records.rowfilter import Between, Condition, NegatedFilter, OneOfFilter, TopicOneOf

NUMBERS = (
    "queue_id", "queue_offset", "physical_offset", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset",
)  # fmt: skip
TIMES = ("born_timestamp", "store_timestamp")
EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Comparison:
    """A comparison of one column with literals. `how` is the name of Spark's filter class."""

    column: str
    how: str
    values: tuple[Any, ...] = ()
    negated: bool = False


def comparisons(filters: Iterable[Any]) -> list[Comparison]:
    """Spark's filter objects as comparisons. Filters that name no top-level column are left out."""
    found = []
    for offered in filters:
        negated = type(offered).__name__ == "Not"
        inner = offered.child if negated else offered
        if len(inner.attribute) == 1:
            value = getattr(inner, "value", ())
            values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
            found.append(Comparison(inner.attribute[0], type(inner).__name__, values, negated))
    return found


def row_conditions(pushed: Iterable[Comparison]) -> tuple[Condition, ...]:
    """Conditions by which workers drop rows before a body is copied."""
    return tuple(condition for comparison in pushed if (condition := row_condition(comparison)) is not None)


def row_condition(comparison: Comparison) -> Condition | None:
    values = [
        value for value in comparison.values if value is not None
    ]  # `= NULL` keeps nothing: left to Spark
    if not values:
        return None
    condition: Condition | None = None
    if comparison.column == "topic":
        if comparison.how in ("EqualTo", "EqualNullSafe", "In") and all(
            type(value) is str for value in values
        ):
            condition = TopicOneOf(tuple(values))
    elif comparison.column in NUMBERS:
        if all(type(value) is int for value in values):
            condition = number_condition(comparison.column, comparison.how, values)
    elif comparison.column in TIMES:
        times = [microseconds(value) for value in values if isinstance(value, datetime)]
        if len(times) == len(values):
            condition = time_condition(comparison.column, comparison.how, times)
    if condition is None or not comparison.negated:
        return condition
    return None if len(values) != len(comparison.values) else NegatedFilter(condition)


def number_condition(field: str, how: str, values: list[int]) -> Condition | None:
    value = values[0]
    match how:
        case "EqualTo" | "EqualNullSafe" | "In":
            return OneOfFilter(field, tuple(values))
        case "GreaterThan":
            return Between(field, low=value + 1)
        case "GreaterThanOrEqual":
            return Between(field, low=value)
        case "LessThan":
            return Between(field, high=value - 1)
        case "LessThanOrEqual":
            return Between(field, high=value)
    return None


def time_condition(field: str, how: str, values: list[int]) -> Condition | None:
    """The condition for a time column. Literals are in µs, stored times in ms."""
    whole, rest = divmod(values[0], 1000)
    match how:
        case "EqualTo" | "EqualNullSafe" | "In":
            return OneOfFilter(field, tuple(value // 1000 for value in values if value % 1000 == 0))
        case "GreaterThan":
            return Between(field, low=whole + 1)
        case "GreaterThanOrEqual":
            return Between(field, low=whole + (rest > 0))
        case "LessThan":
            return Between(field, high=whole - (rest == 0))
        case "LessThanOrEqual":
            return Between(field, high=whole)
    return None


def microseconds(value: datetime) -> int:
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (zoned - EPOCH_TIME) // timedelta(microseconds=1)


def may_hold(pushed: Iterable[Comparison], column: str, low: int, high: int) -> bool:
    """Whether a row whose `column` lies in [low, high] may pass all filters on that column."""
    return all(
        overlaps(comparison, low, high)
        for comparison in pushed
        if comparison.column == column and all(type(value) is int for value in comparison.values)
    )


def overlaps(comparison: Comparison, low: int, high: int) -> bool:
    if comparison.negated or not comparison.values:
        return True
    reaches: dict[str, Callable[[int], bool]] = {
        "EqualTo": lambda value: low <= value <= high,
        "EqualNullSafe": lambda value: low <= value <= high,
        "In": lambda value: low <= value <= high,
        "GreaterThan": lambda value: high > value,
        "GreaterThanOrEqual": lambda value: high >= value,
        "LessThan": lambda value: low < value,
        "LessThanOrEqual": lambda value: low <= value,
    }
    reach = reaches.get(comparison.how)
    return reach is None or any(reach(value) for value in comparison.values)


def names_allowed(pushed: Iterable[Comparison], column: str) -> Callable[[str], bool]:
    """Whether a constant text column (broker_name) passes its filters."""
    wanted = [
        (frozenset(comparison.values), comparison.negated)
        for comparison in pushed
        if comparison.column == column
        and comparison.how in ("EqualTo", "EqualNullSafe", "In")
        and all(type(value) is str for value in comparison.values)
    ]
    return lambda name: all((name in values) != negated for values, negated in wanted)
