"""Unsupported requests are answered with a code, and logged with the group of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.clients.unsupportedrequests import LOGGED_MAX, SHOWN_MAX, SMALL_BODY, UnsupportedRequests
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from simulation.kernel.world import World
from tests.cluster.served import Served
from tests.support.pullbench import pull
from tests.support.recordingpeer import RecordingPeer

IN_BODY = b'{"clientId":"c1","consumerGroup":"CG","messageModel":"CLUSTERING","strategyName":"AVG","topic":"orders"}'
POP_EXT = {"consumerGroup": "CG", "topic": "orders", "queueId": "0"}
NO_CODE_BUT_3 = [
    (RequestCode.SET_MESSAGE_REQUEST_MODE, {}, IN_BODY, "POP consumption"),
    (RequestCode.RECALL_MESSAGE, {"producerGroup": "CG", "topic": "orders"}, None, "timer messages"),
    (200_050, POP_EXT, None, "POP consumption"),
    (200_051, POP_EXT, None, "POP consumption"),
    (200_052, POP_EXT, None, "POP consumption"),
    (200_053, POP_EXT, None, "POP consumption"),
    (200_054, POP_EXT, None, "POP consumption"),
    (200_055, POP_EXT, None, "POP consumption"),
    (200_151, POP_EXT, None, "POP consumption"),
    (353, {"group": "CG", "topic": "orders"}, None, "groups that are forbidden to read a topic"),
]
"""Requests of 5.3.3 clients and the C++ library that a broker does not serve; 353 comes from tools."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Served]:
    with World(61) as world:
        yield Served(world)


def warnings(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object]]:
    """(sentence, group) of each logged warning."""
    return [
        (record.getMessage(), getattr(record, "fields", {}).get("group"))
        for record in caplog.records
        if record.name == "broker.unsupportedrequests"
    ]


@pytest.mark.parametrize(("code", "ext", "body", "feature"), NO_CODE_BUT_3)
def test_an_unsupported_request_is_answered_and_logged_once_with_its_group(
    broker: Served,
    caplog: pytest.LogCaptureFixture,
    code: int,
    ext: dict[str, str],
    body: bytes | None,
    feature: str,
) -> None:
    broker.master.requests.router.on_unserved = UnsupportedRequests().asked
    for _ in range(2):
        assert broker.ask(code, ext, body).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    [(sentence, group)] = warnings(caplog)
    assert sentence.startswith(f"unsupported request: {feature}")
    assert group == "CG"


def test_an_unsupported_one_way_request_is_logged_once(
    broker: Served, caplog: pytest.LogCaptureFixture
) -> None:
    broker.master.requests.router.on_unserved = UnsupportedRequests().asked

    async def send_one_way() -> RemotingCommand:
        async with broker.cluster.client() as client:
            for _ in range(2):
                pop = RemotingCommand.request(200_050, POP_EXT)
                await client.remoting.one_way(broker.master.address, pop)
            behind = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            return await client.remoting.call(broker.master.address, behind)

    assert broker.cluster.run(send_one_way()).code == ResponseCode.SUCCESS
    assert warnings(caplog) == [("unsupported request: POP consumption", "CG")]


def test_a_permanent_refusal_of_pulls_is_logged_once_per_reason(
    broker: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The application does not notice: the client logs the answer and pulls again."""
    ext = pull(consumerGroup="Stopped", queueId=1).ext
    group = SubscriptionGroupConfig("Stopped", consume_enable=False).encode()
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group).code == 0
    for _ in range(2):
        assert broker.ask(RequestCode.PULL_MESSAGE, ext).code == ResponseCode.NO_PERMISSION
    broker.master.settings.lite_pull_message_enable = False
    assert broker.ask(RequestCode.LITE_PULL_MESSAGE, ext).code == ResponseCode.NO_PERMISSION
    sentence = "pull rejected permanently: "
    assert warnings(caplog) == [
        (sentence + "subscription group no permission, Stopped", "Stopped"),
        (sentence + "lite pull is disabled on this broker", "Stopped"),
    ]


def test_a_temporary_refusal_of_pulls_is_not_logged(broker: Served, caplog: pytest.LogCaptureFixture) -> None:
    ext = pull(queueId=1, sysFlag=0).ext
    del ext["subscription"]
    assert broker.ask(RequestCode.PULL_MESSAGE, ext).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert broker.ask(RequestCode.PULL_MESSAGE, ext, slave=True).code == ResponseCode.SYSTEM_BUSY
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    "body", [None, b"", b"{", b"[1]", b'{"consumerGroup":7}', b" " * SMALL_BODY + IN_BODY]
)
def test_an_unsupported_request_without_a_group_is_logged_without_one(
    caplog: pytest.LogCaptureFixture, body: bytes | None
) -> None:
    UnsupportedRequests().asked(RecordingPeer(), RemotingCommand(RequestCode.QUERY_ASSIGNMENT, body=body))  # type: ignore[arg-type]
    [(_, group)] = warnings(caplog)
    assert group is None


def test_warnings_of_unsupported_requests_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    unserved, peer = UnsupportedRequests(), RecordingPeer()
    for number in range(LOGGED_MAX + 5):
        unserved.asked(peer, RemotingCommand(200_050, ext={"consumerGroup": f"CG{number}"}))  # type: ignore[arg-type]
    assert len(warnings(caplog)) == LOGGED_MAX


def test_of_a_long_text_in_a_rejected_pull_little_is_kept_and_logged(
    broker: Served, caplog: pytest.LogCaptureFixture
) -> None:
    unserved = UnsupportedRequests()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker.master.requests.pulls, "_unsupported", unserved)
        for number in range(5):
            ext = pull(queueId=1, expressionType=f"{number}" * 500_000).ext
            answer = broker.ask(RequestCode.PULL_MESSAGE, ext)
            assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
    kept = sum(len(text) for texts in unserved._logged for text in texts)
    assert len(unserved._logged) == 5 and kept < 5 * 3 * SHOWN_MAX
    assert all(len(event) < 2 * SHOWN_MAX for event, _ in warnings(caplog))
