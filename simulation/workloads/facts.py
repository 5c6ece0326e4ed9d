"""Records what administrators requested for topics and groups, and the answers. Such a topic or group is a fact.

Invariant: a fact is open, and nothing is expected of it, if its last request has no answer, or a message or commit for it is
on its way."""

from __future__ import annotations

from collections.abc import Callable


class Fact:
    """One topic with `value` queues, or one group with at most `value` retries. A `value` of 0 means that the topic or group is
    deleted or never existed."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        self.value = 0
        self.answers = 0
        self.is_open = False
        self._wanted = 0

    def asked(self, value: int) -> None:
        self._wanted, self.is_open = value, True

    def answered(self) -> None:
        """Note that the last request succeeded."""
        self.value, self.is_open = self._wanted, False
        self.answers += 1

    def refused(self) -> None:
        """Note that the last request certainly did nothing."""
        self.is_open = False

    def give_up(self) -> None:
        """Note that something which may change the fact is on its way, so the fact is open."""
        self.is_open = True


class Facts:
    """Every fact of a run. `on_answered` is called when a client gets a success."""

    def __init__(self) -> None:
        self.all: list[Fact] = []
        self.on_answered: Callable[[Fact], None] = lambda fact: None

    @property
    def answers(self) -> int:
        return sum(fact.answers for fact in self.all)

    def of(self, kind: str) -> list[Fact]:
        return [fact for fact in self.all if fact.kind == kind]

    def add(self, kind: str) -> Fact:
        fact = Fact(kind, f"{kind}-{len(self.all)}")
        self.all.append(fact)
        return fact
