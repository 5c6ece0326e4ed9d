"""Headers of requests about messages in transactions: 37, and 39 from the broker to a producer."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire


@dataclass(slots=True)
class EndTransactionHeader(Header):
    """37: commit (8) or roll back (12) the half message at physical `commit_log_offset`, `tran_state_table_offset` in its
    queue; 0: the producer does not know yet. `msg_id` is the producer's own."""

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
    """39: asks for the outcome of this half message. The body is the message; the producer answers with 37."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = wire("bname", default=None)
