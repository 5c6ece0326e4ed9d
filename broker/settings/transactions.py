"""Settings of transactions: whether they are accepted, and how open transactions are checked."""

from __future__ import annotations

from pydantic import Field

from mqruntime.settings import Settings


class TransactionSettings(Settings):
    """The settings of a broker about transactions; in ms unless the key names another unit."""

    reject_transaction_message: bool = Field(
        False, alias="rejectTransactionMessage", description="reject messages in transactions"
    )
    transaction_open_max: int = Field(
        500_000,
        alias="transactionOpenMax",
        ge=1,
        description="so many transactions may be open, 170 bytes of memory each; beyond that new ones are rejected",
    )
    transaction_time_out: int = Field(
        6_000,
        alias="transactionTimeOut",
        ge=0,
        le=2**31 - 1,
        description="how long a producer has to end a transaction before it is asked",
    )
    transaction_check_max: int = Field(
        15,
        alias="transactionCheckMax",
        ge=1,
        description="how often it is asked; then the message goes to `TRANS_CHECK_MAX_TIME_TOPIC`",
    )
    transaction_check_interval: int = Field(
        30_000,
        alias="transactionCheckInterval",
        ge=10,
        le=2**31 - 1,
        description="time between two looks at open transactions",
    )
    transaction_op_batch_interval: int = Field(
        3_000,
        alias="transactionOpBatchInterval",
        ge=0,
        description="how long an end waits for others that share its op record",
    )
