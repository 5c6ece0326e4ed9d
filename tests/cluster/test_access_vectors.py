"""What upstream's broker 5.3.3 answered to requests under access control, asked again of a broker here. The requests of mqadmin
keep upstream's signatures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remoting.client import RemotingClient
from remoting.codes import RequestCode as Code
from remoting.command import RemotingCommand
from remoting.frame import FrameReader
from remoting.headers.admin import CreateTopicHeader
from remoting.signing import Credentials, Signer
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, NAMESRV, Cluster

VECTORS = Path(__file__).parents[1] / "vectors" / "acl"
CHECKS: list[dict[str, Any]] = json.loads((VECTORS / "access-checks.json").read_text())
REQUESTS: list[dict[str, Any]] = json.loads((VECTORS / "access-requests.json").read_text())
ROOT = Credentials("rocketmq", "12345678")
CLIENT = "192.168.7.7"
"""Within 192.168.0.0/16, which alice's policies name together with upstream's 127.0.0.1."""
UNSET = "not set any response code"
"""Upstream's remark of a success that nobody set."""


class Answer(NamedTuple):
    code: int
    remark: str | None
    body: bytes | None


class Upstreams(Cluster):
    """A broker of its own, with upstream's administrator and topics."""

    def __init__(self, world: World) -> None:
        first = json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key})
        access = {
            "authenticationEnabled": True,
            "initAuthenticationUser": first,
            "innerClientAuthenticationCredentials": '{"accessKey":"servers","secretKey":"servers-secret"}',
        }
        super().__init__(
            world, 1, ports=access, credentials=ROOT, **access, authorizationEnabled=True, minInSyncReplicas=1
        )
        self._asker = world.node("asker", CLIENT)
        self.addresses: dict[str, str] = {}

    def start_up(self) -> None:
        super().start_up()
        self.addresses = {
            "127.0.0.1:26210": self.app(self.master).address,
            "127.0.0.1:26001": NAMESRV,
            "127.0.0.1:26100": f"{CONTROLLERS[0]}:9878",
        }
        for topic in ("orders-1", "invoices", "secret"):
            request = RemotingCommand.request(
                Code.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader(topic, "TBW102", 8, 8, 6)
            )
            Signer(ROOT).sign(request)
            assert self.answer(request).code == 0

    def answer(self, request: RemotingCommand, address: str = "127.0.0.1:26210") -> Answer:
        """Hosts as upstream had them."""

        replies: list[RemotingCommand] = []

        async def ask() -> None:
            client = RemotingClient(clock=SimulatedClock(self._asker))
            try:
                replies.append(await client.call(self.addresses[address], request, 5_000))
            finally:
                await client.close()

        async def ask_from_its_host() -> None:
            await self._asker.spawn(ask())

        self.world.run(ask_from_its_host())
        [reply] = replies
        remark = reply.remark.replace(CLIENT, "127.0.0.1") if reply.remark else None
        return Answer(reply.code, remark, bytes(reply.body) if reply.body else None)

    def answer_to_frame(self, row: dict[str, Any]) -> Answer:
        return self.answer(asked(row))

    def answer_to_check(self, row: dict[str, Any]) -> Answer:
        body = row["body"].encode() if row["body"] is not None else None
        request = RemotingCommand.request(row["code"], row["ext"], body)
        if row["user"] is not None:
            Signer(Credentials(row["user"], row["password"])).sign(request)
        return self.answer(request, row["address"])


class Differs(NamedTuple):
    """What is answered here, and why not as upstream does."""

    code: int
    remark: str | None
    why: str


def refused(user: str, resource: str, why: str) -> Differs:
    remark = f"User:{user} has no permission to access {resource} from 127.0.0.1, no matched policies."
    return Differs(16, remark, why)


