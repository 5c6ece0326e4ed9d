"""Invalid values of settings are refused while a broker runs, too."""

from __future__ import annotations

import pytest

from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.send import SendMessageHeader
from simulation.kernel.world import World
from tests.cluster.groupset import GroupSet
from tests.cluster.pairset import Pair
from tests.cluster.served import Served

HALF = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K\x02"


def change(served: Served, line: bytes) -> tuple[int, str | None]:
    reply = served.ask(RequestCode.UPDATE_BROKER_CONFIG, None, line)
    return reply.code, reply.remark


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"defaultTopicQueueNums=65537", "Input should be less than or equal to 65536"),
        (b"fileReservedTime=99999999999999999999", "is no number of 64 bits"),
        (b"transactionTimeOut=2147483648", "Input should be less than or equal to 2147483647"),
        (b"transactionCheckInterval=2147483648", "Input should be less than or equal to 2147483647"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(served: Served, line: bytes, why: str) -> None:
    assert change(served, line) == (ResponseCode.SYSTEM_ERROR, f"{line.decode()}: {why}")


CONTROLLER_KEYS = [
    b"allowTruncationTo=800",
    b"brokerElectionPriority=3",
    b"brokerHeartbeatInterval=500",
    b"controllerHeartBeatTimeoutMills=20000",
    b"haFlowControlEnable=true",
    b"maxHaTransferByteInSecond=1048576",
    b"minInSyncReplicas=2",
    b"syncControllerMetadataPeriod=20000",
]


def answers(replies: list[RemotingCommand]) -> list[tuple[int, str | None]]:
    return [(reply.code, reply.remark) for reply in replies]


WHY = "counts under controllers only, this broker is in another mode"
REFUSED = [
    (ResponseCode.INVALID_PARAMETER, f"{line.decode().partition('=')[0]}: {WHY}") for line in CONTROLLER_KEYS
]
BOTH = b"longPollingEnable=false\nminInSyncReplicas=2"


def test_a_pair_refuses_changes_of_settings_that_only_controller_mode_reads(world: World) -> None:
    pair = Pair(world)
    pair.start_up()

    def asked(line: bytes) -> RemotingCommand:
        reply: RemotingCommand = pair.ask(pair.master, RequestCode.UPDATE_BROKER_CONFIG, None, line)
        return reply

    assert answers([asked(line) for line in CONTROLLER_KEYS]) == REFUSED
    assert answers([asked(BOTH)]) == [(ResponseCode.INVALID_PARAMETER, f"minInSyncReplicas: {WHY}")]
    settings = pair.app(pair.master).settings
    assert (settings.min_in_sync_replicas, settings.long_polling_enable) == (1, True)
    assert asked(b"longPollingEnable=false\nminInSyncReplicas=1").code == 0, "unchanged value"


def test_raft_mode_refuses_changes_of_settings_that_only_controller_mode_reads(world: World) -> None:
    group = GroupSet(world)
    group.start_up()

    def asked(line: bytes) -> RemotingCommand:
        address = group.app(group.master).address
        reply: RemotingCommand = group.run(group.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, line))
        return reply

    assert answers([asked(line) for line in CONTROLLER_KEYS]) == REFUSED
    assert asked(b"longPollingEnable=false").code == 0


def test_controller_mode_accepts_changes_of_its_own_settings(served: Served) -> None:
    assert [change(served, line)[0] for line in CONTROLLER_KEYS] == [0] * len(CONTROLLER_KEYS)


def test_a_half_message_is_tracked_under_the_longest_transaction_timeout(served: Served) -> None:
    assert change(served, b"transactionTimeOut=2147483647") == (0, None)
    header = SendMessageHeader("PG", "orders", "TBW102", 4, 1, 0, 0, 0, HALF)
    assert served.ask(RequestCode.SEND_MESSAGE, header, b"half").code == 0
    served.world.run_for_ms(1_000)
    assert served.master.requests.open_transactions == 1


def test_allow_truncation_to_can_be_set_and_cleared_again(served: Served) -> None:
    assert change(served, b"allowTruncationTo=4096") == (0, None)
    assert served.master.settings.allow_truncation_to == 4_096
    assert change(served, b"allowTruncationTo=") == (0, None)
    assert served.master.settings.allow_truncation_to is None
