"""VIEW_BROKER_STATS_DATA shows the traffic of the last minute, hour and day."""

from __future__ import annotations

from broker.metrics.recent import SAMPLE_MS, WINDOWS, RecentTotals
from broker.metrics.totals import Totals

CLUSTER = "C"


class Scene:
    """Totals that are sampled each second of a manual clock."""

    def __init__(self) -> None:
        self.totals = Totals(with_sizes=False)
        self.recent = RecentTotals(self.totals, CLUSTER)
        self.now_ms = 1_000_000
        self.topics = {"orders"}
        self.groups = {"CG"}

    def run(self, seconds: int, *, sends_each: int = 0) -> None:
        """Sends two messages of 100 bytes each, `sends_each` times a second."""
        for _ in range(seconds):
            self.now_ms += 1000
            for _ in range(sends_each):
                self.totals.plain_sends_stored({(b"orders", 200, 2): 1})
            self.recent.sample(self.now_ms, self.topics.__contains__, self.groups.__contains__)

    def sums(self, name: str = "TOPIC_PUT_NUMS", key: str = "orders") -> list[int]:
        found = self.recent.grown(name, key, self.now_ms)
        assert found is not None
        return [each.bytes if name.endswith("SIZE") else each.messages for each in found]


def test_statistics_without_traffic_do_not_exist() -> None:
    scene = Scene()
    scene.run(20)
    for name, key in (
        ("TOPIC_PUT_NUMS", "orders"),
        ("NO_SUCH_NUMS", "orders"),
        ("BROKER_PUT_NUMS", "elsewhere"),
    ):
        assert scene.recent.grown(name, key, scene.now_ms) is None
    assert scene.recent.per_second("TOPIC_PUT_NUMS", "orders", scene.now_ms) == 0.0


def test_a_first_send_counts_at_once() -> None:
    scene = Scene()
    scene.totals.plain_sends_stored({(b"orders", 200, 2): 3})
    assert scene.sums() == [6, 6, 6]
    assert scene.recent.per_second("TOPIC_PUT_NUMS", "orders", scene.now_ms) == 6 * 1000 / SAMPLE_MS


def test_steady_traffic_fills_each_window() -> None:
    scene = Scene()
    scene.run(2 * 3600, sends_each=1)
    minute, hour, day = scene.sums()
    assert abs(minute - 2 * 60) <= 2 * SAMPLE_MS // 1000
    assert abs(hour - 2 * 3600) <= 2 * WINDOWS[1].period_ms // 1000
    assert day == 2 * 2 * 3600
    assert abs(scene.recent.per_second("TOPIC_PUT_NUMS", "orders", scene.now_ms) - 2) < 0.4
    found = scene.recent.grown("TOPIC_PUT_NUMS", "orders", scene.now_ms)
    assert found is not None
    assert found[0].messages == 2 * found[0].calls


def test_ended_traffic_leaves_the_minute_window_first_and_then_the_hour_window() -> None:
    scene = Scene()
    scene.run(30, sends_each=1)
    scene.run(80)
    assert scene.sums() == [0, 60, 60]
    scene.run(
        (WINDOWS[1].span_ms + WINDOWS[1].period_ms) // 1000
    )  # the period of samples limits the precision
    assert scene.sums() == [0, 0, 60]
    scene.run(5, sends_each=1)
    assert scene.sums() == [10, 10, 70]


def test_the_samples_of_a_topic_are_bounded() -> None:
    scene = Scene()
    scene.run(7200, sends_each=1)
    histories = scene.recent._histories  # noqa: SLF001 (this test is about the kept samples)
    kept = [len(ring) for ring in histories["TOPIC_PUT", "orders"]._rings]  # noqa: SLF001
    assert max(kept) <= 8


def test_pulls_and_sent_back_messages_are_counted_by_topic_and_group() -> None:
    scene = Scene()
    scene.totals.pull_found("orders", "CG", 3, 300)
    scene.totals.message_sent_back("orders", "CG")
    scene.run(1)
    assert scene.sums("GROUP_GET_NUMS", "orders@CG") == [3, 3, 3]
    assert scene.sums("GROUP_GET_SIZE", "orders@CG") == [300, 300, 300]
    assert scene.sums("SNDBCK_PUT_NUMS", "orders@CG") == [1, 1, 1]
    assert scene.sums("BROKER_GET_NUMS", CLUSTER) == [3, 3, 3]


def test_a_deleted_topic_and_a_deleted_group_are_forgotten() -> None:
    scene = Scene()
    scene.totals.plain_sends_stored({(b"orders", 200, 2): 3})
    scene.totals.pull_found("orders", "CG", 3, 300)
    scene.run(20)
    scene.groups.clear()
    scene.run(20)
    assert scene.recent.grown("GROUP_GET_NUMS", "orders@CG", scene.now_ms) is None
    assert scene.sums() == [6, 6, 6]
    scene.topics.clear()
    scene.run(20)
    assert scene.recent.grown("TOPIC_PUT_NUMS", "orders", scene.now_ms) is None
    assert not scene.totals.stored
    assert scene.sums("BROKER_PUT_NUMS", CLUSTER) == [6, 6, 6], "the total of the broker"
