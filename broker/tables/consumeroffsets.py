"""How far each consumer group is in each queue.

Invariant: keys read `topic@group`; an offset is the next queue offset to consume, as the group committed it last or as
an administrator moved it. From such a move until the group goes on there its commits of other offsets do not count. What
slaves copy in one frame fits it: beyond `BYTES_MAX` no commit or move adds a queue. The broker's own, which stand among them,
rest on the log up to `rests_on`: no slave takes them, and no disk, that lacks it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import orjson

from broker.tables.offsetlimits import Key
from broker.tables.offsetresets import OffsetResets
from broker.tables.saidhere import SaidHere
from mqruntime.slices import Steps, turn, whole
from remoting.bodies.offsets import ConsumerOffsetWrapper

CONSUMER_OFFSETS_FILE = "config/consumerOffset.json"
SEPARATOR = "@"
TRANSACTIONS_GROUP = "CID_RMQ_SYS_TRANS"
"""The broker's own: halves below its offset count as ended."""
OwnOffsets = dict[str, dict[int, int]]
"""As in the table, of that group alone."""
BYTES_MAX = 12 << 20
"""Of the table as it is copied (43), about. Groups that nobody has are made up faster than any broker can copy them."""
NONE: dict[int, int] = {}
OFFSETS_A_STEP = KEYS_A_STEP = 5_000
ATTEMPTS_MAX = 4
QUEUE_BYTES = 16
"""Of a queue's id and offset, about."""
NO_ROOM = (
    "offsets of so many groups are kept that slaves could not copy more; delete groups that are gone "
    "(deleteSubGroup -r true)"
)


class ConsumerOffsets:
    """Committed offsets by topic and group, then by queue id; `resets` says who was moved."""

    def __init__(self, resets: OffsetResets | None = None) -> None:
        self._wrapper = ConsumerOffsetWrapper()
        self.resets = resets if resets is not None else OffsetResets()
        self.said_here = SaidHere()
        self._doubtful = False  # somebody may have deleted what stands here
        self._bytes = 0
        self._moves = 0
        """Counts what changes offsets otherwise than by commits of their groups."""
        self.commits = 0
        self.from_file = False
        """Whether they were read from this disk, and neither a master's nor compared with the log since."""
        self.rests_on = 0
        """An offset of the log; what was read from this disk rests on what was there before."""
        self._given: OwnOffsets | None = None
        self._given_rests_on = 0
        self._all_is_given = True

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, *, is_passed_on: bool = False
    ) -> bool:
        """`group` goes on at `offset`, unless it was moved and does not know yet, or a former master passes that on and it may
        be older than what was said here. Nobody commits for the broker itself. False where there is no room for it."""
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
        """Whether all of them stand here already, or more may."""
        table = self._wrapper.offset_table
        return self._bytes < BYTES_MAX or all(
            queue_id in table.get(f"{topic}{SEPARATOR}{group}", ()) for group, topic, queue_id in keys
        )

    def keep(self, topic: str, queue_id: int, offset: int) -> None:
        """The broker's transactions are done with this queue below `offset`."""
        self._put(TRANSACTIONS_GROUP, topic, queue_id, offset)

    def as_they_are(self) -> OwnOffsets:
        """The broker's own."""
        table = self._wrapper.offset_table
        return {key: dict(queues) for key, queues in table.items() if is_own(key)}

    def give(self, given: OwnOffsets | None, rests_on: int) -> None:
        """From now on slaves get these of the broker's own, whatever is kept since; None is none of them."""
        self._given, self._given_rests_on, self._all_is_given = given, rests_on, False

    def give_all(self) -> None:
        """Slaves get them as they are, always."""
        self._given, self._all_is_given = None, True

    def reset(self, moves: Mapping[Key, int]) -> None:
        """An administrator moves groups to these offsets."""
        self.moved(moves)
        self.resets.put(moves)
        for key in moves:
            self.said_here.moved(key)

    def moved(self, moves: Mapping[Key, int]) -> None:
        """The master's groups were moved to these offsets."""
        self._moves += 1
        for key, offset in moves.items():
            self._put(*key, offset)

    def pulled(
        self, group: str, topic: str, queue_id: int, offset: int, *, is_passed_on: bool = False
    ) -> int | None:
        """Where `group`, which pulls at `offset`, is to go on instead; None where it may go on. A pull that a former master
        passes on may be older than a move that was made here, and does not count as heard; a move of before this broker led
        is older than that, and clients with default settings come only this way for 30 s."""
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
        """Where the queues end that groups are in. The broker's own group sees to itself."""
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
        """Those of the limits that a group is beyond."""
        table = self._wrapper.offset_table
        return {
            (group, topic, queue_id): limit
            for (group, topic, queue_id), limit in limits.items()
            if table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id, 0) > limit
        }

    async def beyond_ends(self, end_of: Callable[[str, int], int]) -> dict[Key, int]:
        """The ends of the queues that a group is beyond: `beyond(ends(end_of))`, with turns for others in between."""
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
                await turn()
        return found

    def topics_of(self, group: str) -> Steps[list[str]]:
        """The topics that a group has committed offsets in."""
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
        """The topics that each group has committed offsets in."""
        found: dict[str, list[str]] = {}
        for keys in _in_steps(list(self._wrapper.offset_table)):
            for key in keys:
                topic, _, group = key.partition(SEPARATOR)
                found.setdefault(group, []).append(topic)
            yield
        return found

    def committed(self) -> list[tuple[str, str]]:
        """(topic, group) of everything that has committed offsets."""
        pairs = (key.partition(SEPARATOR) for key in self._wrapper.offset_table)
        return [(topic, group) for topic, _, group in pairs]

    def remove_group(self, group: str) -> int:
        """Forget a group in all topics; in how many it stood."""
        suffix = SEPARATOR + group
        self.said_here.group_removed(group)
        return self._remove([key for key in self._wrapper.offset_table if key.endswith(suffix)])

    def remove_topic(self, topic: str) -> int:
        """Forget a topic in all groups; in how many it stood."""
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
        """The next copy replaces everything: not every deletion has come here."""
        self._doubtful = True

    def adopt(self, wrapper: ConsumerOffsetWrapper, own_rests_on: int | None = 0) -> bool:
        """Each topic and group that the master knows replaces ours as a whole; False when nothing is new. Who is somewhere else
        than it was moved to has gone on: upstream's masters do not say so. With None its own are left out."""
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
        """The reply to 43, and what the broker's own of it rest on. Groups may commit between two steps; where one is moved
        or goes meanwhile, it is written once more, so that moves and offsets fit each other."""
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
        self, table: OwnOffsets, stands: Callable[[str], bool], besides: OwnOffsets | None = None
    ) -> Steps[bytes]:
        """As ConsumerOffsetWrapper is, of what `stands` in the table now, and `besides`."""
        empty = replace(self._wrapper, offset_table={}, offset_resets=self.resets.wrapper()).encode()
        assert empty.endswith(b"{}}"), "offsetTable is the last of its members"
        parts: list[bytes] = []
        for source, wanted in ((table, stands), (besides or {}, lambda key: True)):
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
        """Take in consumerOffset.json. Raises BodyError."""
        self._wrapper = ConsumerOffsetWrapper.decode(data)
        self.from_file = True
        self._weigh()
        self.resets.adopt(self._wrapper.offset_resets)
        limits = self.resets.limits
        limits.adopt(self._wrapper.offset_resets)
        for key in self.beyond(limits.all):
            limits.lift(key)  # it went on there meanwhile

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
