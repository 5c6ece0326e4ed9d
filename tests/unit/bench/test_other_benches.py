"""Parts of the benchmarks of catch-up and of a stopped master: a copying probe, and broker settings."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from broker.settings.broker import BrokerSettings
from mqruntime.properties import parse
from scripts.bench import sampledbroker
from scripts.bench.barecopy import PIECE_BYTES, copy

CONF = Path(__file__).parents[3] / "conf"


def test_the_catch_up_probe_copies_the_requested_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(random.Random(1).randbytes(3 * PIECE_BYTES + 1))
    measured = copy(source, 3 * PIECE_BYTES, tmp_path)
    assert measured.mb_per_second > 0
    assert list(tmp_path.iterdir()) == [source]  # the copy is gone


def test_a_broker_takes_the_low_latency_settings_without_a_warning() -> None:
    settings = parse((CONF / "low-latency.conf").read_bytes()).entries
    added = [f"{entry.key}={entry.value}" for entry in settings]
    broker = BrokerSettings.load(CONF / "cluster-3n" / "broker-n0.conf", added, strict=True)
    silence_ms, interval_ms = broker.controller_heart_beat_timeout_mills, broker.broker_heartbeat_interval
    assert silence_ms < 3000
    assert interval_ms * 4 <= silence_ms  # one or two lost heartbeats are allowed


def test_samples_report_the_code_of_a_broker_and_its_callers() -> None:
    def callee() -> None:
        sampledbroker.sample(0, sys._getframe())

    callee()
    callee()
    said = sampledbroker.report()
    sampledbroker.here.clear()
    sampledbroker.under_way.clear()
    assert f"{sampledbroker.HEADING}, 2 samples" in said
    here = "tests/unit/bench/test_other_benches.py test_samples_report_the_code_of_a_broker_and_its_callers"
    assert f"| 100.0% | 100.0% | {here}.<locals>.callee |" in said
