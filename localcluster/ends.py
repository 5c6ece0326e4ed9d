"""Compares the intended end (commit or rollback) of each transaction with the messages that can be read.

Invariant: each transaction has its own key, and its end is chosen once, before the producer sends the end or answers a check.
So it is a fault of the cluster if a committed message cannot be read exactly once, or a rolled back or rejected message can be
read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from localcluster.history import SendOutcome


class ChosenEnd(NamedTuple):
    """One transaction: the outcome of its half message, and its intended end."""

    half: SendOutcome
    commits: bool


@dataclass(frozen=True, slots=True)
class EndsVerdict:
    """The counts, and a readable line for every fault."""

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
    chosen: Mapping[str, ChosenEnd], read: Iterable[str], contradicted: Iterable[str] = ()
) -> EndsVerdict:
    """`read` are the keys of all messages that consumers get. A message that was to be committed may be there or not if the
    outcome of sending its half message is unknown. `contradicted` lists ends that a broker rejected because another end came
    first, although the producer sent no other end."""
    there = Counter(read)
    lost, twice, uninvited = [], [], [f"{key} was never sent" for key in there if key not in chosen]
    counts: Counter[str] = Counter()
    for key, (half, commits) in chosen.items():
        copies = there[key]
        counts["unknown" if half is SendOutcome.UNKNOWN else "committed" if commits else "rolled back"] += 1
        if copies > 1:
            twice.append(f"{key} is there {copies} times")
        if copies and (not commits or half is SendOutcome.REFUSED):
            uninvited.append(
                f"{key} is there, and was {'rolled back' if half is not SendOutcome.REFUSED else 'refused'}"
            )
        if not copies and commits and half is SendOutcome.ACKNOWLEDGED:
            lost.append(f"{key} was committed and is nowhere")
    return EndsVerdict(
        counts["committed"], counts["rolled back"], counts["unknown"], lost, twice, uninvited, [*contradicted]
    )
