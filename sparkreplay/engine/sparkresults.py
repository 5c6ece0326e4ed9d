"""Results of Spark tasks, as {stretch number: result} in an accumulator. So the driver gets each result when its task ends.

Invariant: a number that was processed twice (by a retry or a speculative attempt) counts once, because both results are
equal."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from pyspark import Accumulator, AccumulatorParam, SparkContext

from sparkreplay.errors import ReplayError
from sparkreplay.lean import leave_pandas_out


class Results(AccumulatorParam[dict[int, Any]]):
    """Joins the results of tasks into one dictionary."""

    def zero(self, value: dict[int, Any]) -> dict[int, Any]:
        return {}

    def addInPlace(self, value1: dict[int, Any], value2: dict[int, Any]) -> dict[int, Any]:  # noqa: N802
        value1.update(value2)
        return value1


def new_results(context: SparkContext) -> Accumulator[dict[int, Any]]:
    return context.accumulator({}, Results())


@dataclass(frozen=True)
class TaskAttempt:
    """One attempt of a task. A ReplayError is returned as the task's result, because a retry would raise it again. Spark
    retries the task after any other error."""

    pickled: bytes
    """A pickled callable that takes the number. Unpickling imports its modules, and pandas too unless it was left out
    before."""
    results: Accumulator[dict[int, Any]]

    def __call__(self, number: int) -> None:
        leave_pandas_out()
        work = pickle.loads(self.pickled)  # noqa: S301 - comes from the driver, as this did
        try:
            found = work(number)
        except ReplayError as error:
            found = error
        self.results.add({number: found})
