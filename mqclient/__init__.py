"""A small asyncio client: producer, pull consumer and queue locks, topic routes and the message encodings they need.

async with Client("127.0.0.1:9876") as client:
    await client.producer("group").send("topic", b"hello")
"""

from mqclient.client import Client
from mqclient.consumer import PullConsumer, PullResult, PullStatus
from mqclient.errors import (
    ClientError,
    EndOutcomeUnknown,
    EndRefused,
    LockFailed,
    PullFailed,
    RouteUnknown,
    SendOutcomeUnknown,
    SendRefused,
)
from mqclient.message import StoredMessage
from mqclient.producer import Producer, SendResult, SendStatus
from mqclient.queuelocks import QueueLocks
from mqclient.route import MessageQueue
from mqclient.transactions import Transaction, TransactionProducer, TransactionState

__all__ = [
    "Client",
    "ClientError",
    "EndOutcomeUnknown",
    "EndRefused",
    "LockFailed",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullFailed",
    "PullResult",
    "PullStatus",
    "QueueLocks",
    "RouteUnknown",
    "SendOutcomeUnknown",
    "SendRefused",
    "SendResult",
    "SendStatus",
    "StoredMessage",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
]
