"""What was decided of each transaction, against what can be read afterwards.

Invariant: each transaction has a key of its own and was decided once, before its end was told or asked for; so a committed one
that is not there once, and one that was rolled back or refused and is there, are faults of the cluster. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from localcluster.history import Outcome


class Decided(NamedTuple):
    """One transaction: what its producer knows of its half, and what became of it."""

    half: Outcome
    commits: bool


@dataclass(frozen=True, slots=True)
class EndsVerdict:
    """Counts, and every fault as a line for a person."""

    committed: int
    rolled_back: int
    unknown: int
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    uninvited: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        return [*self.lost, *self.twice, *self.uninvited, *self.contradicted]

    @property
    def holds(self) -> bool:
        return not self.faults


def judge_ends(
    decided: Mapping[str, Decided], read: Iterable[str], contradicted: Iterable[str] = ()
) -> EndsVerdict:
    """`read` are the keys of all messages that consumers get. A half of unknown outcome that was to be committed may be there.
    `contradicted` tells of ends that a broker would not have, because another one was before: nobody said another."""
    there = Counter(read)
    lost, twice, uninvited = [], [], [f"{key} was never sent" for key in there if key not in decided]
    counts: Counter[str] = Counter()
    for key, (half, commits) in decided.items():
        copies = there[key]
        counts["unknown" if half is Outcome.UNKNOWN else "committed" if commits else "rolled back"] += 1
        if copies > 1:
            twice.append(f"{key} is there {copies} times")
        if copies and (not commits or half is Outcome.REFUSED):
            uninvited.append(
                f"{key} is there, and was {'rolled back' if half is not Outcome.REFUSED else 'refused'}"
            )
        if not copies and commits and half is Outcome.ACKNOWLEDGED:
            lost.append(f"{key} was committed and is nowhere")
    return EndsVerdict(
        counts["committed"], counts["rolled back"], counts["unknown"], lost, twice, uninvited, [*contradicted]
    )
