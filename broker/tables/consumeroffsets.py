"""The consumer offset of each group in each queue. Upstream: ConsumerOffsetManager.

Invariant: keys have the form `topic@group`. An offset is the next queue offset to consume; the group committed it, or an
administrator moved the group to it. After a move, commits of other offsets do not count until the group continues at the new
offset. Beyond `BYTES_MAX` no commit or move adds a queue, so the table fits into the frame that slaves copy. The broker's own
offsets, its progress in transactions, belong to the log up to `rests_on`; no slave with a shorter log uses them, and no disk
with a shorter log stores them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import orjson

from broker.tables.offsetlimits import Key
from broker.tables.offsetresets import OffsetResets
from broker.tables.saidhere import SaidHere
from mqruntime.slices import Steps, whole, yield_to_loop
from remoting.bodies.offsets import ConsumerOffsetWrapper

CONSUMER_OFFSETS_FILE = "config/consumerOffset.json"
SEPARATOR = "@"
TRANSACTIONS_GROUP = "CID_RMQ_SYS_TRANS"
"""The group of the broker's own offsets. Halves below this group's offset count as ended."""
OwnOffsets = dict[str, dict[int, int]]
"""The part of the table for TRANSACTIONS_GROUP."""
BYTES_MAX = 12 << 20
"""Limit of the table's size in the reply to GET_ALL_CONSUMER_OFFSET (43), about. Invented groups could fill any table."""
NONE: dict[int, int] = {}
OFFSETS_A_STEP = KEYS_A_STEP = 5_000
ATTEMPTS_MAX = 4
QUEUE_BYTES = 16
"""The size of a queue's id and offset, about."""
NO_ROOM = (
    "offsets of so many groups are kept that slaves could not copy more; delete groups that are gone "
    "(deleteSubGroup -r true)"
)


