"""Messages of a resend that a broker would treat specially, or that cannot be sent unchanged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparkreplay.resend.errors import ResendFailed
from tests.unit.sparkreplay.resendtarget import Target, ids, job_of, run_of
from tests.unit.sparkreplay.storefolder import StoreFolder

VECTORS = Path(__file__).parents[2] / "vectors"


def test_committed_transactional_messages_are_resent_as_plain_ones(tmp_path: Path) -> None:
    """Those that a Java broker committed, and one of a topic that also has open and rolled back ones."""
    store = StoreFolder(tmp_path / "store", segment_bytes=1 << 20)
    store.log += (VECTORS / "broker/transactions-5.3.3.log").read_bytes()
    ended = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02TRAN_PREPARED_QUEUE_OFFSET\x017\x02UNIQ_KEY\x01K\x02"
    for kind, sys_flag in (("open", 4), ("ours", 8), ("rolled back", 12)):
        store.add(topic="Orders", body=kind.encode(), sys_flag=sys_flag, properties=ended)
    target = Target()
    asyncio.run(run_of(job_of(store.write(), tmp_path / "ledger", topic="Orders"), target).send_all())
    sent = [message for queue in sorted(target.stored) for message in target.stored[queue]]
    assert {message.body for message in sent} == {b"committed", b"checked", b"ours"}
    assert {message.sys_flag for message in sent} == {0}
    named = {name for message in sent for name in message.properties}
    assert named.isdisjoint({"TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "REAL_TOPIC", "REAL_QID"})


def test_properties_that_are_no_utf_8_are_not_resent_with_other_characters(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path / "store")
    store.add(properties="TAGS\x01T\x02UNIQ_KEY\x01K0\x02KEYS\x01caf\xe9 \ufffd\x02")
    at = store.add(properties="TAGS\x01T\x02UNIQ_KEY\x01K1\x02KEYS\x01xx\x02")
    store.log[store.log.index(b"xx", at)] = 0xFF
    target = Target()
    why = rf"broker-a orders/0: the message at physical offset {at}: its properties are not UTF-8"
    with pytest.raises(ResendFailed, match=why):
        asyncio.run(run_of(job_of(store.write(), tmp_path / "ledger"), target).send_all())
    assert "K1" not in ids(target).get(0, [])
