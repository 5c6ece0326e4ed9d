"""A small asyncio client: producer, pull consumer, requests with replies, queue locks, topic routes, and message encodings.

async with Client("127.0.0.1:9876") as client:
    await client.producer("group").send("topic", b"hello")
"""

from mqclient.admin import Admin, QueueRange
from mqclient.client import Client
from mqclient.consumer import PullConsumer, PullResult, PullStatus
from mqclient.errors import (
    AdminFailed,
    ClientError,
    EndOutcomeUnknown,
    EndRefused,
    GroupTaken,
    LockFailed,
    MessageTooLong,
    NotARequest,
    PullFailed,
    ReplyFailed,
    RequestUnanswered,
    RouteUnknown,
    SendOutcomeUnknown,
    SendRefused,
    SubscriptionFailed,
    SubscriptionStopped,
)
from mqclient.groupconsumer import DEAD_LETTER, GroupConsumer
from mqclient.message import OutgoingMessage, StoredMessage
from mqclient.producer import Producer, SendResult, SendStatus
from mqclient.queuelocks import QueueLocks
from mqclient.received import ReceivedMessage
from mqclient.requester import Requester
from mqclient.route import MessageQueue
from mqclient.selectors import Selector, sql, tags
from mqclient.transactions import Transaction, TransactionProducer, TransactionState
from remoting.signing import Credentials

__all__ = [
    "Admin",
    "AdminFailed",
    "Client",
    "ClientError",
    "DEAD_LETTER",
    "Credentials",
    "EndOutcomeUnknown",
    "EndRefused",
    "GroupTaken",
    "LockFailed",
    "MessageQueue",
    "MessageTooLong",
    "NotARequest",
    "OutgoingMessage",
    "Producer",
    "PullConsumer",
    "PullFailed",
    "PullResult",
    "PullStatus",
    "QueueRange",
    "QueueLocks",
    "ReplyFailed",
    "ReceivedMessage",
    "RequestUnanswered",
    "Requester",
    "RouteUnknown",
    "Selector",
    "SendOutcomeUnknown",
    "SendRefused",
    "SendResult",
    "SendStatus",
    "StoredMessage",
    "GroupConsumer",
    "SubscriptionFailed",
    "SubscriptionStopped",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
    "sql",
    "tags",
]
