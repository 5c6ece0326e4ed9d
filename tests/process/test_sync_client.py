"""The client for programs without asyncio, against a broker in a process of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from localcluster.cluster import Cluster
from mqclient import GroupTaken, OutgoingMessage, ReceivedMessage, SendStatus
from mqclient.sync import Client

TOPIC, QUEUES = "orders", 4


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("sync") / "cluster"
    settings = {"minInSyncReplicas": "1", "messageDelayLevel": "1s 1s 1s"}
    with Cluster.create(directory, controllers=1, brokers=1, broker_settings=settings) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole())
        asyncio.run(cluster.create_topic(TOPIC, QUEUES))
        yield cluster.layout.namesrv


@pytest.fixture
def client(namesrv: str) -> Iterator[Client]:
    with Client(namesrv) as client:
        yield client


def test_a_loop_reads_what_was_sent_and_acknowledges_it(client: Client) -> None:
    producer = client.producer("shop")
    assert producer.send(TOPIC, b"0", patience_ms=10_000).status is SendStatus.SEND_OK
    producer.send_message(TOPIC, OutgoingMessage(b"1"))
    producer.send_batch(TOPIC, [OutgoingMessage(b"2"), OutgoingMessage(b"3")])
    got = []
    with client.subscribe(TOPIC, group="loop", start="first") as messages:
        for message in messages:
            got.append(message.body)
            if len(got) == 4:
                break
    assert sorted(got) == [b"0", b"1", b"2", b"3"]
    with client.subscribe(TOPIC, group="loop") as messages:
        assert messages.take(timeout_s=1.0) is None


def test_an_error_in_the_block_hands_the_message_back(client: Client) -> None:
    client.producer("shop").send(TOPIC, b"fails")
    with pytest.raises(ZeroDivisionError), client.subscribe(TOPIC, group="errors", start="first") as messages:
        for message in messages:
            if message.body == b"fails":
                raise ZeroDivisionError
    with client.subscribe(TOPIC, group="errors") as messages:
        while (again := messages.take_batch(1)[0]).body != b"fails":
            messages.acknowledge(again)
        messages.acknowledge(again)
        messages.commit()
    assert (again.attempt, again.topic, again.stored.topic) == (2, TOPIC, "%RETRY%errors")


def test_handlers_run_in_threads_until_one_stops_them(client: Client) -> None:
    producer = client.producer("shop")
    for number in range(20):
        producer.send(TOPIC, b"run-%d" % number)
    tries: Counter[bytes] = Counter()
    threads: set[str] = set()
    lock = threading.Lock()
    with client.subscribe(TOPIC, group="handlers", start="first") as messages:

        def handle(message: ReceivedMessage) -> None:
            with lock:
                tries[message.body] += 1
                threads.add(threading.current_thread().name)
                is_first = tries[message.body] == 1
            if message.body == b"run-7" and is_first:
                raise ValueError("once")
            with lock:
                if tries[b"run-7"] == 2 and sum(body.startswith(b"run-") for body in tries) == 20:
                    messages.stop()

        messages.run(handle, concurrency=4)
        assert len(messages.assigned) >= QUEUES
    assert 1 < len(threads) <= 4 and all(name.startswith("mqclient handler") for name in threads)


def test_queues_are_paused_and_messages_handed_back(client: Client) -> None:
    client.producer("shop").send(TOPIC, b"paused")
    with client.subscribe(TOPIC, group="pauses", start="first") as messages:
        messages.pause()
        assert messages.take(timeout_s=1.0) is None
        messages.resume()
        message = messages.take(timeout_s=30.0)
        assert message is not None
        messages.hand_back(message)
        with pytest.raises(GroupTaken):
            client.subscribe(TOPIC, group="pauses")


def test_a_client_that_is_closed_or_was_forked_says_so(namesrv: str) -> None:
    client = Client([namesrv])
    producer = client.producer("shop")
    child = os.fork()
    if not child:
        try:
            producer.send(TOPIC, b"never")
        except RuntimeError as error:
            os._exit(7 if "before a fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="is closed"):
        producer.send(TOPIC, b"never")
    with pytest.raises(TypeError, match="name servers are"):
        Client(5)  # type: ignore[arg-type]


def test_a_call_from_the_clients_own_thread_is_refused(client: Client) -> None:
    refusals: list[str] = []

    def call() -> None:
        try:
            client.producer("shop")
        except RuntimeError as error:
            refusals.append(str(error))

    client._thread.post(call)
    client._thread.call(lambda: None)
    assert refusals == ["this call would wait for itself; use mqclient's coroutines here"]


def test_topics_are_made_and_deleted(client: Client) -> None:
    admin = client.admin()
    admin.create_topic("made", queues=2)
    assert "made" in admin.topics()
    assert [len(queue) for queue in admin.describe_topic("made").values()] == [0, 0]
    admin.delete_topic("made")
    assert "made" not in admin.topics()
