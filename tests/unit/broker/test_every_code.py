"""Each request code that upstream's broker 5.3.3 serves is served here, or refused with words: docs/mqadmin.md lists which."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.broker.served import Served

PAGE = Path(__file__).parents[3] / "docs" / "mqadmin.md"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (.+?) \|$", re.MULTILINE)
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


def test_no_code_of_upstreams_broker_falls_through_in_silence(served: Served) -> None:
    refused = {int(code): words for code, _, words in ROW.findall(PAGE.read_text())}
    assert refused.keys() <= set(UPSTREAMS)
    assert len(set(UPSTREAMS)) == 99
    told: dict[int, str] = {}
    router = served.master.requests.router
    for code in UPSTREAMS:
        if code not in router.handlers and code not in router.batch_handlers:
            reply = served.ask(code)
            begin = f" request type {code} not supported; not built here: "
            assert reply.code == 3 and (reply.remark or "").startswith(begin), reply
            told[code] = (reply.remark or "").removeprefix(begin)
    assert told == refused
