"""Bad requests are logged at a limited rate, so that a sender cannot fill the disk."""

from __future__ import annotations

import json
import logging

import pytest

from dledger.node.messagejson import MessageError
from dledger.node.transport import HOSTS_MAX, REASON_LENGTH_MAX, REMIND_MS, BadRequests
from dledger.raft.messages import MessageCode
from tests.support.doubles import ManualClock
from tests.unit.dledger.ledgergroup import played
from tests.unit.dledger.servedgroup import Clients, ServedGroup

LOGGER = logging.getLogger("test.badrequests")


def test_bad_requests_of_a_host_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    bad = BadRequests(LOGGER, clock)
    for second in range(120):
        clock.ms = 1_000 * second
        for port in range(50):
            bad.refused(f"10.0.0.7:{5_000 + port}", 50_001, ValueError("x" * 10_000))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    message = caplog.records[0].getMessage()
    assert message.startswith("peer=10.0.0.7:5000 request=50001 refused, logged once a minute: xxx")
    assert len(message) < REASON_LENGTH_MAX + 100
    bad.refused("10.0.0.8:5000", 50_001, ValueError("no JSON"))
    assert "10.0.0.8" in caplog.records[-1].getMessage()


def test_the_number_of_logged_hosts_has_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    bad = BadRequests(LOGGER, clock)
    for host in range(2 * HOSTS_MAX):
        bad.refused(f"10.1.{host // 256}.{host % 256}:9", 51_022, ValueError("no JSON"))
    assert len(caplog.records) == HOSTS_MAX
    clock.ms = REMIND_MS
    bad.refused("10.9.9.9:9", 51_022, ValueError("no JSON"))
    assert len(caplog.records) == HOSTS_MAX + 1


def test_both_services_log_bad_requests(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with ServedGroup(1) as group, Clients(group) as clients:
            leader = await group.leader()
            for _ in range(20):
                for code in (50_001, 50_000):
                    assert (await clients.raw(leader, code, "[]"))["code"] == 411

    played(story)
    logged = [record for record in caplog.records if "refused, logged once a minute" in record.getMessage()]
    assert sorted(record.name for record in logged) == ["dledger.node.memberservice", "dledger.service"]
    assert MessageError.__name__ not in logged[0].getMessage()


def test_unreadable_member_messages_are_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with ServedGroup(1) as group, Clients(group) as clients:
            leader = await group.leader()
            name = leader.metadata.self_id
            for number in range(150):
                for code in (MessageCode.VOTE, MessageCode.HEART_BEAT):
                    assert (await clients.raw(leader, code, f'{{"no {number}'))["code"] == 411
                    body = {"group": "g", "localId": "x" * 10_000, "remoteId": name, "leaderId": number}
                    assert (await clients.raw(leader, code, json.dumps(body)))["code"] == 411

    played(story)
    logged = [record for record in caplog.records if record.name == "dledger.node.transport"]
    assert len(logged) < 3
    assert sum(len(record.getMessage()) for record in logged) < 1_000
