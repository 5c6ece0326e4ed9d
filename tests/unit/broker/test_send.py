"""The send path against a scripted log and scripted replication."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from broker.replication.pending import PendingSends
from broker.replication.writegate import WriteGate
from broker.sends.admission import SendAdmission
from broker.sends.processor import SendProcessor
from broker.sends.request import read_send_request
from broker.settings.transactions import TransactionSettings
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics, system_topics
from messagestore.messages import MessageToStore, PutResult, PutStatus
from messagestore.properties import parse_properties
from messagestore.record import pack_host
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.errors import HeaderError
from tests.unit.broker.recordingpeer import RecordingPeer
from tests.unit.doubles import ManualClock
from tests.unit.messagestore.storehelp import encode_batch

RECORD_BYTES = 100


class ScriptedLog:
    """Every message takes 100 bytes."""

    store_host = pack_host("10.0.0.1", 10911)

    def __init__(self) -> None:
        self.batches: list[list[MessageToStore]] = []
        self.end = 0
        self.error: PutStatus | None = None

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        self.batches.append(list(messages))
        return [self._append(message) for message in messages]

    def _append(self, message: MessageToStore) -> PutResult:
        if self.error is not None:
            return PutResult(-1, -1, -1, 0, -1, self.error)
        start, count = self.end, 2 if message.batch else 1
        self.end += RECORD_BYTES * count
        offsets = tuple(range(start, self.end, RECORD_BYTES)) if message.batch else ()
        return PutResult(start, self.end, start // RECORD_BYTES, count, 0, None, offsets)


class ScriptedReplication:
    def __init__(self) -> None:
        self.accepts_sends = True
        self.is_slave = False
        self.enough = True
        self.acked = 0
        self.stored = 0
        self.in_reach = True

    def enough_in_sync(self) -> bool:
        return self.enough

    def acked_end(self) -> int:
        return self.acked

    def stored_end(self) -> int:
        return self.stored

    def followed_end(self) -> int:
        return self.acked

    def reachable(self, end: int) -> bool:
        return self.in_reach


class Bench:
    """A send processor with everything around it scripted."""

    def __init__(self, waiting_max: int = 100) -> None:
        self.clock = ManualClock()
        self.log = ScriptedLog()
        self.replication = ScriptedReplication()
        self.pending = PendingSends(waiting_max)
        self.topics = Topics(
            self.clock,
            system_topics("DefaultCluster", "broker-a", auto_create=True, queue_nums=8),
            lambda: None,
        )
        self.topics.ensure("orders", 4)
        self.groups = SubscriptionGroups(self.clock, auto_create=False, on_change=lambda: None)
        self.groups.put(SubscriptionGroupConfig("CG", retry_max_times=2))
        self.peer = RecordingPeer()
        self.settings = TransactionSettings()
        self.halves: list[tuple[MessageToStore, PutResult]] = []
        self.processor = SendProcessor(
            log=self.log,
            admission=SendAdmission(
                log=self.log,
                topics=self.topics,
                groups=self.groups,
                clock=self.clock,
                random=random.Random(1),
                cluster_name="DefaultCluster",
                delay_levels=18,
                settings=self.settings,
                open_halves=lambda: len(self.halves),
            ),
            half_stored=lambda message, appended: self.halves.append((message, appended)),
            gate=WriteGate(self.replication, self.replication, self.pending, self.clock, wait_ms=3_000),
        )

    def send(self, *commands: RemotingCommand, peer: RecordingPeer | None = None) -> list[RemotingCommand]:
        target = peer or self.peer
        before = len(target.replies)
        self.processor.handle(cast(Any, target), list(commands))
        return target.replies[before:]


def send(opaque: int = 1, **fields: str) -> RemotingCommand:
    """A request of code 310 for topic orders, queue 1."""
    ext = {
        "a": "PG",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "UNIQ_KEY\x01ID\x02",
    }
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque, ext=ext | fields, body=b"body")


def test_a_send_is_answered_when_all_members_hold_it_and_not_before() -> None:
    bench = Bench()
    assert bench.send(send()) == []
    bench.pending.acknowledged(RECORD_BYTES - 1)
    assert bench.peer.replies == []
    bench.pending.acknowledged(RECORD_BYTES)
    (reply,) = bench.peer.replies
    assert reply.code == ResponseCode.SUCCESS
    assert reply.ext == {
        "msgId": "0A00000100002A9F0000000000000000",
        "queueId": "1",
        "queueOffset": "0",
        "transactionId": "ID",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_all_sends_of_one_receive_are_stored_by_one_append_and_answered_by_one_write() -> None:
    bench = Bench()
    bench.send(*(send(opaque) for opaque in range(5)))
    assert [len(batch) for batch in bench.log.batches] == [5]
    bench.pending.acknowledged(5 * RECORD_BYTES)
    assert [[reply.opaque for reply in write] for write in bench.peer.writes] == [[0, 1, 2, 3, 4]]


def contract_a() -> Bench:
    """What is stored is answered at once."""
    bench = Bench()
    bench.replication.acked_end = lambda: bench.log.end  # type: ignore[method-assign]
    return bench


def test_what_is_answered_at_once_is_answered_in_the_order_of_its_requests() -> None:
    """Whether they ask to wait, do not, or are refused: under contract A nothing has to wait."""
    bench = contract_a()
    one_way = send(4)
    one_way.flag |= ONEWAY_BIT
    replies = bench.send(
        send(1),
        send(2, i="WAIT\x01false\x02"),
        send(3, b="not a name"),
        one_way,
        send(5),
        send(6, e="x"),
        send(7),
    )
    assert [(reply.opaque, reply.code) for reply in replies] == [
        (1, 0), (2, 0), (3, ResponseCode.INVALID_PARAMETER), (5, 0), (6, ResponseCode.SYSTEM_ERROR), (7, 0),
    ]  # fmt: skip
    assert len(bench.pending) == 0


def test_who_waited_longer_is_answered_first_when_it_ends() -> None:
    """The minimum was lowered, or the set went down to its master, while a send waited; nobody has told of it yet."""
    bench = Bench()
    assert bench.send(send(1), send(2)) == []
    bench.replication.acked_end = lambda: bench.log.end  # type: ignore[method-assign]
    assert [reply.opaque for reply in bench.send(send(3, i="WAIT\x01false\x02"), send(4))] == [1, 2, 3, 4]


def test_an_acknowledgement_answers_exactly_what_it_covers_on_every_connection() -> None:
    bench, other = Bench(), RecordingPeer()
    bench.send(send(1), send(2))
    bench.send(send(3), peer=other)
    bench.pending.acknowledged(2 * RECORD_BYTES)
    assert ([reply.opaque for reply in bench.peer.replies], other.replies) == ([1, 2], [])
    bench.pending.acknowledged(3 * RECORD_BYTES)
    assert [reply.opaque for reply in other.replies] == [3]
    assert len(bench.pending) == 0


def test_a_master_that_is_its_whole_set_answers_at_once() -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    assert [reply.code for reply in bench.send(send())] == [ResponseCode.SUCCESS]


def test_a_send_that_waits_too_long_is_stored_with_an_unknown_fate() -> None:
    bench = Bench()
    bench.send(send())
    bench.pending.expire(2_999, 0)
    assert bench.peer.replies == []
    bench.pending.expire(3_000, 0)
    (reply,) = bench.peer.replies
    assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert reply.ext["queueOffset"] == "0", "clients read the whole header of code 12"


def test_where_only_the_own_disk_is_late_the_answer_says_so() -> None:
    bench = Bench()
    bench.send(send(1), send(2))
    bench.pending.expire(3_000, RECORD_BYTES)
    assert [(reply.opaque, reply.code) for reply in bench.peer.replies] == [
        (1, ResponseCode.FLUSH_DISK_TIMEOUT),
        (2, ResponseCode.FLUSH_SLAVE_TIMEOUT),
    ]


def test_a_demotion_answers_all_waiting_sends_with_an_unknown_fate() -> None:
    bench = Bench()
    bench.send(send(1), send(2))
    bench.pending.give_up()
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
    bench.pending.acknowledged(1 << 40)
    assert len(bench.peer.replies) == 2


def test_a_send_that_does_not_want_to_wait_is_answered_at_once() -> None:
    bench = Bench()
    (reply,) = bench.send(send(i="WAIT\x01false\x02"))
    assert reply.code == ResponseCode.SUCCESS
    assert len(bench.pending) == 0


def test_a_one_way_send_is_stored_and_never_answered() -> None:
    bench = Bench()
    command = send()
    command.flag |= ONEWAY_BIT
    assert bench.send(command) == []
    bench.pending.acknowledged(1 << 40)
    assert bench.peer.replies == []
    assert bench.log.end == RECORD_BYTES


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"accepts_sends": False, "is_slave": True}, ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]"),
        ({"accepts_sends": False}, ResponseCode.SERVICE_NOT_AVAILABLE, "no role"),
        ({"enough": False}, ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"),
    ],
)
def test_a_broker_that_may_not_store_says_so_and_stores_nothing(
    change: dict[str, bool], code: int, remark: str
) -> None:
    bench = Bench()
    vars(bench.replication).update(change)
    (reply,) = bench.send(send())
    assert (reply.code, remark in (reply.remark or "")) == (code, True)
    assert bench.log.batches == []


def test_sends_beyond_the_limit_of_waiting_ones_are_refused_before_they_are_stored() -> None:
    bench = Bench(waiting_max=2)
    bench.send(send(1), send(2))
    (reply,) = bench.send(send(3))
    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert bench.log.end == 2 * RECORD_BYTES


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"b": ""}, ResponseCode.INVALID_PARAMETER),
        ({"b": "or/ders"}, ResponseCode.INVALID_PARAMETER),
        ({"b": "x" * 128}, ResponseCode.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"b": "unknown", "c": "unknown-too"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"e": "4"}, ResponseCode.INVALID_PARAMETER),
        ({"e": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"g": str(1 << 63)}, ResponseCode.SYSTEM_ERROR),
        ({"b": "%RETRY%group", "m": "true", "e": "0"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"b": "%RETRY%unknown", "e": "0"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"b": "%RETRY%CG", "e": "0", "l": "many"}, ResponseCode.SYSTEM_ERROR),
        ({"i": "DELAY\x013\x02", "m": "true"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TIMER_DELAY_SEC\x013\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TRAN_MSG\x01true\x02DELAY\x013\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TRAN_MSG\x01TRUE\x02", "m": "true"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"f": "4"}, ResponseCode.NO_PERMISSION),
        ({"f": "8"}, ResponseCode.NO_PERMISSION),
    ],
)
def test_a_send_that_cannot_be_stored_is_refused_alone(fields: dict[str, str], code: int) -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    replies = {reply.opaque: reply.code for reply in bench.send(send(1), send(2, **fields), send(3))}
    assert replies == {1: 0, 2: code, 3: 0}
    assert bench.log.end == 2 * RECORD_BYTES


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PutStatus.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, ResponseCode.MESSAGE_ILLEGAL),
        (PutStatus.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (PutStatus.CREATE_MAPPED_FILE_FAILED, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_the_store_refuses_is_answered_with_its_code(error: PutStatus, code: int) -> None:
    bench = Bench()
    bench.log.error = error
    assert [reply.code for reply in bench.send(send())] == [code]


def test_an_unknown_topic_is_created_after_its_model_with_the_clients_queues() -> None:
    bench = Bench()
    bench.send(send(b="fresh", d="4"))
    topic = bench.topics.find("fresh")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)


def test_a_negative_queue_id_lets_the_broker_choose_a_write_queue() -> None:
    bench = Bench()
    bench.send(*(send(opaque, e="-1") for opaque in range(40)))
    assert {message.queue_id for message in bench.log.batches[0]} == {0, 1, 2, 3}


def test_stored_properties_end_with_the_brokers_own() -> None:
    bench = Bench()
    bench.send(send(i="TAGS\x01A"))
    properties = parse_properties(bench.log.batches[0][0].properties)
    unique = properties.pop("UNIQ_KEY")
    assert len(unique) == 32
    assert properties == {
        "TAGS": "A", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
    }  # fmt: skip


def test_a_batch_is_answered_with_the_ids_of_all_its_members() -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    (reply,) = bench.send(send(m="1"))
    assert reply.ext["msgId"].split(",") == [f"0A00000100002A9F{offset:016X}" for offset in (0, 100)]
    assert bench.log.batches[0][0].properties == b"", "the members carry their own"


def test_a_batch_that_was_compressed_as_a_whole_is_refused_with_what_to_do() -> None:
    bench = Bench()
    bench.log.error = PutStatus.MESSAGE_ILLEGAL
    (reply,) = bench.send(send(m="1", f="1"))
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "compressed as a whole" in (reply.remark or "")


@pytest.mark.parametrize(("level", "queue_id"), [("3", 2), ("18", 17), ("99", 17)])
def test_a_delayed_message_waits_in_the_queue_of_its_level(level: str, queue_id: int) -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    (reply,) = bench.send(send(i=f"KEYS\x01k\x02DELAY\x01{level}\x02"))
    (message,) = bench.log.batches[0]
    properties = parse_properties(message.properties)
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue_id)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["KEYS"]) == ("orders", "1", "k")
    assert properties["DELAY"] == str(queue_id + 1)
    assert reply.ext["queueId"] == "1", "the client hears of the queue it chose"


@pytest.mark.parametrize("level", ["0", "-1", "-2147483647", "XDELAY"])
def test_what_asks_for_no_delay_is_stored_at_once(level: str) -> None:
    """-1 is what messages of dead letter topics have."""
    bench = Bench()
    named = "XDELAY\x01soon\x02" if level == "XDELAY" else f"DELAY\x01{level}\x02"
    bench.send(send(i=named))
    assert bench.log.batches[0][0].topic == "orders"


@pytest.mark.parametrize("level", ["+3", "0003", "３"])
def test_a_delay_level_is_read_as_java_reads_integers(level: str) -> None:
    bench = Bench()
    bench.send(send(i=f"DELAY\x01{level}\x02"))
    (message,) = bench.log.batches[0]
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert parse_properties(message.properties)["DELAY"] == "3"


NO_LEVELS = ["4x", "1.0", " 3", "", "99999999999", "9" * 5_000, "soon", "-", "1_0", "2147483648"]
NO_LEVEL = "a delay level is an integer of 32 bits"


@pytest.mark.parametrize("level", NO_LEVELS)
@pytest.mark.parametrize("more", ["", "TRAN_MSG\x01true\x02"])
def test_what_is_no_delay_level_is_refused(level: str, more: str) -> None:
    """Its sender wants a delay; stored at once it would be delivered too early."""
    bench = Bench()
    (reply,) = bench.send(send(i=f"{more}KEYS\x01k\x02DELAY\x01{level}\x02"))
    assert (reply.code, (reply.remark or "")[: len(NO_LEVEL)]) == (ResponseCode.MESSAGE_ILLEGAL, NO_LEVEL)
    assert not bench.log.batches


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize(
    ("properties", "remark"),
    [(f"DELAY\x01{level}\x02", NO_LEVEL) for level in NO_LEVELS]
    + [
        ("KEYS\x01k\x02DELAY\x013\x02", "a batch can not be delayed"),
        ("DELAY\x013", "a batch can not be delayed"),
        ("TIMER_DELIVER_MS\x011\x02", "timer messages are not supported"),
        ("TIMER_DELAY_SEC\x01\x02", "timer messages are not supported"),
        ("KEYS\x01k\x02TRAN_MSG\x01True\x02", "a message in a transaction"),
    ],
)
def test_a_batch_whose_members_ask_for_more_is_refused(code: int, properties: str, remark: str) -> None:
    bench = Bench()
    body = encode_batch([(0, b"plain", b""), (0, b"more", properties.encode())])
    command = send(m="true")
    command.code, command.body = code, body
    (reply,) = bench.send(command)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert (reply.remark or "").startswith(f"message 1 of the batch: {remark}")
    assert not bench.log.batches


def test_a_batch_whose_members_only_name_such_things_is_stored() -> None:
    bench = Bench()
    body = encode_batch(
        [(0, b"DELAY\x013\x02", b"DELAY\x01-1\x02"), (0, b"", b"MY_DELAY\x01x\x02TRAN_MSG\x01false\x02")]
    )
    command = send(m="true")
    command.body = body
    bench.send(command)
    assert bench.log.batches[0][0].topic == "orders"


@pytest.mark.parametrize(
    ("times", "asked", "version", "topic"),
    [
        ("2", None, 479, "%RETRY%CG"),
        ("3", None, 479, "%DLQ%CG"),
        ("3", "5", 479, "%RETRY%CG"),
        ("3", "5", 63, "%DLQ%CG"),
        ("1", "0", 121, "%DLQ%CG"),
    ],
)
def test_a_message_tried_too_often_goes_to_its_groups_dead_letters(
    times: str, asked: str | None, version: int, topic: str
) -> None:
    bench = Bench()
    fields = {"b": "%RETRY%CG", "e": "0", "j": times} | ({"l": asked} if asked else {})
    command = send(**fields)
    command.version = version
    bench.send(command)
    (message,) = bench.log.batches[0]
    assert (message.topic, message.reconsume_times) == (topic, int(times))
    known = bench.topics.find(topic)
    assert known is not None
    assert (known.read_queue_nums, known.perm) == (1, 6)


def test_long_and_short_header_names_say_the_same() -> None:
    long_names = {
        "producerGroup": "PG", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "UNIQ_KEY\x01ID\x02",
    }  # fmt: skip
    short = read_send_request(RequestCode.SEND_MESSAGE_V2, send().ext)
    assert read_send_request(RequestCode.SEND_MESSAGE, long_names) == short


def test_a_send_without_a_topic_is_an_error_of_its_header() -> None:
    with pytest.raises(HeaderError, match="topic"):
        read_send_request(RequestCode.SEND_MESSAGE, {})


def test_a_send_that_no_slave_can_have_is_answered_so_once_it_is_stored_here() -> None:
    bench = Bench()
    bench.replication.in_reach = False
    bench.send(send())
    assert bench.peer.replies == []
    bench.replication.stored = RECORD_BYTES
    bench.pending.acknowledged(0, lambda: RECORD_BYTES)
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.SLAVE_NOT_AVAILABLE]


def test_what_a_slave_might_have_waits_for_it_though_it_is_stored_here() -> None:
    bench = Bench()
    bench.send(send())
    bench.pending.acknowledged(0, lambda: RECORD_BYTES)
    assert bench.peer.replies == []


def test_a_half_waits_in_a_topic_of_its_own_and_is_told() -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    (reply,) = bench.send(send(1, f="4", i="UNIQ_KEY\x01ID\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02"))
    ((message, appended),) = bench.halves
    assert (message.topic, message.queue_id, message.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    assert parse_properties(message.properties).items() >= {
        "REAL_TOPIC": "orders", "REAL_QID": "1", "__transactionId__": "ID", "PGROUP": "PG"
    }.items()  # fmt: skip
    assert (reply.code, reply.ext["queueId"], reply.ext["transactionId"]) == (0, "1", "ID")
    assert reply.ext["queueOffset"] == str(appended.queue_offset)


def test_halves_are_refused_where_they_are_not_wanted() -> None:
    bench = Bench()
    bench.settings.reject_transaction_message = True
    (reply,) = bench.send(send(1, i="TRAN_MSG\x01true\x02"))
    assert reply.code == ResponseCode.NO_PERMISSION
    assert bench.halves == []


def test_no_more_transactions_are_taken_than_may_be_open() -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    bench.settings.transaction_open_max = 1
    half = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    assert [bench.send(send(number, i=half))[0].code for number in (1, 2)] == [0, ResponseCode.SYSTEM_BUSY]
    assert "transactionOpenMax" in (bench.peer.replies[-1].remark or "")
    assert bench.send(send(3))[0].code == 0
    assert len(bench.halves) == 1


def test_a_half_of_a_group_that_no_producer_can_have_is_refused() -> None:
    bench = Bench()
    (reply,) = bench.send(send(1, i=f"TRAN_MSG\x01true\x02PGROUP\x01{'G' * 256}\x02"))
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert bench.halves == []


def test_a_committed_message_that_comes_back_for_a_retry_is_no_half() -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    bench.topics.ensure("%RETRY%CG", 1)
    bench.send(send(1, b="%RETRY%CG", e="0", j="1", i="TRAN_MSG\x01true\x02DELAY\x014\x02"))
    assert bench.halves == []
