"""A slave that catches up gets a limited rate; a member of the set is not limited."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from epochfile.history import EpochHistory
from ha.frames import Handshake, encode_ack
from ha.master.link import Batch, MasterLink
from ha.master.pace import BURST_MS, FRAMES_A_SECOND, Pace
from mqruntime.core import NEVER_MS
from tests.unit.ha.hascene import Node, fill, in_step, played_by, turns, until
from tests.unit.ha.masterlinks import link_of


@given(
    st.integers(1, 1 << 20),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 300_000)), max_size=60),
)
def test_no_interval_exceeds_the_limit_plus_a_burst(limit: int, asks: list[tuple[int, int]]) -> None:
    pace, now_ms, went = Pace(lambda: limit), 0, []
    for after_ms, size in asks:
        now_ms += after_ms
        allowed = pace.allowed(size, now_ms)
        assert 0 <= allowed <= size
        assert (allowed == 0) == (pace.due_ms < NEVER_MS), "a refusal comes with the time to wait until"
        went.append((now_ms, allowed))
    burst = max(limit * BURST_MS / 1000, limit // FRAMES_A_SECOND, 1)
    for first, (begin_ms, _) in enumerate(went):
        total = 0
        for ms, allowed in went[first:]:
            total += allowed
            assert total <= limit * (ms - begin_ms) / 1000 + burst


@given(st.integers(1, 1 << 22), st.integers(1, 1 << 22))
def test_bytes_are_allowed_at_the_announced_time(limit: int, size: int) -> None:
    pace = Pace(lambda: limit)
    now_ms = 0
    for _ in range(20):
        if not pace.allowed(size, now_ms):
            assert pace.due_ms > now_ms
            now_ms = pace.due_ms
            assert pace.allowed(size, now_ms) > 0


def test_without_a_limit_everything_is_allowed() -> None:
    limits = [1000, None]
    pace = Pace(lambda: limits[-1])
    assert pace.allowed(1 << 22, 5) == 1 << 22
    limits.pop()
    assert pace.allowed(1 << 22, 5) < 1000, "a new limit counts at once"


@dataclass
class Master:
    log_end: int = 100_000
    history: EpochHistory = field(default_factory=lambda: EpochHistory([(1, 0)]))
    confirm_offset: int = 700
    log_min: int = 0
    broker_id: int = 1
    segment_size_bytes: int = 1_000_000


def sent(link: MasterLink, now_ms: int) -> list[int]:
    """Sizes of all frames that a tick and the socket's room allow now."""
    actions = list(link.tick(now_ms))
    while more := link.writable(now_ms):
        actions += more
    return [action.size for action in actions if isinstance(action, Batch)]


def test_a_limited_link_sends_slowly_and_keeps_its_heartbeats() -> None:
    link = link_of(Master(), 400, lambda: 10)
    link.receive(Handshake(2).encode() + encode_ack(0), 0)
    times = [0]
    sizes = sent(link, 0)
    while times[-1] < 12_000:
        times.append(link.next_tick_ms)
        link.receive(encode_ack(link.ack_offset), times[-1])
        sizes += sent(link, times[-1])
    assert 100 <= sum(sizes) <= 130
    assert max(sizes) <= 3
    assert len(times) < 200, "it sleeps between frames"
    slow = link_of(Master(), 400, lambda: 1, heartbeat_interval_ms=300)
    slow.receive(Handshake(2).encode() + encode_ack(0), 0)
    assert [sent(slow, at_ms) for at_ms in (0, 299, 300, 600, 900, 1000)] == [[], [], [0], [0], [0], [1]]


@played_by(1, 2, 3)
async def test_the_catch_up_limit_does_not_apply_to_members(a: Node, b: Node, c: Node) -> None:
    await in_step(a, b)
    a.catch_up_limit = 1
    fill(a, "live", 100)
    await until(lambda: a.ha.confirm_offset() == a.log.max_offset())
    assert b.log.max_offset() == a.log.max_offset()
    await c.follow(a, 1)
    await until(lambda: c.log.max_offset() > 0)
    await turns(50)
    assert c.log.max_offset() < 10 and a.ha.in_sync_count() == 2
    a.catch_up_limit = 100 * a.log.max_offset()
    fill(a, "more", 1)
    await until(lambda: a.ha.in_sync_count() == 3)
