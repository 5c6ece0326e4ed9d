"""Where administrators moved consumer groups (222), until these go on there.

Invariant: a move is over once a consumer of the group, having been told of it by a pull, pulls at the offset that it was told,
or has been told `TELLINGS_MAX` times; until then no commit of another offset counts. Clients commit what they had for some
seconds after they were told. Which moves stand is a fact that slaves copy, how often one was told is not: under a new master
it is told again. Upstream: ConsumerOffsetManager.resetOffsetTable, of one process. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from remoting.bodies.offsets import OffsetReset, OffsetResetTable

TELLINGS_MAX = 3
RESETS_MAX = 20_000

Key = tuple[str, str, int]
"""Group, topic and queue id."""


@dataclass(slots=True)
class Reset:
    offset: int
    told: int = 0


class OffsetResets:
    """By group, topic and queue; `on_change` runs after each change of what stands, made here."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._resets: dict[Key, Reset] = {}

    def takes(self, count: int) -> bool:
        """Whether so many more may stand."""
        return len(self._resets) + count <= RESETS_MAX

    def put(self, moves: Mapping[Key, int]) -> None:
        """An administrator moves groups to these offsets."""
        self._resets |= {key: Reset(offset) for key, offset in moves.items()}
        self._on_change()

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group is to go on; None where it was not moved."""
        reset = self._resets.get((group, topic, queue_id)) if self._resets else None
        return None if reset is None else reset.offset

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """The group pulls at `offset`: what it is to be told instead of messages, if anything."""
        reset = self._resets.get((group, topic, queue_id)) if self._resets else None
        if reset is None:
            return None
        if reset.told and (offset == reset.offset or reset.told >= TELLINGS_MAX):
            del self._resets[group, topic, queue_id]
            self._on_change()
            return None
        reset.told += 1
        return reset.offset

    def remove_group(self, group: str) -> None:
        self._keep(lambda key: key[0] != group)

    def remove_topic(self, topic: str) -> None:
        self._keep(lambda key: key[1] != topic)

    def wrapper(self) -> OffsetResetTable | None:
        """The table as slaves get it and as it lies in the file of offsets; None where nothing stands."""
        if not self._resets:
            return None
        return OffsetResetTable([OffsetReset(*key, reset.offset) for key, reset in self._resets.items()])

    def adopt(self, table: OffsetResetTable | None) -> dict[Key, int] | None:
        """Take over the master's table: what stands now; None where nothing differs."""
        moves = (
            {(each.group, each.topic, each.queue_id): each.offset for each in table.resets} if table else {}
        )
        if moves == {key: reset.offset for key, reset in self._resets.items()}:
            return None
        self._resets = {key: Reset(offset) for key, offset in moves.items()}
        return moves

    def _keep(self, stays: Callable[[Key], bool]) -> None:
        kept = {key: reset for key, reset in self._resets.items() if stays(key)}
        if len(kept) < len(self._resets):
            self._resets = kept
            self._on_change()