class ConsumerOffsets:
    """The committed offsets by topic and group, then by queue id. `resets` has the open moves of groups."""

    def __init__(self, resets: OffsetResets | None = None) -> None:
        self._wrapper = ConsumerOffsetWrapper()
        self.resets = resets if resets is not None else OffsetResets()
        self.said_here = SaidHere()
        self._doubtful = False  # deletions may have been missed
        self._bytes = 0
        self._moves = 0
        """Number of changes that are not commits of groups."""
        self.commits = 0
        self.from_file = False
        """Whether the table is as read from this disk: not copied from a master, and not compared with the log since."""
        self.rests_on = 0
        """An offset of the log. A table that was read from this disk belongs to the log that was on the disk."""
        self._given: OwnOffsets | None = None
        self._given_rests_on = 0
        self._all_is_given = True

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, *, is_passed_on: bool = False
    ) -> bool:
        """Set the offset of `group`. Ignores the commit if the group was moved and may not know that yet, if a former master
        passes it on and a change here may be newer, or if the group is the broker's own. Returns False if there is no room."""
        if group == TRANSACTIONS_GROUP or self.resets.refuses(group, topic, queue_id, offset):
            return True
        if offset < (self._wrapper.offset_table.get(f"{topic}{SEPARATOR}{group}", NONE).get(queue_id, 0)):
            if is_passed_on:
                return True
            self.said_here.moved((group, topic, queue_id))
        if is_passed_on and self.said_here.covers(group, topic, queue_id):
            return True
        if not self.has_room_for([(group, topic, queue_id)]):
            return False
        self._put(group, topic, queue_id, offset)
        return True

    def has_room_for(self, keys: Iterable[Key]) -> bool:
        """Whether all `keys` are in the table already, or fit into it."""
        table = self._wrapper.offset_table
        return self._bytes < BYTES_MAX or all(
            queue_id in table.get(f"{topic}{SEPARATOR}{group}", ()) for group, topic, queue_id in keys
        )

    def keep(self, topic: str, queue_id: int, offset: int) -> None:
        """Set the broker's own offset in a queue of transactions: everything below it is done."""
        self._put(TRANSACTIONS_GROUP, topic, queue_id, offset)

    def as_they_are(self) -> OwnOffsets:
        """A copy of the broker's own offsets."""
        table = self._wrapper.offset_table
        return {key: dict(queues) for key, queues in table.items() if is_own(key)}

    def give(self, given: OwnOffsets | None, rests_on: int) -> None:
        """From now on send slaves these own offsets of the broker, even if the table changes. None: send none."""
        self._given, self._given_rests_on, self._all_is_given = given, rests_on, False

    def give_all(self) -> None:
        """From now on send slaves the broker's present own offsets."""
        self._given, self._all_is_given = None, True

    def reset(self, moves: Mapping[Key, int]) -> None:
        """Move groups to these offsets, on an administrator's request."""
        self.moved(moves)
        self.resets.put(moves)
        for key in moves:
            self.said_here.moved(key)

    def moved(self, moves: Mapping[Key, int]) -> None:
        """Adopt the master's moves of groups."""
        self._moves += 1
        for key, offset in moves.items():
            self._put(*key, offset)

    def pulled(
        self, group: str, topic: str, queue_id: int, offset: int, *, is_passed_on: bool = False
    ) -> int | None:
        """The offset at which `group` has to continue; None if it may pull at `offset`. A pull that a former master passes on
        may be older than a move made on this master, so the pull does not end that move. It is newer than a move from before
        this broker led, and ends it: clients with default settings send only such pulls for 30 s."""
        if is_passed_on and self.said_here.covers(group, topic, queue_id):
            return self.resets.instead(group, topic, queue_id, offset)
        return self.resets.pulled(group, topic, queue_id, offset)

    def _put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._wrapper.offset_table.get(key)
        if queues is None:
            queues = self._wrapper.offset_table[key] = {}
            self._bytes += _cost(key)
        self._bytes += 0 if queue_id in queues else QUEUE_BYTES
        queues[queue_id] = offset
        self.commits += 1

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        moved_to = self.resets.find(group, topic, queue_id)
        if moved_to is not None:
            return moved_to
        return self._wrapper.offset_table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def ends(self, end_of: Callable[[str, int], int]) -> dict[Key, int]:
        """The ends of all queues with committed offsets, without the broker's own offsets."""
        ends: dict[tuple[str, int], int] = {}
        found: dict[Key, int] = {}
        for key, queues in self._wrapper.offset_table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id in queues if group != TRANSACTIONS_GROUP else ():
                if (topic, queue_id) not in ends:
                    ends[topic, queue_id] = end_of(topic, queue_id)
                found[group, topic, queue_id] = ends[topic, queue_id]
        return found

    def beyond(self, limits: Mapping[Key, int]) -> dict[Key, int]:
        """Those of `limits` that a group's offset exceeds."""
        table = self._wrapper.offset_table
        return {
            (group, topic, queue_id): limit
            for (group, topic, queue_id), limit in limits.items()
            if table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id, 0) > limit
        }

    async def beyond_ends(self, end_of: Callable[[str, int], int]) -> dict[Key, int]:
        """The result of `beyond(ends(end_of))`; other tasks may run in between."""
        ends: dict[tuple[str, int], int] = {}
        found: dict[Key, int] = {}
        looked_at = 0
        for key in list(self._wrapper.offset_table):
            topic, _, group = key.partition(SEPARATOR)
            queues = self._wrapper.offset_table.get(key, {}) if group != TRANSACTIONS_GROUP else {}
            for queue_id, offset in queues.items():
                place = topic, queue_id
                if (end := ends.get(place)) is None:
                    end = ends[place] = end_of(*place)
                if offset > end:
                    found[group, topic, queue_id] = end
            looked_at += len(queues)
            if looked_at >= OFFSETS_A_STEP:
                looked_at = 0
                await yield_to_loop()
        return found

    def topics_of(self, group: str) -> Steps[list[str]]:
        """The topics in which a group has committed offsets."""
        suffix, found = SEPARATOR + group, list[str]()
        for keys in _in_steps(list(self._wrapper.offset_table)):
            found += [key.removesuffix(suffix) for key in keys if key.endswith(suffix)]
            yield
        return found

    def groups_of(self, topic: str) -> Steps[list[str]]:
        """The groups that have committed offsets in a topic."""
        prefix, found = topic + SEPARATOR, list[str]()
        for keys in _in_steps(list(self._wrapper.offset_table)):
            found += [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]
            yield
        return found

    def topics_by_group(self) -> Steps[dict[str, list[str]]]:
        """The topics in which each group has committed offsets."""
        found: dict[str, list[str]] = {}
        for keys in _in_steps(list(self._wrapper.offset_table)):
            for key in keys:
                topic, _, group = key.partition(SEPARATOR)
                found.setdefault(group, []).append(topic)
            yield
        return found

    def committed(self) -> list[tuple[str, str]]:
        """(topic, group) of all committed offsets."""
        pairs = (key.partition(SEPARATOR) for key in self._wrapper.offset_table)
        return [(topic, group) for topic, _, group in pairs]

    def remove_group(self, group: str) -> int:
        """Remove a group from all topics. Returns the number of its topics."""
        suffix = SEPARATOR + group
        self.said_here.group_removed(group)
        return self._remove([key for key in self._wrapper.offset_table if key.endswith(suffix)])

    def remove_topic(self, topic: str) -> int:
        """Remove a topic from all groups. Returns the number of its groups."""
        prefix = topic + SEPARATOR
        self.said_here.topic_removed(topic)
        return self._remove([key for key in self._wrapper.offset_table if key.startswith(prefix)])

    def _remove(self, keys: list[str]) -> int:
        for key in keys:
            del self._wrapper.offset_table[key]
        self._weigh()
        self._moves += 1
        self.commits += len(keys)
        return len(keys)

    def doubt(self) -> None:
        """Let the next copy replace the whole table, because deletions may have been missed."""
        self._doubtful = True

    def adopt(self, wrapper: ConsumerOffsetWrapper, own_rests_on: int | None = 0) -> bool:
        """Adopt the master's offsets. Returns False if nothing changed. If a moved group has another offset than the move's, it
        has continued, which upstream's masters do not report. If `own_rests_on` is None, the broker's own offsets are left
        out."""
        self.from_file = False
        table = self._wrapper.offset_table
        gone = table.keys() - wrapper.offset_table.keys() if self._doubtful else set()
        self._doubtful = False
        for key in gone:
            del table[key]
        news = {key: queues for key, queues in wrapper.offset_table.items() if table.get(key) != queues}
        if own_rests_on is None:
            news = {key: queues for key, queues in news.items() if not is_own(key)}
        elif any(map(is_own, news)):
            self.rests_on = own_rests_on
        table.update(news)
        for key, queues in news.items():
            topic, _, group = key.partition(SEPARATOR)
            self.resets.went_on(group, topic, queues)
        if news or gone:
            self._moves += 1
            self._weigh()
        return bool(news or gone)

    def encode(self) -> bytes:
        """The content of consumerOffset.json."""
        return whole(self._written(self._wrapper.offset_table, lambda key: True))

    def for_slaves(self) -> Steps[tuple[bytes, int]]:
        """The reply to GET_ALL_CONSUMER_OFFSET (43), and the log end to which the broker's own offsets belong. Groups may
        commit between two steps. If a group is moved or removed, it is encoded again, so that moves and offsets match."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            moves, table = self._moves, self._wrapper.offset_table
            if self._all_is_given:
                steps, rests_on = self._written(table, lambda key: True), self.rests_on
            else:
                given, rests_on = self._given or {}, self._given_rests_on
                steps = self._written(table, lambda key: not is_own(key), given)
            body = whole(steps) if attempt == ATTEMPTS_MAX else (yield from steps)
            if self._moves == moves:
                break
        return body, rests_on

    def _written(
        self, table: OwnOffsets, wanted_key: Callable[[str], bool], besides: OwnOffsets | None = None
    ) -> Steps[bytes]:
        """Encode a ConsumerOffsetWrapper with `besides` and the rows for which `wanted_key` is true now."""
        empty = replace(self._wrapper, offset_table={}, offset_resets=self.resets.wrapper()).encode()
        assert empty.endswith(b"{}}"), "offsetTable is its last member"
        parts: list[bytes] = []
        for source, wanted in ((table, wanted_key), (besides or {}, lambda key: True)):
            part, count = dict[str, dict[int, int]](), 0
            for key in list(source):
                queues = source.get(key)
                if queues is None or not wanted(key):
                    continue
                part[key] = queues
                count += 1 + len(queues)
                if count >= OFFSETS_A_STEP:
                    parts.append(orjson.dumps(part, option=orjson.OPT_NON_STR_KEYS)[1:-1])
                    part, count = {}, 0
                    yield
            if part:
                parts.append(orjson.dumps(part, option=orjson.OPT_NON_STR_KEYS)[1:-1])
        return b"%b%b}}" % (empty[:-2], b",".join(parts))

    def decode(self, data: bytes) -> None:
        """Read the content of consumerOffset.json. Raises BodyError."""
        self._wrapper = ConsumerOffsetWrapper.decode(data)
        self.from_file = True
        self._weigh()
        self.resets.adopt(self._wrapper.offset_resets)
        limits = self.resets.limits
        limits.adopt(self._wrapper.offset_resets)
        for key in self.beyond(limits.all):
            limits.lift(key)  # the group had continued when the file was written

    def _weigh(self) -> None:
        table = self._wrapper.offset_table
        self._bytes = sum(_cost(key) + QUEUE_BYTES * len(queues) for key, queues in table.items())


def _in_steps(keys: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(keys), KEYS_A_STEP):
        yield keys[at : at + KEYS_A_STEP]


def is_own(key: str) -> bool:
    return key.endswith(SEPARATOR + TRANSACTIONS_GROUP)


def _cost(key: str) -> int:
    return len(orjson.dumps(key)) + 4
