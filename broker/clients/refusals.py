"""Rejections of sends and pulls: the answers that the clients get.

Invariant: a rejected send was not stored."""

from __future__ import annotations

import re

from messagestore.messages import PutResult, PutStatus
from messagestore.systemtopics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
NO_READERS = "this broker serves no readers now"
NO_ROLE = "this broker has no role yet; its set has no master that it knows"
NOT_ENOUGH = "in-sync replicas not enough"
LITE_TOPICS = "lite topics"
TIMER_UNSUPPORTED = "timer messages are not supported yet"
NO_DELAY_LEVEL = "a delay level is an integer of 32 bits, from 1 on"
BATCH_DELAYED = "a batch can not be delayed"
BATCH_COMPRESSED = (
    "a batch that was compressed as a whole cannot be read; send fewer or smaller messages in one"
)
HALF_ALONE = "a message in a transaction can be no batch, and can not be delayed"
ENDS_BY_ITSELF = "a message can not begin or end a transaction by its flags alone"

PUT_ERRORS = {
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, "message, topic or batch outside the limits"),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, "properties exceed 32767 bytes"),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "the store takes no messages now: not master, disk full or stopped",
    ),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy",
    ),
}


def put_refusal(appended: PutResult) -> tuple[ResponseCode, str]:
    """Code and remark for a message that was not stored. If the size is the reason, the remark has the size and the limit."""
    assert appended.error is not None
    code, remark = PUT_ERRORS[appended.error]
    return code, appended.why or remark


TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
TOPIC_LENGTH_MAX = 127
OF_GROUP_LENGTH_MAX = 255
"""Limit of the name of a retry topic or a dead letter topic."""


class ClientRefused(Exception):
    """A send or pull is rejected with `code`, without any effect."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark

    def reply_to(self, command: RemotingCommand) -> RemotingCommand:
        return command.reply(self.code, self.remark)


def check_topic_name(name: str) -> None:
    """Raises ClientRefused if clients may not use this topic name."""
    if not name.strip():
        raise ClientRefused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    if not TOPIC_NAME.fullmatch(name):
        raise ClientRefused(
            ResponseCode.INVALID_PARAMETER,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    of_group = name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    if len(name) > (OF_GROUP_LENGTH_MAX if of_group else TOPIC_LENGTH_MAX):
        raise ClientRefused(
            ResponseCode.INVALID_PARAMETER, "The specified topic is longer than topic max length."
        )


def no_lite_topic(name: str) -> str:
    """The remark for readers of a lite topic, which is a part of another topic."""
    return f"liteTopic={name}: not built here: {LITE_TOPICS}"
