"""Headers of requests about messages in transactions."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire


@dataclass(slots=True)
class EndTransactionHeader(Header):
    """END_TRANSACTION (37) commits (8) or rolls back (12) the half message at physical `commit_log_offset`, or says that
    the producer does not know yet (0). `tran_state_table_offset` is the message's offset in its queue; `msg_id` is the
    producer's own id."""

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    from_transaction_check: bool | None = False
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = wire("bname", default=None)


@dataclass(slots=True)
class CheckTransactionStateHeader(Header):
    """CHECK_TRANSACTION_STATE (39), from the broker to a producer, asks for the outcome of this half message. The body is
    the message. The producer answers with END_TRANSACTION (37)."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = wire("bname", default=None)
