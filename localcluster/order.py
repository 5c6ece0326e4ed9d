"""Judges ordered readers: a queue must have one reader at a time, and each message must be handled after the message before it.

A *tenure* is one reader's time with one queue, from its lock to its stop. After a change of tenure, messages from the
committed offset on may be handled again, because delivery is at least once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Handled(NamedTuple):
    """One message that one reader handled while it trusted its lock."""

    queue: str
    offset: int
    tenure: int


@dataclass(frozen=True, slots=True)
class OrderVerdict:
    """Counts, and every fault as a readable line."""

    handled: int
    again: int
    tenures: int
    at_once: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        return [*self.at_once, *self.out_of_order, *self.never]

    @property
    def holds(self) -> bool:
        return not self.faults


def judge_order(handled: Iterable[Handled], ends: Mapping[str, int]) -> OrderVerdict:
    """Judge the messages that all readers of a group `handled`, in the order of events. `ends` are the queues' ends; all
    queues begin at offset 0.

    `at_once`: a reader continued after another had begun. `out_of_order`: a message does not follow the message before it in
    its tenure, or skips unhandled messages. `never`: no reader handled the message."""
    reached: dict[str, int] = {}
    last: dict[str, Handled] = {}
    begun: dict[str, list[int]] = {}
    count, again = 0, 0
    at_once: list[str] = []
    out_of_order: list[str] = []
    for each in handled:
        queue, offset, tenure = each
        count += 1
        before = last.get(queue)
        tenures = begun.setdefault(queue, [])
        if before is None or before.tenure != tenure:
            if tenure in tenures:
                at_once.append(
                    f"{queue}@{offset} was handled in tenure {tenure}, when {tenures[-1]} had begun"
                )
            else:
                tenures.append(tenure)
        elif offset != before.offset + 1:
            out_of_order.append(f"{queue}@{offset} was handled behind {before.offset} in tenure {tenure}")
        if offset > reached.get(queue, 0):
            out_of_order.append(f"{queue}@{offset} was handled when {reached.get(queue, 0)} was not")
        again += offset < reached.get(queue, 0)
        reached[queue] = max(reached.get(queue, 0), offset + 1)
        last[queue] = each
    never = [
        f"{queue} was handled up to {reached.get(queue, 0)}, and ends at {end}"
        for queue, end in sorted(ends.items())
        if reached.get(queue, 0) < end
    ]
    return OrderVerdict(count, again, sum(map(len, begun.values())), at_once, out_of_order, never)
