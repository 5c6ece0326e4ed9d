"""A decoder and inputs for it: inputs that ran a new line are kept and mutated.

Invariant: the same seed and number of inputs, the same inputs. An error that the target does not allow, and a run that does not
end, are findings, reported once for each place where they were raised."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from simulation.fuzz.lines import Lines, TooMuchWork
from simulation.fuzz.mutation import mutated

STEPS = 20_000
STEPS_A_BYTE = 400
"""Lines of Python that an input may cost: far more than any decoder needs, far less than one that does not end."""
FRESH_IN = 20
"""How often an input begins from a seed again: one of so many."""


@dataclass(frozen=True)
class Target:
    """`run` decodes, and checks the result: an AssertionError is a finding. `allowed` are the errors of bad input."""

    name: str
    run: Callable[[bytes], object]
    seeds: Sequence[bytes]
    allowed: tuple[type[Exception], ...] = ()
    tokens: Sequence[bytes] = ()


@dataclass(frozen=True)
class Finding:
    target: str
    why: str
    where: str
    data: bytes


@dataclass
class Campaign:
    """One target's. `lines` may be shared: lines that another target ran are not new then. `keep` gets each input before it is
    tried."""

    target: Target
    lines: Lines
    random: Random
    keep: Callable[[bytes], None] | None = None
    inputs: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    corpus: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        for seed in self.target.seeds:
            self.try_input(seed)
            self.corpus.append(seed)

    def step(self) -> None:
        """Try one more input."""
        random, seeds = self.random, self.target.seeds
        fresh = random.randrange(FRESH_IN) == 0
        base = random.choice(seeds) if fresh else random.choice(self.corpus)
        data = mutated(base, random, self.corpus, self.target.tokens)
        if self.try_input(data):
            self.corpus.append(data)

    def try_input(self, data: bytes) -> bool:
        """Returns whether it ran a new line."""
        self.inputs += 1
        if self.keep is not None:
            self.keep(data)
        try:
            self.lines.watched(lambda: self.target.run(data), STEPS + STEPS_A_BYTE * len(data))
        except self.target.allowed:
            pass
        except TooMuchWork as error:
            self._found("more work than any input may cost", error, data)
        except Exception as error:
            self._found(f"{type(error).__name__}: {str(error)[:200]}", error, data)
        return self.lines.has_news

    def _found(self, why: str, error: BaseException, data: bytes) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno}"
        before = self.findings.get(where)
        if before is None or len(data) < len(before.data):
            self.findings[where] = Finding(self.target.name, why, where, data)
