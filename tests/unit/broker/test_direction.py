"""Where readers are sent, and results that a slave does not return to them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from broker.pulls.direction import MASTER_ID, Direction, PullRouting
from broker.tables.subscriptiongroups import SubscriptionGroups
from messagestore.messages import GetResult, GetStatus
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import ResponseCode
from tests.support.doubles import ManualClock

MEMORY = 1_000
FOUND = ResponseCode.SUCCESS


@dataclass
class ReadRole:
    is_slave: bool = False


@dataclass
class Keys:
    slave_read_enable: bool = True
    access_message_in_memory_max_ratio: int = 40


def answered(
    status: GetStatus,
    code: ResponseCode,
    *,
    at: int = 0,
    is_slave: bool = False,
    linked: bool = True,
    keys: Keys | None = None,
    memory_bytes: int = MEMORY,
    settled: bool = True,
) -> Direction:
    """The answer to a pull at queue offset 7 whose messages are at `at` of a log that ends at 10000."""
    groups = SubscriptionGroups(ManualClock(), auto_create=False, on_change=lambda: None)
    groups.put(SubscriptionGroupConfig("group", broker_id=0, which_broker_when_consume_slowly=1))
    direction = PullRouting(
        ReadRole(is_slave),
        keys or Keys(),
        groups,
        memory_bytes=memory_bytes,
        log_end=lambda: 10_000,
        master_is_there=lambda: linked,
        lists_former_epochs=lambda: settled,
    )
    found, passed = status is GetStatus.FOUND, status is GetStatus.NO_MATCHED_MESSAGE
    result = GetResult(status, 9, 0, 20, ranges=[(at, 100)] if found else [], looked_at=at if passed else -1)
    return direction.answer(code, "group", 7, result)


@pytest.mark.parametrize(("at", "broker_id"), [(9_600, 0), (9_599, 1)])
def test_a_master_sends_readers_of_data_below_its_memory_to_a_slave(at: int, broker_id: int) -> None:
    assert answered(GetStatus.FOUND, FOUND, at=at) == Direction(FOUND, 9, broker_id)


@pytest.mark.parametrize("changed", [{"keys": Keys(slave_read_enable=False)}, {"memory_bytes": 0}])
def test_no_reader_is_sent_to_a_slave_without_slave_reads_or_with_unknown_memory(changed: dict) -> None:  # type: ignore[type-arg]
    assert answered(GetStatus.FOUND, FOUND, **changed).broker_id == MASTER_ID


@pytest.mark.parametrize(("at", "broker_id"), [(9_700, 0), (9_699, 1)])
def test_a_slave_keeps_readers_of_old_data_and_sends_others_to_the_master(at: int, broker_id: int) -> None:
    assert answered(GetStatus.FOUND, FOUND, at=at, is_slave=True) == Direction(FOUND, 9, broker_id)


@pytest.mark.parametrize(("ratio", "broker_id"), [(15, 1), (10, 1), (60, 0)])
def test_a_slave_keeps_readers_by_a_memory_ratio_ten_points_below_the_masters(
    ratio: int, broker_id: int
) -> None:
    keys = Keys(access_message_in_memory_max_ratio=ratio)
    assert (
        answered(GetStatus.FOUND, FOUND, at=9_900 - 10 * 40, is_slave=True, keys=keys).broker_id == broker_id
    )


@pytest.mark.parametrize("is_slave", [False, True])
@pytest.mark.parametrize(("at", "broker_id"), [(9_900, 0), (100, 1)])
def test_unmatched_old_messages_send_a_reader_to_a_slave_too(is_slave: bool, at: int, broker_id: int) -> None:
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    found = answered(GetStatus.NO_MATCHED_MESSAGE, code, at=at, is_slave=is_slave)
    assert found == Direction(code, 9, broker_id)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (GetStatus.OFFSET_OVERFLOW_BADLY, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.OFFSET_TOO_SMALL, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.OFFSET_OVERFLOW_ONE, ResponseCode.PULL_NOT_FOUND),
    ],
)
def test_a_slave_never_moves_the_offset_of_a_reader(status: GetStatus, code: ResponseCode) -> None:
    """Its queues may begin or end at other offsets than the master's."""
    sent_home = Direction(ResponseCode.PULL_RETRY_IMMEDIATELY, 7, MASTER_ID)
    assert answered(status, code, is_slave=True) == sent_home
    assert answered(status, code, is_slave=True, linked=False) == Direction(
        ResponseCode.PULL_NOT_FOUND, 7, MASTER_ID
    )
    assert answered(status, code) == Direction(code, 9, MASTER_ID)


@pytest.mark.parametrize(
    "status",
    [GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE],
)
def test_a_new_master_moves_no_reader_back_before_former_epochs_are_confirmed(status: GetStatus) -> None:
    """Until a quorum confirms its entries of former epochs, its queues end before them."""
    moved = ResponseCode.PULL_OFFSET_MOVED
    waits = Direction(ResponseCode.PULL_NOT_FOUND, 7, MASTER_ID)
    assert answered(status, moved, settled=False) == waits
    assert answered(status, moved) == Direction(moved, 9, MASTER_ID)
    removed = GetStatus.OFFSET_TOO_SMALL
    assert answered(removed, moved, settled=False) == Direction(moved, 9, MASTER_ID)


def test_a_slave_returns_the_next_offset_behind_unmatched_messages() -> None:
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answered(GetStatus.NO_MATCHED_MESSAGE, code, at=9_900, is_slave=True) == Direction(
        code, 9, MASTER_ID
    )
