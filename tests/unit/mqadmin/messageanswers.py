"""A stored message, and the answers of a scripted server that sends it or takes new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

VECTORS = Path(__file__).parents[2] / "vectors" / "config"
REPLIES = json.loads((VECTORS / "replies.json").read_text())
RECORD = bytes.fromhex(REPLIES["queryMsgById"][0]["body_hex"])
OFFSET_ID = "7F00000100005E9C0000000000000340"
PULLED = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0"}


def sent_as(server: ScriptedServer, status: int) -> None:
    ext = {"msgId": OFFSET_ID, "queueId": "1", "queueOffset": "7"}
    server.says(RequestCode.SEND_MESSAGE_V2, ext=ext, status=status)


def two_queues(server: ScriptedServer) -> None:
    """Queue 0 has the stored message, queue 1 none."""
    ends = {"0": "1", "1": "0"}
    for code, bound in ((RequestCode.GET_MIN_OFFSET, None), (RequestCode.GET_MAX_OFFSET, ends)):
        server.answers[code] = lambda asked, bound=bound: asked.reply(
            0, None, {"offset": "0" if bound is None else bound[asked.ext["queueId"]]}
        )
    server.says(RequestCode.PULL_MESSAGE, RECORD, ext=PULLED)
