"""Parts of the send benchmarks: valid frames, described differences of sides, targets that can be missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster.layout import Layout
from mqruntime.properties import parse
from remoting.codes import RequestCode
from remoting.frame import FrameReader
from remoting.headers.pull import PullMessageHeader
from remoting.headers.send import SendMessageHeader
from scripts.bench.bareloop import bare_server
from scripts.bench.lightclient import Pulls, Requests, Sends, load
from scripts.bench.send import BATCH, REACHES
from scripts.bench.sides import CONTRACTS, JAVA, SEGMENT_BYTES, SideLayout
from scripts.bench.tables import Reach, Table

SHIPPED = Path(__file__).parents[3] / "conf" / "cluster-3n" / "broker-n0.conf"
QUEUES = 3


@pytest.mark.parametrize("batch", [1, BATCH])
def test_a_server_decodes_the_frames_of_the_light_client(batch: int) -> None:
    sends = Sends("T", QUEUES, 100, batch)
    frames = b"".join(sends.next(number, 1_700_000_000_000 + number) for number in range(5))
    commands = FrameReader().receive(frames)
    headers = [SendMessageHeader.of(command) for command in commands]
    assert [header.queue_id for header in headers] == [0, 1, 2, 0, 1]
    assert [header.born_timestamp - 1_700_000_000_000 for header in headers] == [0, 1, 2, 3, 4]
    assert len({command.opaque for command in commands}) == 5
    keyed = b"".join(
        bytes(command.body or b"") + (header.properties or "").encode()
        for command, header in zip(commands, headers, strict=True)
    )
    keys = [part.partition(b"\x02")[0] for part in keyed.split(b"UNIQ_KEY\x01")[1:]]
    assert len(set(keys)) == len(keys) == 5 * (batch + (batch > 1))  # a batch has one of its own
    assert {header.batch for header in headers} == {batch > 1}


def test_bench_pulls_continue_at_the_next_offset_and_start_over_at_the_end() -> None:
    pulls = Pulls("T", 1)

    def asked(number: int) -> tuple[int, int]:
        (command,) = FrameReader().receive(pulls.next(number, 0))
        assert command.code == RequestCode.PULL_MESSAGE
        return command.opaque, PullMessageHeader.from_ext(command.ext).queue_offset

    opaque, offset = asked(0)
    assert offset == 0
    assert pulls.answered(b'{"code":0,"opaque":%d,"extFields":{"nextBeginOffset":"32"}}' % opaque) == 32
    opaque, offset = asked(1)
    assert offset == 32
    assert pulls.answered(b'{"code":19,"opaque":%d}' % opaque) == 0
    opaque, offset = asked(2)
    assert offset == 0
    assert pulls.answered(b'{"code":19,"opaque":%d}' % opaque) < 0  # the queue is empty


def test_every_request_of_a_load_is_answered_before_it_ends(tmp_path: Path) -> None:
    with bare_server(tmp_path) as (address, _):
        many = load(address, Sends("T", QUEUES, 100), 4, 0)
        assert (many.messages, many.refused) == (4, 0)
        assert len(load(address, Sends("T", QUEUES, 100), 1, 0).took_ms) == 1


def test_a_server_that_refuses_all_requests_ends_the_benchmark(tmp_path: Path) -> None:
    class Refused(Requests):
        def next(self, number: int, now_ms: int) -> bytes:
            return Sends("T", QUEUES, 100).next(number, now_ms)

        def answered(self, header: bytes) -> int:
            return -1

    with bare_server(tmp_path) as (address, _), pytest.raises(SystemExit, match="refuses all requests"):
        load(address, Refused(), 2, 0)


def test_the_measured_cluster_has_the_shipped_settings(tmp_path: Path) -> None:
    layout = SideLayout(tmp_path, 20_000, segment_bytes=SEGMENT_BYTES, broker_settings=CONTRACTS["C"])
    laid = layout.properties("broker-0")
    shipped = {entry.key: entry.value for entry in parse(SHIPPED.read_bytes()).entries}
    differ = {key for key, value in shipped.items() if laid.get(key) != value}
    assert differ == {"controllerAddr", "namesrvAddr", "listenPort", "storePathRootDir"}


def test_only_brokers_run_the_measured_implementation(tmp_path: Path) -> None:
    layout = SideLayout(tmp_path, 20_000, broker_module=JAVA)
    assert layout.module("broker-1") == JAVA
    assert layout.module("controller-0") == Layout(tmp_path, 20_000).module("controller-0") == "controller"


def test_a_reach_compares_both_sides_run_by_run() -> None:
    table = Table()
    row = "256 in flight, Java client, messages/s"
    for ours, java in ((100.0, 50.0), (110.0, 100.0)):
        table.note(row, "ours C", ours, 10.0)
        table.note(row, "Java A", java, 10.0)
    ((reach, values),) = table.reached("ours C", REACHES)
    assert values == [2.0, 1.1]
    assert (reach.met(1.3), reach.met(1.1)) == (True, False)
    assert Reach(row, most=3, of_probe=True).met(3.0)


def test_a_row_is_compared_with_another_row_of_the_same_side_run_by_run() -> None:
    table = Table()
    for ordered, concurrent in ((80.0, 100.0), (50.0, 100.0), (90.0, 100.0)):
        table.note("in order", "ours", ordered)
        table.note("concurrent", "ours", concurrent)
        table.note("in order", "theirs", 1.0)
    reach = Reach("in order", least=0.8, beside_row="concurrent")
    assert [*table.reached("ours", [reach])] == [(reach, [0.8, 0.5, 0.9])]
    assert str(reach) == "≥ 0.8 × concurrent"
