"""Recent amounts, by topic and by topic and group, for VIEW_BROKER_STATS_DATA (315). Upstream: BrokerStatsManager.

Invariant: messages and batches cost nothing here. Every ten seconds the totals are read, and a total that has not changed costs
one comparison. Deleted topics and groups are dropped, so the history has only names in the tables. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.metrics.totals import Amount, Totals

SAMPLE_MS = 10_000
NAMES = (
    "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS",
    "BROKER_PUT_NUMS", "BROKER_GET_NUMS",
)  # fmt: skip
"""Upstream's names. The keys are a topic, `topic@group`, or the cluster's name."""


class SampleWindow(NamedTuple):
    """The length of a window and the interval of its samples, in ms."""

    span_ms: int
    period_ms: int


WINDOWS = (
    SampleWindow(60_000, SAMPLE_MS),
    SampleWindow(3_600_000, 600_000),
    SampleWindow(86_400_000, 3_600_000),
)


class Grown(NamedTuple):
    """The growth within a window, and the time in ms over which it was measured."""

    messages: int
    bytes: int
    calls: int
    ms: int


class TotalsSample(NamedTuple):
    """The totals at one time."""

    at_ms: int
    messages: int
    bytes: int
    calls: int


class SampleHistory:
    """The samples of one amount, a few for each window."""

    __slots__ = ("_rings",)

    def __init__(self, now_ms: int) -> None:
        self._rings = tuple(deque([TotalsSample(now_ms - SAMPLE_MS, 0, 0, 0)]) for _ in WINDOWS)

    def sample(self, amount: Amount, now_ms: int) -> None:
        """Add a sample unless nothing has changed."""
        for ring, window in zip(self._rings, WINDOWS, strict=True):
            last = ring[-1]
            if last.calls != amount.calls and now_ms - last.at_ms >= window.period_ms:
                ring.append(TotalsSample(now_ms, amount.messages, amount.bytes, amount.calls))
            while len(ring) > 1 and ring[1].at_ms <= now_ms - window.span_ms:
                ring.popleft()

    def grown(self, amount: Amount, now_ms: int) -> tuple[Grown, ...]:
        """Growth within each window until now."""
        return tuple(
            _since(ring, amount, now_ms, window.span_ms)
            for ring, window in zip(self._rings, WINDOWS, strict=True)
        )


def _since(ring: deque[TotalsSample], amount: Amount, now_ms: int, span_ms: int) -> Grown:
    before = ring[0]
    for sample in ring:
        if sample.at_ms > now_ms - span_ms:
            break
        before = sample
    return Grown(
        amount.messages - before.messages,
        amount.bytes - before.bytes,
        amount.calls - before.calls,
        min(now_ms - before.at_ms, span_ms),
    )


class RecentTotals:
    """The history of the `totals` of one broker. `cluster` is the key of the totals of the whole broker."""

    def __init__(self, totals: Totals, cluster: str) -> None:
        self._totals = totals
        self._cluster = cluster
        self._histories: dict[tuple[str, str], SampleHistory] = {}
        self._sampled_ms: int | None = None

    def sample(
        self, now_ms: int, knows_topic: Callable[[str], bool], knows_group: Callable[[str], bool]
    ) -> None:
        """Take a sample. Called once a second."""
        if self._sampled_ms is not None and now_ms - self._sampled_ms < SAMPLE_MS:
            return
        self._sampled_ms = now_ms
        self._totals.forget(knows_topic, knows_group)
        for key in [key for key in self._histories if self._amount(*key) is None]:
            del self._histories[key]
        for key, amount in self._all():
            self._history(key, now_ms).sample(amount, now_ms)

    def grown(self, name: str, key: str, now_ms: int) -> tuple[Grown, ...] | None:
        """Growth within the last minute, hour and day; None if nothing with this name and key was ever counted."""
        kind = name.removesuffix("_NUMS").removesuffix("_SIZE")
        amount = self._amount(kind, key) if name in NAMES else None
        return None if amount is None else self._history((kind, key), now_ms).grown(amount, now_ms)

    def per_second(self, name: str, key: str, now_ms: int) -> float:
        """Messages per second in the last minute."""
        found = self.grown(name, key, now_ms)
        return 0.0 if found is None else found[0].messages * 1000 / found[0].ms

    def _history(self, key: tuple[str, str], now_ms: int) -> SampleHistory:
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = SampleHistory(now_ms)
        return history

    def _amount(self, kind: str, key: str) -> Amount | None:
        totals = self._totals
        if kind == "TOPIC_PUT":
            return totals.stored.get(key)
        if kind.startswith("BROKER"):
            of_all = totals.put if kind == "BROKER_PUT" else totals.got
            return of_all if key == self._cluster else None
        topic, _, group = key.partition("@")
        return (totals.found if kind == "GROUP_GET" else totals.sent_back).get((topic, group))

    def _all(self) -> Iterator[tuple[tuple[str, str], Amount]]:
        """(kind, key) and the amount since the start."""
        totals = self._totals
        yield ("BROKER_PUT", self._cluster), totals.put
        yield ("BROKER_GET", self._cluster), totals.got
        for topic, amount in totals.stored.items():
            yield ("TOPIC_PUT", topic), amount
        for kind, table in (("GROUP_GET", totals.found), ("SNDBCK_PUT", totals.sent_back)):
            for (topic, group), amount in table.items():
                yield (kind, f"{topic}@{group}"), amount
