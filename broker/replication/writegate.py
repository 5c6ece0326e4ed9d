"""Checks of all client messages before they are stored, and their wait after they are stored.

Invariant: a message is answered OK only after `replication.acked_end()` covered it. No message is stored while this broker
accepts no sends, too many sends wait, or too few replicas are in sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.clients.refusals import NO_ROLE, NOT_ENOUGH, REJECTED, ClientRefused
from broker.replication.pending import PendingSends
from messagestore.messages import MessageToStore, PlainAppended, PlainSends, PutResult, ReplyForm
from mqruntime.clock import Clock
from remoting.codes import ResponseCode


class RoleView(Protocol):
    """The broker's role."""

    @property
    def accepts_sends(self) -> bool: ...

    @property
    def is_slave(self) -> bool: ...


class ReplicationView(Protocol):
    """The broker's replicas; see broker.replication.acknowledgement."""

    def enough_in_sync(self) -> bool: ...

    def acked_end(self) -> int: ...


class SendReplicationView(ReplicationView, Protocol):
    """The broker's replicas, for sends that wait for them."""

    def replicated_end(self) -> int: ...

    def stored_end(self) -> int: ...

    def followed_end(self) -> int: ...

    def reachable(self, end: int) -> bool: ...


class ClientLog(Protocol):
    """The part of the message store that stores messages of clients."""

    store_host: bytes

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]: ...

    def append_plain(
        self, sends: PlainSends, born_host: bytes, added_properties: bytes, reply: ReplyForm
    ) -> PlainAppended | None: ...


class WriteGate:
    """The gate. `pending` has the stored messages that wait for the replicas, `wait_ms` at most."""

    def __init__(
        self,
        role: RoleView,
        replication: SendReplicationView,
        pending: PendingSends,
        clock: Clock,
        *,
        wait_ms: int,
    ) -> None:
        self.pending = pending
        self._role = role
        self._replication = replication
        self._clock = clock
        self._wait_ms = wait_ms

    def refusal(self, not_enough: str = NOT_ENOUGH) -> ClientRefused | None:
        """The reason why no message is accepted now; None if messages are accepted. `not_enough` is the remark if too few
        replicas are in sync."""
        if (refusal := self.role_refusal()) is not None:
            return refusal
        if self.pending.full:
            return ClientRefused(ResponseCode.SYSTEM_BUSY, REJECTED)
        if not self._replication.enough_in_sync():
            return ClientRefused(ResponseCode.SYSTEM_ERROR, not_enough)
        return None

    @property
    def is_slave(self) -> bool:
        return self._role.is_slave

    def role_refusal(self) -> ClientRefused | None:
        """The reason why this broker serves no producers in its role; None if it serves them."""
        if self._role.accepts_sends:
            return None
        if self._role.is_slave:
            return ClientRefused(ResponseCode.SYSTEM_BUSY, REJECTED)
        return ClientRefused(ResponseCode.SERVICE_NOT_AVAILABLE, NO_ROLE)

    def deadline_ms(self) -> int:
        """The deadline (monotonic) of messages that are stored now."""
        return self._clock.monotonic_ms() + self._wait_ms

    def settle(self) -> None:
        """Answer messages that all members already hold."""
        if self.pending:
            self.settled_end()

    def settled_end(self) -> int:
        """Call `settle`, and return the end below which stored messages need not wait."""
        end = self._replication.acked_end()
        self.pending.acknowledged(end, self._replication.stored_end)
        return end

    def reachable(self, end: int) -> bool:
        """Whether a slave may have the log up to `end` in time."""
        return self._replication.reachable(end)
