"""The broker of the set that a reader is sent to with the answer to a pull, and codes that a slave does not return.

Invariant: where slaves serve no readers everybody is sent to the master. A slave moves no reader's offset: it may be missing
messages of the master, so a reader with an unknown offset keeps it and is sent to the master. A new master takes no reader
back before its queues list all that a former one may have served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.tables.subscriptiongroups import SubscriptionGroups
from messagestore.messages import GetResult, GetStatus
from remoting.codes import ResponseCode

MASTER_ID = 0
SLAVE_RATIO_LESS = 10
"""Percent of the memory: a slave accepts far-back readers earlier than its master does, so that none goes back and forth."""
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
"""Answers of the store with another offset."""
BEYOND = MOVED - {GetStatus.OFFSET_TOO_SMALL}


class ReaderRole(Protocol):
    """View of the broker's role."""

    @property
    def is_slave(self) -> bool: ...


class Keys(Protocol):
    """The settings used here; they may change."""

    slave_read_enable: bool
    access_message_in_memory_max_ratio: int


@dataclass(frozen=True, slots=True)
class Direction:
    """The reader continues at broker `broker_id`, at `next_offset`."""

    code: ResponseCode
    next_offset: int
    broker_id: int


class PullRouting:
    """`memory_bytes` of the machine, 0 where that is not known; `log_end()` of this log; `master_is_there()`: a slave is
    connected to its master; `lists_former_epochs()`: all former masters' records that this master has are confirmed, and in
    its queues."""

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
        """The answer for a `result` that was read at `offset`, where a master would answer `code`."""
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
        """The code of a slave without a result: its master may have one. With the master away the reader would ask forever."""
        if self._master_is_there():
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return ResponseCode.PULL_NOT_FOUND if result.status in MOVED else code

    def _suggested(self, group: str, behind: bool) -> int:
        known = self._groups.find(group) if self._keys.slave_read_enable else None
        if known is None:
            return MASTER_ID
        return known.which_broker_when_consume_slowly if behind else known.broker_id

    def _reads_far_back(self, result: GetResult) -> bool:
        """Whether the result, or the entries read, are so far below the log's end that they are hardly in memory."""
        at = result.ranges[-1][0] if result.ranges else result.looked_at
        if at < 0 or not self._memory_bytes:
            return False
        ratio = self._keys.access_message_in_memory_max_ratio
        if self._role.is_slave:
            ratio = max(ratio - SLAVE_RATIO_LESS, 0)
        return self._log_end() - at > self._memory_bytes * ratio // 100
