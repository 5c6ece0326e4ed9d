"""Decides to which broker of the set the answer to a pull sends the reader, and replaces codes that a slave must not return.

Invariant: if slaves serve no readers, every reader is sent to the master. A slave moves no reader's offset, because it may be
missing messages of the master. So a reader with an unknown offset keeps its offset and is sent to the master. A new master
moves no reader back before its queues list all messages that a former master may have served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.tables.subscriptiongroups import SubscriptionGroups
from messagestore.messages import GetResult, GetStatus
from remoting.codes import ResponseCode

MASTER_ID = 0
SLAVE_RATIO_LESS = 10
"""Percent of the memory. A slave's threshold is lower by this, so it keeps a reader that the master has just sent to it, and no
reader goes back and forth."""
MOVED = frozenset(
    {
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.OFFSET_FOUND_NULL,
    }
)
"""The statuses with which the store returns another offset."""
BEYOND = MOVED - {GetStatus.OFFSET_TOO_SMALL}


class ReaderRole(Protocol):
    """The broker's role."""

    @property
    def is_slave(self) -> bool: ...


class Keys(Protocol):
    """The settings used here, which may change."""

    slave_read_enable: bool
    access_message_in_memory_max_ratio: int


@dataclass(frozen=True, slots=True)
class Direction:
    """The answer's code, and where the reader continues: at broker `broker_id` and at `next_offset`."""

    code: ResponseCode
    next_offset: int
    broker_id: int


class PullRouting:
    """The routing. `memory_bytes` is the machine's memory, 0 if it is not known; `log_end()` is the end of this log.
    `master_is_there()` is True if this slave is connected to its master. `lists_former_epochs()` is True if all records of
    former masters in this master's log are confirmed and in its queues."""

    def __init__(
        self,
        role: ReaderRole,
        keys: Keys,
        groups: SubscriptionGroups,
        *,
        memory_bytes: int,
        log_end: Callable[[], int],
        master_is_there: Callable[[], bool],
        lists_former_epochs: Callable[[], bool],
    ) -> None:
        self._role = role
        self._keys = keys
        self._groups = groups
        self._memory_bytes = memory_bytes
        self._log_end = log_end
        self._master_is_there = master_is_there
        self._lists_former_epochs = lists_former_epochs

    def answer(self, code: ResponseCode, group: str, offset: int, result: GetResult) -> Direction:
        """The answer for a `result` that was read at `offset`, and for which a master would answer `code`."""
        behind = self._reads_far_back(result)
        if not self._role.is_slave:
            if (
                code == ResponseCode.PULL_OFFSET_MOVED
                and result.status in BEYOND
                and not self._lists_former_epochs()
            ):
                return Direction(ResponseCode.PULL_NOT_FOUND, offset, MASTER_ID)
            return Direction(code, result.next_begin_offset, self._suggested(group, behind))
        next_offset = offset if result.status in MOVED else result.next_begin_offset
        if behind:
            return Direction(code, next_offset, self._suggested(group, behind))
        if result.status is not GetStatus.FOUND:
            code = self._nothing(code, result)
        return Direction(code, next_offset, MASTER_ID)

    def _nothing(self, code: ResponseCode, result: GetResult) -> ResponseCode:
        """The code of a slave that found no message. The reader is sent to the master, which may have one, unless the master is
        away: then the reader would ask for ever."""
        if self._master_is_there():
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return ResponseCode.PULL_NOT_FOUND if result.status in MOVED else code

    def _suggested(self, group: str, behind: bool) -> int:
        known = self._groups.find(group) if self._keys.slave_read_enable else None
        if known is None:
            return MASTER_ID
        return known.which_broker_when_consume_slowly if behind else known.broker_id

    def _reads_far_back(self, result: GetResult) -> bool:
        """Whether the result, or the entries that were read, are so far below the log's end that memory hardly has them."""
        at = result.ranges[-1][0] if result.ranges else result.looked_at
        if at < 0 or not self._memory_bytes:
            return False
        ratio = self._keys.access_message_in_memory_max_ratio
        if self._role.is_slave:
            ratio = max(ratio - SLAVE_RATIO_LESS, 0)
        return self._log_end() - at > self._memory_bytes * ratio // 100
