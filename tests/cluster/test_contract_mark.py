"""The mark that a store ran contract A: written before the first acknowledgement, removed with that log."""

from __future__ import annotations

import asyncio

import pytest

from broker.admin.configuration import CHANGEABLE
from broker.role.contractmark import KeptContractMark
from messagestore.contractmark import FILE, ContractMark, ContractMarkDamaged, decode
from remoting.codes import RequestCode
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.support.doubles import MemoryFiles


def start(files: MemoryFiles, *, contract_a: bool, log_min: int = 0, log_max: int = 0) -> ContractMark | None:
    return asyncio.run(
        KeptContractMark(files).keep(contract_a=contract_a, epoch=3, log_min=log_min, log_max=log_max)
    )


def test_a_store_that_never_ran_contract_a_has_no_mark() -> None:
    files = MemoryFiles()
    assert start(files, contract_a=False, log_max=900) is None
    assert files.content == {}


def test_the_first_start_under_contract_a_marks_its_begin_and_later_ones_keep_it() -> None:
    files = MemoryFiles()
    start(files, contract_a=True, log_max=900)
    assert files.content[FILE] == b"contract=A\nepoch=3\nfrom=900\n"
    start(files, contract_a=True, log_max=5000)
    assert (decode(files.content[FILE]), files.replaced) == (ContractMark(3, 900), 1)


def test_a_start_under_another_contract_adds_the_end_to_the_mark() -> None:
    files = MemoryFiles()
    start(files, contract_a=True, log_max=900)
    assert start(files, contract_a=False, log_max=5000) == ContractMark(3, 900, 5000)
    assert start(files, contract_a=False, log_max=7000) == ContractMark(3, 900, 5000)
    assert start(files, contract_a=True, log_max=8000) == ContractMark(3, 900)


def test_the_mark_is_removed_once_retention_removed_the_log_of_contract_a() -> None:
    files = MemoryFiles()
    start(files, contract_a=True, log_max=900)
    assert start(files, contract_a=True, log_min=900, log_max=5000) is not None
    assert start(files, contract_a=False, log_min=900, log_max=5000) is not None
    assert start(files, contract_a=False, log_min=4999, log_max=6000) is not None
    assert start(files, contract_a=False, log_min=5000, log_max=6000) is None
    assert files.content == {}


@pytest.mark.parametrize(
    "data", [b"", b"contract=B\nepoch=1\nfrom=2\n", b"contract=A\nepoch=1\n", b"\xff\x00"]
)
def test_a_mark_that_cannot_be_read_stops_the_start(data: bytes) -> None:
    with pytest.raises(ContractMarkDamaged, match="contractA: "):
        start(MemoryFiles({FILE: data}), contract_a=False)


def test_the_setting_that_makes_contract_a_cannot_change_while_the_broker_runs() -> None:
    assert "allAckInSyncStateSet" not in CHANGEABLE


@pytest.mark.parametrize("all_ack", [True, False])
def test_every_broker_of_a_set_under_contract_a_has_the_mark_before_it_accepts_a_send(all_ack: bool) -> None:
    with World(41) as world:
        cluster = Cluster(world, 2, allAckInSyncStateSet=all_ack)
        world.run_until(lambda: bool(cluster.masters), 10_000)
        marked = [FILE in cluster.run(node.runtime().files.names("")) for node in cluster.brokers]
        assert marked == [not all_ack] * 2
        cluster.start_up()
        reply = cluster.run(
            cluster.ask(cluster.app(cluster.master).address, RequestCode.GET_BROKER_RUNTIME_INFO)
        )
        assert (b'"ranContractA":"true"' in bytes(reply.body or b"")) is not all_ack
