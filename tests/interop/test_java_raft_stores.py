"""The store of a Java broker in Raft mode, read after a kill: the acknowledged messages up to its committed
entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.peers.javapeer import broker_missing
from scripts.peers.javaserver import NO_SPIN
from tests.interop.javabroker import java_broker
from tests.support.realpair import RealPair, bodies
from tests.unit.sparkreplay.commandline import mqreplay
from tests.unit.sparkreplay.storerows import rows_of

pytestmark = [
    pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing())),
]

JAVA = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "broker-a",
    "dLegerSelfId": "n0",
    "brokerRole": "ASYNC_MASTER",
    "timerWheelEnable": "false",
    **NO_SPIN,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "flushDiskType": "ASYNC_FLUSH",
}


def stored(pair: RealPair) -> list[bytes]:
    """The messages, each once, although repeated sends may be stored twice. Empty before the ledger's first
    checkpoint, which is written within three seconds."""
    if not (pair.store(0) / "dledger-n0/checkpoint").exists():
        return []
    rows = [bytes(row["body"]) for row in rows_of(str(pair.store(0)), crc="true")]  # type: ignore[call-overload]
    return list(dict.fromkeys(rows))


def test_a_killed_java_raft_brokers_store_has_the_acknowledged_messages(tmp_path: Path) -> None:
    with RealPair(tmp_path / "pair", [java_broker], **JAVA) as pair:
        raft = {"dLegerPeers": f"n0-127.0.0.1:{int(pair.address(0).rpartition(':')[2]) + 5}"}
        pair.start(0, **raft)
        pair.create_topic(queues=1)
        first = [*bodies("small", 60), *bodies("large", 12, 3_000)]
        pair.send_until_acknowledged(*first)
        pair.wait_for(lambda: stored(pair) == first)
        second = bodies("late", 10)
        pair.send_until_acknowledged(*second)
        pair.kill("broker-0")
        found = stored(pair)
        assert found == [*first, *second][: len(found)] and len(found) >= len(first)
        pair.start(0, **raft)
        pair.wait_for(lambda: stored(pair) == [*first, *second])
        third = bodies("last", 20)
        pair.send_until_acknowledged(*third)
        pair.wait_for(lambda: stored(pair) == [*first, *second, *third])
        pair.kill("broker-0")
        assert stored(pair) == [*first, *second, *third]
        assert len(list((pair.store(0) / "dledger-n0/data").iterdir())) > 3
        verified = mqreplay("verify", str(pair.store(0)), "--workers", "1", "--json")
        assert (verified.code, verified.json["findings"]) == (0, [])
