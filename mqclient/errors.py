"""Errors of client calls; the type says what is known of the message.

Invariant: `SendRefused` is raised only if the message certainly was not stored. Every other failure of a send is
`SendOutcomeUnknown`: the message may be stored once or not at all."""

from __future__ import annotations

REMARK_CHARS_MAX = 1_000


def in_short(remark: str | None) -> str:
    """A server's remark, in one line for a person."""
    said = " ".join((remark or "")[: 2 * REMARK_CHARS_MAX].split())
    return said if len(said) <= REMARK_CHARS_MAX else f"{said[:REMARK_CHARS_MAX]}..."


class ClientError(Exception):
    """Base of the client's errors; the text is one line for a person."""


class RouteUnknown(ClientError):
    """No name server returned a route for `topic`; with the reason of each that was asked. `is_absent` if one of them
    answered that the topic does not exist."""

    def __init__(self, topic: str, why: str, *, is_absent: bool = False) -> None:
        super().__init__(f"no route for topic {topic}: {why}")
        self.topic = topic
        self.why = why
        self.is_absent = is_absent


class SendRefused(ClientError):
    """The message was not stored, and will not be. `code` is the broker's answer, None if none was asked;
    `broker_name` is the chosen set, None if none was chosen."""

    def __init__(self, topic: str, why: str, code: int | None = None, broker_name: str | None = None) -> None:
        super().__init__(f"message to {topic} refused: {why}")
        self.topic = topic
        self.code = code
        self.broker_name = broker_name


class MessageTooLong(SendRefused):
    """No broker accepts such a message: its properties, or the whole frame, are too long. It was not sent."""


class SendOutcomeUnknown(ClientError):
    """The message may have been stored, at most once; only reading the queue can show it. `address` received the
    request."""

    def __init__(self, topic: str, address: str, why: str) -> None:
        super().__init__(f"outcome of a message to {topic} at {address} is unknown: {why}")
        self.topic = topic
        self.address = address


class PullFailed(ClientError):
    """A read returned nothing; it can be repeated without harm. `code` is the broker's answer, if there was one."""

    def __init__(self, where: str, why: str, code: int | None = None) -> None:
        super().__init__(f"{where}: {why}")
        self.code = code


class LockFailed(ClientError):
    """The set `broker_name` did not return its locked queues; it can be asked again without harm. `code` is the
    broker's answer, if there was one."""

    def __init__(self, group: str, broker_name: str, why: str, code: int | None = None) -> None:
        super().__init__(f"queues of {broker_name} for {group}: {why}")
        self.broker_name = broker_name
        self.code = code


class EndRefused(ClientError):
    """This end of a transaction was not applied: it had ended differently before. `code` is the broker's answer."""

    def __init__(self, topic: str, why: str, code: int) -> None:
        super().__init__(f"end of a transaction in {topic} refused: {why}")
        self.topic = topic
        self.code = code


class EndOutcomeUnknown(ClientError):
    """The transaction may have ended so or not; if not, the broker asks the producer's `check`."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"outcome of the end of a transaction in {topic} is unknown: {why}")
        self.topic = topic


class GroupTaken(ClientError):
    """`group` already has a producer of transactions in this client. Brokers ask a client, not a producer, so two
    could not be distinguished. Upstream: MQClientInstance.registerProducer."""

    def __init__(self, group: str) -> None:
        what = f"group {group} has a producer of transactions in this client, whose check brokers ask"
        super().__init__(f"{what}: use that one, close it first, or create the other one in its own Client")
        self.group = group


class RequestUnanswered(ClientError):
    """A request got no reply in time, or before the client was closed. It may be stored, and a consumer may have
    acted on it."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"request to {topic}: {why}")
        self.topic = topic


class NotARequest(ClientError):
    """No client waits for a reply to this message: it is missing the properties for a reply."""

    def __init__(self, message_id: str, missing: list[str]) -> None:
        super().__init__(f"message {message_id} was not sent as a request: it has no {', '.join(missing)}")


class ReplyFailed(ClientError):
    """No broker confirmed that `client_id` has the reply. `code` is the last broker's answer, None if none answered:
    then the client may have it."""

    def __init__(self, client_id: str, why: str, code: int | None = None) -> None:
        super().__init__(f"reply to {client_id}: {why}")
        self.client_id = client_id
        self.code = code
