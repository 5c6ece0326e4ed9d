"""A client that costs little. It has one connection to a master, makes requests from templates, and reads only the code of an
answer.

Invariant: the given number of requests is under way until the time is over, and then all are answered. Each message has its
own unique key and time of birth, like a Java client's message, so that no server has an advantage from messages that it has
seen before."""

from __future__ import annotations

import asyncio
import hmac
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import cast

import orjson
import uvloop

from mqclient.message import OutgoingMessage, encode_batch, encode_properties
from mqclient.route import AUTO_CREATE_QUEUES, AUTO_CREATE_TOPIC
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import START, encode
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION, PullMessageHeader
from remoting.headers.send import SendMessageHeader
from remoting.signing import ACCESS_KEY, SIGNATURE, Credentials

UNIQUE_PREFIX, UNIQUE = "0A0102030A5C18B4AAC2", "X" * 12
FIRST_OPAQUE, BORN, QUEUE = (
    1_000_000_000,
    1_111_111_111_111,
    7,
)  # placeholders, as wide as the values
SUCCESS = b'"code":0,'
PULL_MAX = 32
UNANSWERED_S_MAX = 60.0
PLACEHOLDER = "S" * 28  # of a signature


@dataclass
class LoadOutcome:
    """The outcome of one load: the number of successful messages, the time, and each answer's ms if only one request was under
    way."""

    messages: int = 0
    refused: int = 0
    seconds: float = 0.0
    took_ms: list[float] = field(default_factory=list)
    last_refusal: str = ""


class Requests:
    """A kind of request, with `batch` messages each."""

    batch = 1

    def next(self, number: int, now_ms: int) -> bytes:
        """The frame of request `number`."""
        raise NotImplementedError

    def answered(self, header: bytes) -> int:
        """The number of messages for which an answer counts; negative for a rejection."""
        return self.batch if SUCCESS in header else -1


