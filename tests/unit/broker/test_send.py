"""The send path against a scripted log and scripted replication."""

from __future__ import annotations

import random
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
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.errors import HeaderError
from tests.support.doubles import ManualClock
from tests.support.recordingpeer import RecordingPeer
from tests.unit.broker.sendbench import RECORD_BYTES, ScriptedLog, ScriptedReplication
from tests.unit.messagestore.storehelp import encode_batch


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
    """Contract A: a stored send is answered at once."""
    bench = Bench()
    bench.replication.acked_end = lambda: bench.log.end  # type: ignore[method-assign]
    return bench


def test_immediate_answers_keep_the_order_of_their_requests() -> None:
    """Under contract A no send waits, whether it asks to wait, asks not to wait or is refused."""
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


def test_a_send_that_waited_longer_is_answered_first() -> None:
    """As when the minimum was lowered or the set shrank, before the waiting sends were released."""
    bench = Bench()
    assert bench.send(send(1), send(2)) == []
    bench.replication.acked_end = lambda: bench.log.end  # type: ignore[method-assign]
    assert [reply.opaque for reply in bench.send(send(3, i="WAIT\x01false\x02"), send(4))] == [1, 2, 3, 4]


def test_an_acknowledgement_answers_exactly_the_covered_sends_on_every_connection() -> None:
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


def test_a_send_that_waits_too_long_gets_flush_slave_timeout() -> None:
    bench = Bench()
    bench.send(send())
    bench.pending.expire(2_999, 0)
    assert bench.peer.replies == []
    bench.pending.expire(3_000, 0)
    (reply,) = bench.peer.replies
    assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert reply.ext["queueOffset"] == "0", "clients read the whole header of code 12"


def test_a_send_that_only_waits_for_the_own_disk_gets_flush_disk_timeout() -> None:
    bench = Bench()
    bench.send(send(1), send(2))
    bench.pending.expire(3_000, RECORD_BYTES)
    assert [(reply.opaque, reply.code) for reply in bench.peer.replies] == [
        (1, ResponseCode.FLUSH_DISK_TIMEOUT),
        (2, ResponseCode.FLUSH_SLAVE_TIMEOUT),
    ]


def test_a_demotion_answers_all_waiting_sends_with_flush_slave_timeout() -> None:
    bench = Bench()
    bench.send(send(1), send(2))
    bench.pending.give_up()
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
    bench.pending.acknowledged(1 << 40)
    assert len(bench.peer.replies) == 2


def test_a_send_with_wait_false_is_answered_at_once() -> None:
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
def test_a_broker_that_may_not_store_refuses_sends_and_stores_nothing(
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
def test_a_send_refused_by_the_store_is_answered_with_its_code(error: PutStatus, code: int) -> None:
    bench = Bench()
    bench.log.error = error
    assert [reply.code for reply in bench.send(send())] == [code]


def test_an_unknown_topic_is_created_from_its_template_with_the_clients_queue_count() -> None:
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
    assert bench.log.batches[0][0].properties == b"", "the messages of the batch carry their own"


def test_a_batch_compressed_as_a_whole_is_refused_with_a_remedy() -> None:
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
    assert reply.ext["queueId"] == "1", "the client gets the queue that it chose"


@pytest.mark.parametrize("level", ["0", "-1", "-2147483647", "XDELAY"])
def test_a_message_without_a_positive_delay_level_is_stored_at_once(level: str) -> None:
    """Messages of dead letter topics have level -1."""
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
def test_an_invalid_delay_level_is_refused(level: str, more: str) -> None:
    """The sender wants a delay: stored at once the message would be delivered too early."""
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
def test_a_batch_with_delayed_timer_or_half_messages_is_refused(
    code: int, properties: str, remark: str
) -> None:
    bench = Bench()
    body = encode_batch([(0, b"plain", b""), (0, b"more", properties.encode())])
    command = send(m="true")
    command.code, command.body = code, body
    (reply,) = bench.send(command)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert (reply.remark or "").startswith(f"message 1 of the batch: {remark}")
    assert not bench.log.batches


def test_a_batch_that_only_mentions_delay_or_transaction_names_is_stored() -> None:
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


def test_long_and_short_header_names_are_equivalent() -> None:
    long_names = {
        "producerGroup": "PG", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "UNIQ_KEY\x01ID\x02",
    }  # fmt: skip
    short = read_send_request(RequestCode.SEND_MESSAGE_V2, send().ext)
    assert read_send_request(RequestCode.SEND_MESSAGE, long_names) == short


def test_a_send_without_a_topic_is_an_error_of_its_header() -> None:
    with pytest.raises(HeaderError, match="topic"):
        read_send_request(RequestCode.SEND_MESSAGE, {})


def test_a_send_without_a_reachable_slave_gets_slave_not_available_once_it_is_stored() -> None:
    bench = Bench()
    bench.replication.in_reach = False
    bench.send(send())
    assert bench.peer.replies == []
    bench.replication.stored = RECORD_BYTES
    bench.pending.acknowledged(0, lambda: RECORD_BYTES)
    assert [reply.code for reply in bench.peer.replies] == [ResponseCode.SLAVE_NOT_AVAILABLE]


def test_a_send_with_a_reachable_slave_waits_although_it_is_stored_here() -> None:
    bench = Bench()
    bench.send(send())
    bench.pending.acknowledged(0, lambda: RECORD_BYTES)
    assert bench.peer.replies == []


def test_a_half_message_is_stored_in_the_half_topic_and_reported() -> None:
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


def test_half_messages_are_refused_with_reject_transaction_message() -> None:
    bench = Bench()
    bench.settings.reject_transaction_message = True
    (reply,) = bench.send(send(1, i="TRAN_MSG\x01true\x02"))
    assert reply.code == ResponseCode.NO_PERMISSION
    assert bench.halves == []


def test_open_transactions_are_bounded() -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    bench.settings.transaction_open_max = 1
    half = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    assert [bench.send(send(number, i=half))[0].code for number in (1, 2)] == [0, ResponseCode.SYSTEM_BUSY]
    assert "transactionOpenMax" in (bench.peer.replies[-1].remark or "")
    assert bench.send(send(3))[0].code == 0
    assert len(bench.halves) == 1


def test_a_half_message_of_a_producer_group_with_an_overlong_name_is_refused() -> None:
    bench = Bench()
    (reply,) = bench.send(send(1, i=f"TRAN_MSG\x01true\x02PGROUP\x01{'G' * 256}\x02"))
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert bench.halves == []


def test_a_retried_message_of_a_committed_transaction_is_no_half_message() -> None:
    bench = Bench()
    bench.replication.acked = 1 << 40
    bench.topics.ensure("%RETRY%CG", 1)
    bench.send(send(1, b="%RETRY%CG", e="0", j="1", i="TRAN_MSG\x01true\x02DELAY\x014\x02"))
    assert bench.halves == []
