"""Tries inputs on one decoder. An input that runs a line of code for the first time is kept and mutated.

Invariant: the inputs follow from the seed and their number. An error that the target does not allow, or a run that does not
end, is a finding. It is reported once for each place where it was raised."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from simulation.fuzz.lines import Lines, TooMuchWork
from simulation.fuzz.mutation import mutated

STEPS = 20_000
STEPS_A_BYTE = 400
"""Lines of Python that an input may run for each byte. This is far more than any decoder needs, and far less than an endless
loop runs."""
FRESH_IN = 20
"""One of so many inputs begins from an example again."""


@dataclass(frozen=True)
class Target:
    """A decoder under test. `run` decodes, and checks the result; an AssertionError is a finding. `allowed` are the errors
    that bad input may raise."""

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
    """The campaign of one target. `lines` may be shared with other targets; lines that these ran are then not new. `keep` gets
    each input before it is tried."""

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
        """Try the input, and return whether it ran a new line."""
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