NO_ROW = "upstream checks no right for this code; here each code needs one"
NOT_SERVED = "a code that is not served is refused like the others, before the sender learns that"
BY_NAME = "the topic of the message found counts; upstream checks the topic that the request names, if any"
ALL_PORTS = "name servers and controllers check requests, too"
CLUSTER = "Cluster:DefaultCluster"
DIFFERENT = {
    6: refused("alice", CLUSTER, NOT_SERVED),
    20: refused("alice", "Topic:orders-1", BY_NAME),
    24: refused("plain", "Topic:orders-1", NO_ROW),  # 361: LITE_PULL_MESSAGE
    **{row: refused("plain", CLUSTER, NO_ROW) for row in (25, 26, 27, 32, 33, 34, 41, 42)},
    28: refused("plain", "Topic:made-by-plain", NO_ROW),
    30: refused("plain", "Group:made-by-plain", NO_ROW),
    36: refused("plain", "Topic:orders-1", NO_ROW),  # 324: SEND_REPLY_MESSAGE
    38: refused("plain", "Group:g-1", NO_ROW),
    **{row: refused("plain", CLUSTER, NOT_SERVED) for row in (37, 39, 40)},
    45: refused("plain", "Topic:orders-1", BY_NAME),
    47: Differs(1, "Find prepared transaction message failed", "upstream fails with a NullPointerException"),
    51: Differs(
        16,
        "the header names user alice, the body carol",
        "upstream takes the body's subject, whatever the header names; here they must be equal",
    ),
    **{row: Differs(16, "username cannot be null.", ALL_PORTS) for row in (55, 56, 57)},
}
"""By row of access-checks.json."""


class Answers(NamedTuple):
    frames: list[Answer]
    checks: list[Answer]
    users_shown_to_carol: bytes | None


@pytest.fixture(scope="module")
def answers() -> Answers:
    """To all requests, in upstream's order."""
    with World(930) as world:
        broker = Upstreams(world)
        broker.start_up()
        frames = [broker.answer_to_frame(row) for row in REQUESTS]
        checks = [broker.answer_to_check(row) for row in CHECKS]
        carol = Credentials("carol", "carol-pass")
        request = RemotingCommand.request(Code.AUTH_LIST_USER)
        Signer(carol).sign(request)
        return Answers(frames, checks, broker.answer(request).body)


def asked(row: dict[str, Any]) -> RemotingCommand:
    [request] = FrameReader().receive(bytes.fromhex(row["requestHex"]))
    return request


def without_unset(remark: str | None) -> str | None:
    """A success has no remark here."""
    return None if remark == UNSET else remark


@pytest.mark.parametrize(
    "row", range(len(REQUESTS)), ids=[f"{number}-{asked(row).code}" for number, row in enumerate(REQUESTS)]
)
def test_mqadmins_requests_are_answered_as_by_upstream(answers: Answers, row: int) -> None:
    of = REQUESTS[row]
    body = of["replyBody"].encode() if of["replyBody"] is not None else None
    assert answers.frames[row] == (of["replyCode"], without_unset(of["replyRemark"]), body)


@pytest.mark.parametrize(
    "row",
    range(len(CHECKS)),
    ids=[f"{number}-{row['user']}-{row['code']}" for number, row in enumerate(CHECKS)],
)
def test_a_request_is_accepted_or_refused_as_by_upstream_or_as_listed(answers: Answers, row: int) -> None:
    of, answer = CHECKS[row], answers.checks[row]
    upstreams = of["replyCode"], without_unset(of["replyRemark"])
    found = answer.code, answer.remark
    if row in DIFFERENT:
        assert found == DIFFERENT[row][:2] != upstreams, DIFFERENT[row].why
    else:
        assert found == upstreams
        assert (answer.body is not None) == of["replyHasBody"]


def test_only_a_super_user_sees_passwords(answers: Answers) -> None:
    """Upstream shows them to everybody who may read the cluster."""
    shown = json.loads(answers.users_shown_to_carol or b"")
    assert [user["username"] for user in shown] == sorted(
        ["alice", "carol", "eve", "j\u00fcrgen\u9ad8", "off", "plain", "rocketmq", "root2"]
    )
    assert not any("password" in user for user in shown)
    assert shown[6] == {"userStatus": "enable", "userType": "Super", "username": "rocketmq"}
    listed = [
        answer.body for row, answer in zip(REQUESTS, answers.frames, strict=True) if asked(row).code == 3005
    ]
    assert b'"password":"12345678"' in (listed[0] or b"")
