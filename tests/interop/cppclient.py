"""The Apache C++ client (Python wheel `rocketmq`), driven by lines on stdin. Each line is answered with one
line of JSON on stdout. It is a separate program, because a crash of native code ends the process.

It signs with the credentials in the file that CPP_CLIENT_KEYS names, if any. This library has no TLS.

Each message has its number as key and a body derived from it, so a reader detects missing, repeated and
changed ones. Bodies contain no NUL, because this library cuts a body there.

    sync|async|oneway|batch TOPIC COUNT SIZE TAG   sends; {"acked", "failed"}
    delayed TOPIC LEVEL TAG                        sends one message with a delay level; as above
    reopen                                         ends producer and push consumer and starts them again, so
                                                   that they ask for routes at once and not after 30 s; {}
    stream TOPIC                                   sends one after the other until "finish"; answered at the
                                                   first acknowledged one
    await COUNT                                    waits until COUNT more of the stream are acknowledged;
                                                   {"acked", "failed"}
    finish                                         ends the stream; {"acked", "failed"}
    subscribe TOPIC GROUP EXPRESSION [FAILS]       starts a push consumer that fails each message FAILS
                                                   times; {}
    order TOPIC GROUP [FAILS]                      starts an orderly one that fails every REFUSED_EVERYth
                                                   message of each queue FAILS times; {}
    drained                                        ends the consumer when it has read all acknowledged
                                                   messages, or after 20 s; as pull
    pull TOPIC GROUP EXPRESSION                    reads all: {"read", "missing", "repeated", "changed",
                                                   "failed", "tags"}, and in order "disordered": messages
                                                   after a later one, and "overtaken": messages before a
                                                   pending redelivery"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage, SendResult, SendStatus
from rocketmq.exceptions import RocketMQException

WAIT_S = 300.0
SEND_TIMEOUT_MS = 10_000
BATCH = 16  # below 4 KiB with properties: this library deflates larger batches, which no broker reads
PERIOD_S = 0.002  # between the messages of a stream
AFTER_FAILURE_S = 0.05
PROPERTY = "number"
KEYS_VARIABLE, CHANNEL = "CPP_CLIENT_KEYS", "ALIYUN"
SUCCESS, RECONSUME_LATER = 0, 1
REFUSED_EVERY = 5
"""An orderly consumer waits a second after each rejected message."""


def sign(client: Producer | PushConsumer | PullConsumer) -> None:
    """Called before the client starts. The channel is part of no request."""
    if (path := os.environ.get(KEYS_VARIABLE)) is not None:
        with open(path) as file:
            keys = dict(line.strip().split("=", 1) for line in file)
        client.set_session_credentials(keys["AccessKey"], keys["SecretKey"], CHANNEL)


def body(number: int, size: int) -> bytes:
    """`size` bytes that are unique to message `number`."""
    text = f"{number}." * (size // 2 + 1)
    return text[:size].encode()


class Reading:
    """The messages that a reader saw; it first fails each `fails` times, or only some if orderly."""

    def __init__(self, fails: int = 0, *, in_order: bool = False) -> None:
        self._fails = fails
        self.in_order = in_order
        self.disordered = 0
        self._ends: Counter[int] = Counter()
        """Of each queue, behind the last message that was new."""
        self._places: set[tuple[int, int]] = set()
        self._refused: Counter[tuple[int, int]] = Counter()
        self._waits: dict[int, int] = {}
        """Of a queue, the offset of what was refused and did not come again yet."""
        self.overtaken = 0
        self.failed = 0
        self.seen: Counter[int] = Counter()
        self.tags: Counter[str] = Counter()
        self.changed = 0
        self.grown = threading.Condition()

    def take(self, message: RecvMessage) -> bool:
        """Whether the message was consumed."""
        with self.grown:
            place = queue, offset = message.queue_id, message.queue_offset
            self.overtaken += self._waits.pop(queue, offset) != offset
            if self._refuses(message, place):
                self.failed += 1
                return False
            number = int(message.keys)
            self.seen[number] += 1
            self.tags[message.tags.decode()] += 1
            if place not in self._places:
                self._places.add(place)
                self.disordered += offset < self._ends[queue]
                self._ends[queue] = offset + 1
            whole = message.body == body(number, len(message.body))
            self.changed += not (whole and message.get_property(PROPERTY) == message.keys)
            self.grown.notify_all()
            return True

    def _refuses(self, message: RecvMessage, place: tuple[int, int]) -> bool:
        """Orderly consumers count deliveries here, because the client does not report them."""
        if not self.in_order:
            return bool(message.reconsume_times < self._fails)
        queue, offset = place
        if offset % REFUSED_EVERY or self._refused[place] == self._fails:
            return False
        self._refused[place] += 1
        self._waits[queue] = offset
        return True

    def wait_for(self, numbers: set[int]) -> None:
        with self.grown:
            self.grown.wait_for(lambda: numbers <= self.seen.keys(), WAIT_S)

    def against(self, acked: set[int]) -> dict[str, Any]:
        """`acked`: the numbers that must have been read."""
        return {
            "read": sum(self.seen.values()),
            "failed": self.failed,
            "missing": len(acked - set(self.seen)),
            "repeated": sum(times - 1 for times in self.seen.values()),
            "changed": self.changed,
            "tags": dict(sorted(self.tags.items())),
            **({"disordered": self.disordered, "overtaken": self.overtaken} if self.in_order else {}),
        }


class CppClient:
    """One producer and at most one push consumer. Only one thread sends, because the library's route lookup
    is not thread-safe."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._numbers = itertools.count()
        self._acked: dict[str, dict[int, str]] = {}  # topic -> number -> tag
        self._stream: Stream | None = None
        self._subscription: tuple[str, str, str]  # topic, group, expression
        self._consumer: PushConsumer
        self._consumed: Reading
        self.producer = self._producer()

    def perform(self, words: list[str]) -> dict[str, Any]:
        match words:
            case [("sync" | "async" | "oneway" | "batch") as how, topic, count, size, tag]:
                sends: dict[str, Callable[..., int]] = {
                    "sync": self._sync, "async": self._async, "oneway": self._oneway, "batch": self._batch,
                }  # fmt: skip
                acked = sends[how](topic, int(count), int(size), tag)
                return {"acked": acked, "failed": int(count) - acked}
            case ["delayed", topic, level, tag]:
                number, message = self.message(topic, 100, tag)
                message.set_delay_time_level(int(level))
                acked = self.note(topic, tag, [number], self.producer.send_sync(message))
                return {"acked": acked, "failed": 1 - acked}
            case ["reopen"]:
                self.producer.shutdown()
                self._consumer.shutdown()
                self.producer = self._producer()
                self._consumer = self._push_consumer()
                return {}
            case ["stream", topic]:
                self._stream = Stream(self, topic)
                return self._stream.wait(acked=1)
            case ["await", count]:
                assert self._stream is not None
                return self._stream.wait(acked=int(count))
            case ["finish"]:
                assert self._stream is not None
                return self._stream.finish()
            case ["subscribe", topic, group, expression, *fails]:
                self._subscription = (topic, group, expression)
                self._consumed = Reading(int(fails[0]) if fails else 0)
                self._consumer = self._push_consumer()
                return {}
            case ["order", topic, group, *fails]:
                self._subscription = (topic, group, "*")
                self._consumed = Reading(int(fails[0]) if fails else 0, in_order=True)
                self._consumer = self._push_consumer()
                return {}
            case ["drained"]:
                wanted = self._numbers_of(self._subscription[0], self._subscription[2])
                self._consumed.wait_for(wanted)
                self._consumer.shutdown()
                return self._consumed.against(wanted)
            case ["pull", topic, group, expression]:
                return self._pull(topic, group, expression)
        raise ValueError(f"no such thing to do: {words}")

    def message(self, topic: str, size: int, tag: str) -> tuple[int, Message]:
        number = next(self._numbers)
        message = Message(topic)
        message.set_keys(str(number))
        message.set_tags(tag)
        message.set_property(PROPERTY, str(number))
        message.set_body(body(number, size))
        return number, message

    def note(self, topic: str, tag: str, numbers: list[int], result: SendResult) -> int:
        """The number of messages that the answer acknowledges."""
        if result.status != SendStatus.OK:
            return 0
        self._acked.setdefault(topic, {}).update(dict.fromkeys(numbers, tag))
        return len(numbers)

    def _producer(self) -> Producer:
        producer = Producer("InteropCpp", timeout=SEND_TIMEOUT_MS)
        producer.set_namesrv_addr(self._name_server)
        sign(producer)
        producer.start()
        return producer

    def _numbers_of(self, topic: str, expression: str) -> set[int]:
        tags = {tag.strip() for tag in expression.split("||")}
        acked = self._acked.get(topic, {})
        return {number for number, tag in acked.items() if expression == "*" or tag in tags}

    def _sync(self, topic: str, count: int, size: int, tag: str) -> int:
        acked = 0
        for _ in range(count):
            number, message = self.message(topic, size, tag)
            acked += self.note(topic, tag, [number], self.producer.send_sync(message))
        return acked

    def _async(self, topic: str, count: int, size: int, tag: str) -> int:
        answers: list[int] = []
        answered = threading.Semaphore(0)

        def done(acked: int) -> None:
            answers.append(acked)
            answered.release()

        for _ in range(count):
            number, message = self.message(topic, size, tag)
            self.producer.send_async(
                message,
                lambda result, number=number: done(self.note(topic, tag, [number], result)),
                lambda error: done(0),
            )
        for _ in range(count):
            if not answered.acquire(timeout=WAIT_S):
                break
        return sum(answers)

    def _oneway(self, topic: str, count: int, size: int, tag: str) -> int:
        """One-way sends count as acknowledged, because without a failure all arrive."""
        for _ in range(count):
            number, message = self.message(topic, size, tag)
            self.producer.send_oneway(message)
            self._acked.setdefault(topic, {})[number] = tag
        return count

    def _batch(self, topic: str, count: int, size: int, tag: str) -> int:
        acked = 0
        for first in range(0, count, BATCH):
            batch = [self.message(topic, size, tag) for _ in range(min(BATCH, count - first))]
            result = self.producer.send_batch([message for _, message in batch])
            acked += self.note(topic, tag, [number for number, _ in batch], result)
        return acked

    def _push_consumer(self) -> PushConsumer:
        topic, group, expression = self._subscription
        consumer = PushConsumer(group, orderly=self._consumed.in_order)
        consumer.set_namesrv_addr(self._name_server)
        sign(consumer)
        consumer.set_thread_count(2)
        consumer.subscribe(topic, self._consumed.take, expression)
        # the library's wrapper of this callback answers at random if the callback raises
        take = self._consumed.take
        consumer._register_callback(
            lambda _, message: SUCCESS if take(RecvMessage(message)) else RECONSUME_LATER
        )
        consumer.start()
        return consumer

    def _pull(self, topic: str, group: str, expression: str) -> dict[str, Any]:
        PullConsumer.offset_table = {}  # it is shared by the consumers of all groups
        consumer = PullConsumer(group)
        consumer.set_namesrv_addr(self._name_server)
        sign(consumer)
        consumer.start()
        reading = Reading()
        for message in consumer.pull(topic, expression):
            reading.take(message)
        consumer.shutdown()
        return reading.against(self._numbers_of(topic, expression))


class Stream(threading.Thread):
    """Sends one message after the other, each once with any outcome."""

    def __init__(self, client: CppClient, topic: str) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._topic = topic
        self._ending = threading.Event()
        self._changed = threading.Condition()
        self._acked = self._failed = 0
        self.start()

    def run(self) -> None:
        client = self._client
        while not self._ending.is_set():
            number, message = client.message(self._topic, 256, "Tag")
            try:
                acked = client.note(self._topic, "Tag", [number], client.producer.send_sync(message))
            except RocketMQException:
                acked = 0
            with self._changed:
                self._acked += acked
                self._failed += 1 - acked
                self._changed.notify_all()
            self._ending.wait(PERIOD_S if acked else AFTER_FAILURE_S)

    def wait(self, *, acked: int = 0) -> dict[str, Any]:
        with self._changed:
            enough = self._acked + acked
            self._changed.wait_for(lambda: self._acked >= enough, WAIT_S)
            return {"acked": self._acked, "failed": self._failed}

    def finish(self) -> dict[str, Any]:
        self._ending.set()
        self.join(WAIT_S)
        return self.wait()


def main() -> None:
    client = CppClient(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = client.perform(line.split())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
