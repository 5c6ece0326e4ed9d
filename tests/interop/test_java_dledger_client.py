"""Upstream's DLedgerClient on our group: it gets the entries that it appends, and transfers the
leadership."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dledger.raft.messages import ResultCode
from scripts.peers.javapeer import BROKER_JARS, QUICK_START, SOURCES, broker_missing, compiled, missing
from tests.unit.dledger.servedgroup import ServedGroup

LEADERS_MAX = 10
"""On a busy machine the group may change its leader; the client is then started with the new one."""

pytestmark = pytest.mark.skipif(missing() is not None or broker_missing() is not None, reason="no Java peer")


def test_upstreams_dledger_client_appends_gets_and_transfers_leadership(tmp_path: Path) -> None:
    classes = f"{BROKER_JARS}/*"
    peer = compiled([SOURCES / "dledger" / "DLedgerPeer.java"], BROKER_JARS)

    async def story() -> None:
        async with ServedGroup() as group:
            answers = {"transfer": str(int(ResultCode.NOT_LEADER))}
            for _ in range(LEADERS_MAX):
                if answers["transfer"] != str(int(ResultCode.NOT_LEADER)):
                    break
                leader = (await group.leader()).metadata
                target = next(name for name in group.peers if name != leader.self_id)
                peers = ";".join(f"{name}-{address}" for name, address in group.peers.items())
                java = await asyncio.create_subprocess_exec(
                    "java", "-Xmx128m", *QUICK_START, f"-Duser.home={tmp_path}", "-cp", f"{peer}:{classes}",
                    "DLedgerPeer", "g", peers, "from Java", leader.self_id, target, str(leader.term),
                    stdout=asyncio.subprocess.PIPE, cwd=tmp_path,
                )  # fmt: skip
                out, _ = await java.communicate()
                said = [line.partition(" ") for line in out.decode().splitlines()]
                answers = {name: rest for name, _, rest in said}
            code, index, position = answers["append"].split()
            assert (code, int(position) >= 48) == ("200", True), out
            assert answers["get"] == f"200 {index} from Java"
            assert answers["beyond"] == str(int(ResultCode.INDEX_OUT_OF_RANGE))
            assert answers["transfer"] == "200"
            assert (await group.leader()).metadata.self_id == target

    asyncio.run(story())
