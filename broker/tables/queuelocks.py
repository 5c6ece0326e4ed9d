"""Locks of a group's queues for ordered consumption. Clients lock (LOCK_BATCH_MQ, 41) and unlock (UNLOCK_BATCH_MQ, 42) queues.
Upstream: RebalanceLockManager, which is local to one broker.

Invariant: a queue has at most one holder. Another client gets the lock only after the holder unlocked the queue, or did not
renew the lock for LEASE_MS. Slaves copy the holders, but only the master knows when a lock was renewed. So under a new master
each lease starts again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import orjson

from mqruntime.clock import Clock
from remoting.bodies.tables import QueueLock, QueueLockTable

QUEUE_LOCKS_FILE = "config/queueLocks.json"
LEASE_MS = 60_000
"""Upstream's value. Upstream's clients renew a lock every 20 s and trust it for 30 s."""
LOCKS_MAX = 100_000
BYTES_MAX = 8 << 20
"""Limit of the table's size in a copy, about: it must fit into one frame together with topics and groups."""
LOCK_BYTES = 64
"""The size of a lock in a copy, without its names."""

Queue = tuple[str, int]
"""Topic and queue id."""
Key = tuple[str, Queue]
"""Group and queue."""


@dataclass(slots=True)
class Lock:
    client_id: str
    renewed_ms: int
    number: int
    """Increases with each grant."""
    agreed: bool = False
    """Whether every possible next master knows the holder."""
    said_here: bool = False
    """Whether the holder itself requested the lock from this broker since the broker leads."""


