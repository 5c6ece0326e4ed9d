"""Errors of client calls. The type of an error says what is known about the message.

Invariant: `SendRefused` is raised only if the message certainly was not stored. Every other failure of a send is
`SendOutcomeUnknown`: the message may be stored once or not at all."""

from __future__ import annotations

REMARK_CHARS_MAX = 1_000


def in_short(remark: str | None) -> str:
    """A server's remark, in one line for a person."""
    said = " ".join((remark or "")[: 2 * REMARK_CHARS_MAX].split())
    return said if len(said) <= REMARK_CHARS_MAX else f"{said[:REMARK_CHARS_MAX]}..."


class ClientError(Exception):
    """Base of the client's errors. The text is one line for a person."""


class RouteUnknown(ClientError):
    """No name server returned a route for `topic`. The text has the reason of each name server. `is_absent` if a name server
    replied that the topic does not exist."""

    def __init__(self, topic: str, why: str, *, is_absent: bool = False) -> None:
        super().__init__(f"no route for topic {topic}: {why}")
        self.topic = topic
        self.why = why
        self.is_absent = is_absent


class SendRefused(ClientError):
    """The message was not stored, and will not be. `code` is that of the broker's reply, or None if no broker was asked.
    `broker_name` is the chosen broker set, or None if none was chosen."""

    def __init__(self, topic: str, why: str, code: int | None = None, broker_name: str | None = None) -> None:
        super().__init__(f"message to {topic} refused: {why}")
        self.topic = topic
        self.code = code
        self.broker_name = broker_name


class MessageTooLong(SendRefused):
    """The message was not sent, because its properties, or the whole frame, are longer than any broker accepts."""


class SendOutcomeUnknown(ClientError):
    """The message may have been stored, but at most once. Only reading the queue shows whether it was. `address` got the
    request."""

    def __init__(self, topic: str, address: str, why: str) -> None:
        super().__init__(f"outcome of a message to {topic} at {address} is unknown: {why}")
        self.topic = topic
        self.address = address


class PullFailed(ClientError):
    """A read failed. It can be repeated without harm. `code` is that of the broker's reply, if there was one."""

    def __init__(self, where: str, why: str, code: int | None = None) -> None:
        super().__init__(f"{where}: {why}")
        self.code = code


class AdminFailed(ClientError):
    """`where` (a broker set or a name server) did not confirm a change, or did not answer. The call can be repeated without
    harm. `code` is that of the reply, if there was one."""

    def __init__(self, where: str, why: str, code: int | None = None) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.code = code


class SubscriptionFailed(ClientError):
    """Brokers refuse to let `group` read, and would refuse it again: the group or the subscription is not allowed or not known.
    `code` is that of the broker's reply."""

    def __init__(self, group: str, why: str, code: int | None) -> None:
        super().__init__(f"group {group}: {why}")
        self.group = group
        self.code = code


class SubscriptionStopped(ClientError):
    """The subscription was stopped or closed, so there are no more messages to take."""

    def __init__(self, group: str) -> None:
        super().__init__(f"the subscription of group {group} was stopped")
        self.group = group


class LockFailed(ClientError):
    """The set `broker_name` did not return its locked queues. The request can be repeated without harm. `code` is that of the
    broker's reply, if there was one."""

    def __init__(self, group: str, broker_name: str, why: str, code: int | None = None) -> None:
        super().__init__(f"queues of {broker_name} for {group}: {why}")
        self.broker_name = broker_name
        self.code = code


class EndRefused(ClientError):
    """This end of a transaction was not applied, because the transaction had ended differently before. `code` is that of the
    broker's reply."""

    def __init__(self, topic: str, why: str, code: int) -> None:
        super().__init__(f"end of a transaction in {topic} refused: {why}")
        self.topic = topic
        self.code = code


class EndOutcomeUnknown(ClientError):
    """The transaction may or may not have ended as requested. If it has not ended, the broker asks the producer's `check`."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"outcome of the end of a transaction in {topic} is unknown: {why}")
        self.topic = topic


class GroupTaken(ClientError):
    """`group` already has a producer of transactions, or a subscription, in this client. Requests of brokers name client and
    group only, so they could not be passed to the right one of two. Upstream: MQClientInstance.registerProducer."""

    def __init__(self, group: str, what: str = "a producer of transactions") -> None:
        super().__init__(
            f"group {group} has {what} in this client: use that one, close it first, or create the other one in its own Client"
        )
        self.group = group


class RequestUnanswered(ClientError):
    """A request got no reply in time, or before the client was closed. The request may be stored, and a consumer may have
    acted on it."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"request to {topic}: {why}")
        self.topic = topic


class NotARequest(ClientError):
    """No client waits for a reply to this message, because it has no properties for a reply."""

    def __init__(self, message_id: str, missing: list[str]) -> None:
        super().__init__(f"message {message_id} was not sent as a request: it has no {', '.join(missing)}")


class ReplyFailed(ClientError):
    """No broker confirmed that `client_id` has the reply. `code` is that of the last broker's answer. It is None if no broker
    answered; the client may then have the reply."""

    def __init__(self, client_id: str, why: str, code: int | None = None) -> None:
        super().__init__(f"reply to {client_id}: {why}")
        self.client_id = client_id
        self.code = code
