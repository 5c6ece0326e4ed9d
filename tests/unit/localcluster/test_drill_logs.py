"""The timeline of a failover, read from logs."""

from __future__ import annotations

from localcluster.logs import marks, read_lines

CONTROLLER = """\
2026-11-21T13:24:02.000Z INFO controller.failover controller leads term=1 sets=1
2026-11-21T13:24:03.100Z INFO controller.failover broker connection ended broker=broker-a id=1
2026-11-21T13:24:03.120Z INFO controller.failover elected broker=broker-a reason="connection lost" new=2 epoch=4
Traceback (most recent call last):
"""
OLD_MASTER = """\
2026-11-21T13:20:00.000Z INFO broker.replicasmanager role taken role=master epoch=3 master=127.0.0.1:1
"""
NEW_MASTER = """\
2026-11-21T13:24:03.125Z INFO broker.replicasmanager role announced epoch=4 master=127.0.0.1:2
2026-11-21T13:24:03.160Z INFO broker.replicasmanager role taken role=master epoch=4 master=127.0.0.1:2
"""
OTHER_SLAVE = """\
2026-11-21T13:24:03.121Z INFO broker.replicasmanager role announced epoch=4 master=127.0.0.1:2
2026-11-21T13:24:03.122Z INFO broker.replicasmanager role taken role=slave epoch=4 master=127.0.0.1:2
"""
LOGS = {
    "controller-0": CONTROLLER,
    "broker-0": OLD_MASTER,
    "broker-1": NEW_MASTER,
    "broker-2": OTHER_SLAVE,
}


def all_lines() -> list:
    return [line for name, text in LOGS.items() for line in read_lines(name, text)]


def at(text: str) -> int:
    [line] = read_lines("x", f"2026-11-21T{text}Z INFO x y")
    return line.time_ms


def test_a_line_gives_its_time_its_logger_and_its_fields() -> None:
    line = read_lines("controller-0", CONTROLLER)[2]
    assert (line.level, line.logger) == ("INFO", "controller.failover")
    assert line.fields["reason"] == "connection lost"
    assert line.fields["epoch"] == "4"
    assert line.time_ms % 1000 == 120


def test_text_that_is_no_log_line_is_skipped() -> None:
    assert len(read_lines("controller-0", CONTROLLER)) == 3
    assert read_lines("x", "\n\nnoise 12:00\n") == []


def test_every_step_of_a_failover_is_found_in_the_log_of_its_server() -> None:
    fault_ms = at("13:24:03.090")
    found = {mark: moment - fault_ms for mark, moment in marks(all_lines(), fault_ms, old_epoch=3).items()}
    assert found == {"detected": 10, "elected": 30, "notified": 35, "writable": 70}


def test_a_paused_master_is_detected_by_its_silence() -> None:
    text = CONTROLLER.replace("broker connection ended broker", "broker silent cluster=c broker")
    assert marks(read_lines("controller-0", text), at("13:24:03.090"), old_epoch=3)["detected"] == at(
        "13:24:03.100"
    )


def test_lines_before_the_fault_or_of_an_old_epoch_are_no_steps() -> None:
    assert marks(all_lines(), at("13:24:04.000"), old_epoch=3) == {}
    assert set(marks(all_lines(), at("13:24:03.090"), old_epoch=4)) == {"detected"}


def test_in_raft_mode_the_brokers_logs_show_the_election() -> None:
    text = """\
2026-11-21T13:24:03.050Z INFO dledger.node.node role=LEADER term=3 leader=n0 self=n0
2026-11-21T13:24:03.110Z INFO dledger.node.node role=CANDIDATE term=3 leader=None self=n1
2026-11-21T13:24:03.140Z INFO dledger.node.node role=LEADER term=4 leader=n1 self=n1
2026-11-21T13:24:03.150Z INFO broker.replicasmanager role announced epoch=4 master=127.0.0.1:2
2026-11-21T13:24:03.160Z INFO broker.replicasmanager role taken role=master epoch=4 master=127.0.0.1:2
"""
    fault_ms = at("13:24:03.090")
    found = marks(read_lines("broker-1", text), fault_ms, old_epoch=3)
    assert {mark: moment - fault_ms for mark, moment in found.items()} == {
        "detected": 20, "elected": 50, "notified": 60, "writable": 70
    }  # fmt: skip
    assert marks(read_lines("controller-0", text), fault_ms, old_epoch=4) == {}
