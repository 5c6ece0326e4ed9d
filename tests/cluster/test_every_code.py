"""Each request code of upstream's broker 5.3.3 is served, or refused with a reason (docs/mqadmin.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.clients.unsupportedrequests import UnsupportedRequests
from remoting.codes import ResponseCode
from remoting.headers.admin import ConsumerGroupHeader
from simulation.kernel.world import World
from tests.cluster.served import Served

PAGE = Path(__file__).parents[2] / "docs" / "mqadmin.md"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (.+?) \|$", re.MULTILINE)
REFUSED = {int(code): words for code, _, words in ROW.findall(PAGE.read_text())}
UPSTREAMS = (
    # processors of BrokerController
    10, 11, 12, 14, 15, 33, 34, 35, 36, 37, 38, 46, 310, 320, 324, 325, 361, 370, 400, 401,
    200_050, 200_051, 200_052, 200_053, 200_054, 200_055, 200_151,
    # AdminBrokerProcessor
    17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 41, 42, 43, 45, 60, 61, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223,
    225, 300, 303, 305, 306, 307, 308, 309, 314, 315, 316, 317, 321, 323, 328, 329, 343, 345, 351, 352, 353, 354, 355,
    402, 513, 905, 906, 907, 908, 1007, 1008, 2001, 2002, 2003, 2004,
    3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010, 200_056,
)  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Served]:
    with World(62) as world:
        yield Served(world)


def test_the_mqadmin_page_lists_refused_codes_among_upstreams_99() -> None:
    assert len(set(UPSTREAMS)) == len(UPSTREAMS) == 99
    assert REFUSED.keys() < set(UPSTREAMS)


@pytest.mark.parametrize("code", UPSTREAMS)
def test_an_upstream_code_is_answered_or_refused_by_name_and_logged_once(
    broker: Served, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """The header misses required fields, so any answer will do."""
    broker.master.requests.router.on_unserved = UnsupportedRequests().asked
    replies = [broker.ask(code, ConsumerGroupHeader("CG")) for _ in range(2)]
    logged = [record for record in caplog.records if record.name == "broker.unsupportedrequests"]
    if code not in REFUSED:
        assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED not in [reply.code for reply in replies]
        assert logged == []
        return
    remark = f" request type {code} not supported; not built here: {REFUSED[code]}"
    assert [(reply.code, reply.remark) for reply in replies] == [(3, remark)] * 2
    [warned] = logged
    assert warned.getMessage() == f"unsupported request: {REFUSED[code]}"
    about = getattr(warned, "fields", {})
    assert (about["code"], about["group"]) == (code, "CG")
    assert about["client"].rpartition(":")[0]