class Signature:
    """The signatures of requests that differ from a template in queue, time of birth and unique key."""

    def __init__(self, request: RemotingCommand, credentials: Credentials) -> None:
        """Add a placeholder for the signature to the template."""
        request.ext[ACCESS_KEY] = credentials.access_key
        places = {str(QUEUE): b"%(queue)d", str(BORN): b"%(born)d"}
        ordered = [value for _, value in sorted(request.ext.items())]
        signed = [places.get(value, value.encode().replace(b"%", b"%%")) for value in ordered]
        self._signed = b"".join(signed).replace(UNIQUE.encode(), b"%(unique)012X")
        self._keyed = hmac.new(credentials.secret_key.encode(), digestmod="sha1")
        request.ext[SIGNATURE] = PLACEHOLDER

    def of(self, values: Mapping[bytes, object], body: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(self._signed % values)
        keyed.update(body)
        return b64encode(keyed.digest())


class Sends(Requests):
    """Messages of `body_bytes`, alone or in batches, to `queues` in turn. With `credentials` single messages are signed."""

    def __init__(
        self,
        topic: str,
        queues: int,
        body_bytes: int,
        batch: int = 1,
        credentials: Credentials | None = None,
    ) -> None:
        if not 1 <= queues <= 10:
            raise SystemExit("one to ten queues: their numbers have one digit here")
        self.batch = batch
        self._queues = queues
        self._first_key = time.time_ns() // 10_000 % (1 << 47)  # above the last key of an earlier load
        letters = bytes(Random(1).choices(b"abcdefghijklmnopqrstuvwxyz", k=body_bytes))
        named = {"UNIQ_KEY": UNIQUE_PREFIX + UNIQUE, "WAIT": "true"}
        body = encode_batch([OutgoingMessage(letters, named)] * batch) if batch > 1 else letters
        header = SendMessageHeader(
            producer_group="bench",
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=AUTO_CREATE_QUEUES,
            queue_id=QUEUE,
            sys_flag=0,
            born_timestamp=BORN,
            flag=0,
            properties=encode_properties(named),  # a batch has a key, too, as from Java's producer
            reconsume_times=0,
            unit_mode=False,
            batch=batch > 1,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if batch > 1 else RequestCode.SEND_MESSAGE_V2
        request = RemotingCommand.request(code, header.to_short_ext(), body)
        request.opaque = FIRST_OPAQUE
        self._signature = None if credentials is None else Signature(request, credentials)
        head, content = (bytes(part).replace(b"%", b"%%") for part in encode(request))
        for value, place in (
            (b'"e":"%d"' % QUEUE, b'"e":"%(queue)d"'),
            (b"%d" % FIRST_OPAQUE, b"%(opaque)d"),
            (b"%d" % BORN, b"%(born)d"),
            *([(PLACEHOLDER.encode(), b"%(signature)s")] if self._signature is not None else []),
        ):
            assert head.count(value) == 1, value
            head = head.replace(value, place)
        self._head = head.replace(UNIQUE.encode(), b"%(unique)012X")
        self._content = content.replace(UNIQUE.encode(), b"%012X") if batch > 1 else letters

    def next(self, number: int, now_ms: int) -> bytes:
        key = self._first_key + number * (self.batch + 1)
        values: dict[bytes, object] = {
            b"opaque": FIRST_OPAQUE + number,
            b"queue": number % self._queues,
            b"born": now_ms,
            b"unique": key,
        }
        if self._signature is not None:
            values[b"signature"] = self._signature.of(values, self._content)
        head = self._head % values
        if self.batch == 1:
            return head + self._content
        return head + self._content % tuple(range(key + 1, key + 1 + self.batch))


class Pulls(Requests):
    """Pulls as many messages as a pull returns, each queue from its beginning to its end, again and again."""

    def __init__(self, topic: str, queues: int) -> None:
        self._topic = topic
        self._free = list(range(queues))
        self._offsets = [0] * queues
        self._asked: dict[int, int] = {}

    def next(self, number: int, now_ms: int) -> bytes:
        queue = self._free.pop()
        self._asked[FIRST_OPAQUE + number] = queue
        header = PullMessageHeader(
            consumer_group="bench",
            topic=self._topic,
            queue_id=queue,
            queue_offset=self._offsets[queue],
            max_msg_nums=PULL_MAX,
            sys_flag=SYS_FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
        )
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        request.opaque = FIRST_OPAQUE + number
        return b"".join(encode(request))

    def answered(self, header: bytes) -> int:
        said = orjson.loads(header)
        queue = self._asked.pop(said["opaque"])
        self._free.append(queue)
        if said["code"] != 0:
            at_end, self._offsets[queue] = self._offsets[queue] > 0, 0
            return 0 if at_end else -1
        before, self._offsets[queue] = self._offsets[queue], int(said["extFields"]["nextBeginOffset"])
        return self._offsets[queue] - before


class LightLoad(asyncio.Protocol):
    """Keeps `in_flight` requests under way for `seconds`. `ended` is done once all are answered."""

    def __init__(self, requests: Requests, in_flight: int, seconds: float) -> None:
        self.outcome = LoadOutcome()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._in_flight = in_flight
        self._seconds = seconds
        self._number = 0
        self._under_way = 0
        self._unread = b""
        self._began = self._asked_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._began = time.perf_counter()
        self._ask(self._in_flight)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data if self._unread else data
        at, end, answers = 0, len(data), 0
        outcome, requests = self.outcome, self._requests
        while end - at >= START.size:
            length, head_bytes = START.unpack_from(data, at)
            if end - at < 4 + length:
                break
            header = data[at + START.size : at + START.size + (head_bytes & 0xFFFFFF)]
            messages = requests.answered(header)
            if messages < 0:
                outcome.refused += 1
                outcome.last_refusal = header.decode(errors="replace")
            else:
                outcome.messages += messages
            at += 4 + length
            answers += 1
        self._unread = data[at:]
        if not answers:
            return
        self._under_way -= answers
        now = time.perf_counter()
        if self._in_flight == 1:
            outcome.took_ms.append((now - self._asked_at) * 1000)
        if now < self._began + self._seconds:
            self._ask(answers)
        elif not self._under_way:
            outcome.seconds = now - self._began
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        if self._under_way:
            self.ended.set_exception(SystemExit("the broker closed the connection under load"))
        else:
            self.ended.set_result(None)

    def _ask(self, count: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        first = self._number
        self._number += count
        self._under_way += count
        make = self._requests.next
        self._asked_at = time.perf_counter()
        self._transport.write(b"".join([make(number, now_ms) for number in range(first, first + count)]))


def load(address: str, requests: Requests, in_flight: int, seconds: float) -> LoadOutcome:
    """Load the server at `address` ("host:port"). Raises SystemExit if the server falls silent or rejects everything."""

    async def run() -> LoadOutcome:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(
            lambda: LightLoad(requests, in_flight, seconds), host, int(port)
        )
        try:
            async with asyncio.timeout(seconds + UNANSWERED_S_MAX):
                await client.ended
        except TimeoutError:
            raise SystemExit(f"{address} left requests unanswered for {UNANSWERED_S_MAX:g} s") from None
        return client.outcome

    outcome = uvloop.run(run())
    if not outcome.messages:
        raise SystemExit(f"{address} refuses all requests: {outcome.last_refusal}")
    return outcome
