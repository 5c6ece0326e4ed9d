"""The client for programs without asyncio: scripts, notebooks, Django, Celery.

    with Client("127.0.0.1:9876") as client:
        client.producer("shop").send("orders", b"order 7")
        with client.subscribe("orders", group="billing") as messages:
            for message in messages:
                print(message.body)

Names, arguments and errors are those of `mqclient`; each call returns when the coroutine of that name would.

Invariant: connections, heartbeats and reading ahead run in a thread of the client, so they go on while the program computes.
All objects may be used by several threads. Nothing survives a fork: make a client in the process that uses it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from mqclient import client as mqclient
from mqclient import groupconsumer, producer
from mqclient.admin import Admin, QueueRange
from mqclient.message import OutgoingMessage
from mqclient.producer import SendResult
from mqclient.received import ReceivedMessage
from mqclient.route import MessageQueue
from mqclient.selectors import Topics

T = TypeVar("T")
CLOSED = "the client is closed; make another one"


class ClientThread:
    """A thread with an event loop, which lives until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mqclient", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled if the caller is interrupted. Raises RuntimeError after `close`, after a
        fork, and in the thread itself."""
        if (why := self._why_not()) is not None:
            work.close()
            raise RuntimeError(why)
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def call(self, function: Callable[..., T], *arguments: Any, **how: Any) -> T:
        """The result of a function that must run in the thread. Raises as `run`."""

        async def called() -> T:
            return function(*arguments, **how)

        return self.run(called())

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the thread soon, without waiting for it."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _why_not(self) -> str | None:
        if os.getpid() != self._pid:
            return "this client was made before a fork, which its thread did not survive; make one in this process"
        if self._loop.is_closed():
            return CLOSED
        if threading.current_thread() is self._thread:
            return "this call would wait for itself; use mqclient's coroutines here"
        return None


class SyncProducer:
    """See mqclient.Producer."""

    def __init__(self, thread: ClientThread, own: producer.Producer) -> None:
        self._thread = thread
        self._own = own

    def send(self, topic: str, body: bytes, **how: Any) -> SendResult:
        return self._thread.run(self._own.send(topic, body, **how))

    def send_message(self, topic: str, message: OutgoingMessage, **how: Any) -> SendResult:
        return self._thread.run(self._own.send_message(topic, message, **how))

    def send_batch(self, topic: str, messages: Sequence[OutgoingMessage], **how: Any) -> SendResult:
        return self._thread.run(self._own.send_batch(topic, messages, **how))


class SyncGroupConsumer:
    """See mqclient.GroupConsumer."""

    def __init__(self, thread: ClientThread, own: groupconsumer.GroupConsumer) -> None:
        self._thread = thread
        self._own = own

    def __enter__(self) -> Self:
        self._thread.run(self._own.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._own.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while True:
            try:
                yield self._thread.run(self._own.__anext__())
            except StopAsyncIteration:
                return

    def take(self, *, timeout_s: float | None = None) -> ReceivedMessage | None:
        """The next message; None if none came within `timeout_s`."""
        return self._thread.run(self._taken(timeout_s))

    def take_batch(self, max_messages: int, *, wait_s: float = 1.0) -> list[ReceivedMessage]:
        return self._thread.run(self._own.take_batch(max_messages, wait_s=wait_s))

    def acknowledge(self, *messages: ReceivedMessage) -> None:
        self._thread.call(self._own.acknowledge, *messages)

    def hand_back(self, message: ReceivedMessage, **how: Any) -> None:
        self._thread.run(self._own.hand_back(message, **how))

    def run(self, handle: Callable[[ReceivedMessage], object], *, concurrency: int = 1) -> None:
        """Call `handle` for each message, in up to `concurrency` threads, until `stop`."""
        with ThreadPoolExecutor(max(concurrency, 1), thread_name_prefix="mqclient handler") as threads:

            async def handled(message: ReceivedMessage) -> None:
                await asyncio.get_running_loop().run_in_executor(threads, handle, message)

            self._thread.run(self._own.run(handled, concurrency=concurrency))

    def stop(self) -> None:
        """Take no more messages; also to be called by a signal's handler."""
        self._thread.post(self._own.stop)

    def pause(self, *queues: MessageQueue) -> None:
        self._thread.call(self._own.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        self._thread.call(self._own.resume, *queues)

    def commit(self) -> None:
        self._thread.run(self._own.commit())

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        return self._thread.call(lambda: self._own.assigned)

    async def _taken(self, timeout_s: float | None) -> ReceivedMessage | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._own.take()
        return None


class SyncAdmin:
    """See mqclient.Admin."""

    def __init__(self, thread: ClientThread, own: Admin) -> None:
        self._thread = thread
        self._own = own

    def topics(self) -> list[str]:
        return self._thread.run(self._own.topics())

    def create_topic(self, topic: str, **how: Any) -> None:
        self._thread.run(self._own.create_topic(topic, **how))

    def delete_topic(self, topic: str, **how: Any) -> None:
        self._thread.run(self._own.delete_topic(topic, **how))

    def describe_topic(self, topic: str) -> dict[MessageQueue, QueueRange]:
        return self._thread.run(self._own.describe_topic(topic))


class SyncClient:
    """See mqclient.Client."""

    def __init__(self, namesrv: str | Sequence[str], **how: Any) -> None:
        """Arguments and errors are those of mqclient.Client."""
        self._thread = ClientThread()
        try:
            self._own = self._thread.call(mqclient.Client, namesrv, **how)
        except BaseException:
            self._thread.close()
            raise

    def producer(self, group: str, **how: Any) -> SyncProducer:
        return SyncProducer(self._thread, self._thread.call(self._own.producer, group, **how))

    def admin(self) -> SyncAdmin:
        return SyncAdmin(self._thread, self._thread.call(self._own.admin))

    def subscribe(self, topics: Topics, *, group: str, **how: Any) -> SyncGroupConsumer:
        own = self._thread.call(self._own.subscribe, topics, group=group, **how)
        return SyncGroupConsumer(self._thread, own)

    def close(self) -> None:
        with suppress(RuntimeError):  # it is closed
            self._thread.run(self._own.close())
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Client, Producer, GroupConsumer = SyncClient, SyncProducer, SyncGroupConsumer
"""As in mqclient."""