class RebalanceLocks:
    """The locks by group and queue. `on_change` runs after each change of a holder made here."""

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._locks: dict[Key, Lock] = {}
        self._table: QueueLockTable | None = None
        """The table for slaves; None once a holder has changed."""
        self._bytes = 0
        self.on_row: Callable[[Key], None] = lambda key: None
        """Called with each lock whose holder is changed here, before `on_change`."""
        self.newest = 0
        """The number of the last lock that was granted here."""
        self._forgot_ms = clock.monotonic_ms()
        self._given_up: dict[Key, str] = {}
        """The client that unlocked the queue last, on this broker since it leads, if no client locked it since."""

    def lock(
        self, group: str, queues: Iterable[Queue], client_id: str, *, is_passed_on: bool = False
    ) -> list[Queue]:
        """Lock `queues` for `client_id`, or renew its locks. Returns the queues that it holds now. A request that a former
        master passes on may be older than an unlock of this client here, so it does not lock such a queue."""
        now_ms = self._clock.monotonic_ms()
        held, changed = [], self._forget_what_is_over(now_ms)
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is not None and lock.client_id == client_id:
                lock.renewed_ms = now_ms
                lock.said_here = lock.said_here or not is_passed_on
            elif is_passed_on and self._given_up.get((group, queue)) == client_id:
                continue
            elif _is_over(lock, now_ms) if lock is not None else self._has_room:
                self.newest += 1
                self._drop((group, queue))
                self._put((group, queue), Lock(client_id, now_ms, self.newest, said_here=not is_passed_on))
                self._given_up.pop((group, queue), None)
                self.on_row((group, queue))
                changed = True
            else:
                continue
            held.append(queue)
        if changed:
            self._on_change()
        return held

    def unlock(
        self, group: str, queues: Iterable[Queue], client_id: str, *, is_passed_on: bool = False
    ) -> None:
        """Unlock those of `queues` that `client_id` holds. A request that a former master passes on may be older than a lock of
        this client here, so it does not unlock such a queue."""
        given_up = [
            (group, queue)
            for queue in queues
            if self._is_held(group, queue, client_id)
            and not (is_passed_on and self._locks[group, queue].said_here)
        ]
        for key in given_up:
            if not is_passed_on and len(self._given_up) < LOCKS_MAX:
                self._given_up[key] = client_id
            self._drop(key)
            self.on_row(key)
        if given_up:
            self._on_change()

    def agreed(self, group: str, queues: Iterable[Queue], client_id: str) -> bool:
        """Whether `client_id` holds all `queues`, and every possible next master knows this."""
        return all(
            self._is_held(group, queue, client_id) and self._locks[group, queue].agreed for queue in queues
        )

    def note_agreed(self, group: str, queues: Sequence[Queue], client_id: str, newest: int) -> list[Queue]:
        """Mark the client's locks of `queues` up to number `newest` as known to every possible next master, and return their
        queues. A queue that the client unlocked and locked again meanwhile has a newer lock."""
        held = [
            queue
            for queue in queues
            if self._is_held(group, queue, client_id) and self._locks[group, queue].number <= newest
        ]
        for queue in held:
            self._locks[group, queue].agreed = True
        return held

    def begin(self) -> None:
        """Start as master after another role: no client has sent requests to this master yet."""
        self._given_up = {}
        for lock in self._locks.values():
            lock.said_here = False

    def led(self) -> None:
        """Called with a new role: no lock was renewed in it yet, and the SyncStateSet may have changed."""
        now_ms = self._clock.monotonic_ms()
        for lock in self._locks.values():
            lock.renewed_ms, lock.agreed = now_ms, False

    def wrapper(self) -> QueueLockTable:
        """The table for slaves and for the file."""
        if self._table is None:
            self._table = QueueLockTable(
                [
                    QueueLock(group, topic, queue_id, lock.client_id)
                    for (group, (topic, queue_id)), lock in self._locks.items()
                ]
            )
        return self._table

    def adopt(self, table: QueueLockTable) -> bool:
        """Adopt the master's table. Returns False if no holder changed."""
        locks = self._locks
        holders = {(lock.group, (lock.topic, lock.queue_id)): lock.client_id for lock in table.locks}
        gone = [key for key, lock in locks.items() if holders.get(key) != lock.client_id]
        for key in gone:
            self._drop(key)
        news = [key for key in holders if key not in locks]
        now_ms = self._clock.monotonic_ms()
        for key in news:
            self._put(key, Lock(holders[key], now_ms, self.newest))
        return bool(gone or news)

    def keys(self) -> Iterable[Key]:
        return self._locks.keys()

    def holder(self, key: Key) -> str | None:
        lock = self._locks.get(key)
        return None if lock is None else lock.client_id

    def apply(self, held: Iterable[QueueLock], gone: Iterable[QueueLock]) -> bool:
        """Adopt the master's changes. Returns False if no holder changed."""
        now_ms, differs = self._clock.monotonic_ms(), False
        for lock in (*gone, *held):
            key = lock.group, (lock.topic, lock.queue_id)
            holder = self.holder(key)
            if holder is not None and holder != lock.client_id:
                self._drop(key)
                differs = True
        for lock in held:
            key = lock.group, (lock.topic, lock.queue_id)
            if key not in self._locks:
                self._put(key, Lock(lock.client_id, now_ms, self.newest))
                differs = True
        return differs

    def encode(self) -> bytes:
        """The content of queueLocks.json."""
        return self.wrapper().encode()

    def decode(self, data: bytes) -> None:
        """Read the content of queueLocks.json. Raises BodyError."""
        self.adopt(QueueLockTable.decode(data))

    def _is_held(self, group: str, queue: Queue, client_id: str) -> bool:
        lock = self._locks.get((group, queue))
        return lock is not None and lock.client_id == client_id

    def _forget_what_is_over(self, now_ms: int) -> bool:
        """Drop expired locks once in LEASE_MS, so that locks of lost clients are not copied forever. Returns whether any
        expired."""
        if now_ms < self._forgot_ms + LEASE_MS:
            return False
        self._forgot_ms = now_ms
        self._given_up = {}
        over = [key for key, lock in self._locks.items() if _is_over(lock, now_ms)]
        for key in over:
            self._drop(key)
            self.on_row(key)
        return bool(over)

    @property
    def _has_room(self) -> bool:
        return len(self._locks) < LOCKS_MAX and self._bytes < BYTES_MAX

    def _put(self, key: Key, lock: Lock) -> None:
        self._locks[key] = lock
        self._table = None
        self._bytes += _cost(key, lock)

    def _drop(self, key: Key) -> None:
        if (lock := self._locks.pop(key, None)) is not None:
            self._table = None
            self._bytes -= _cost(key, lock)


def _cost(key: Key, lock: Lock) -> int:
    group, (topic, _) = key
    return LOCK_BYTES + len(orjson.dumps((group, topic, lock.client_id)))


def _is_over(lock: Lock, now_ms: int) -> bool:
    return now_ms >= lock.renewed_ms + LEASE_MS
