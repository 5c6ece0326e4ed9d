"""The servers accept the files that docs/operations/three-machines.md shows, and the files fit together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.settings.broker import BrokerSettings
from controller.settings import ControllerSettings
from dledger.raft.membership import listed
from namesrv.settings import NamesrvSettings

PAGE = (Path(__file__).parents[3] / "docs" / "operations" / "three-machines.md").read_text()
FILES = dict(re.findall(r"```properties\n# (\S+\.conf)\n(.*?)```", PAGE, re.DOTALL))
MACHINES = ["10.0.0.11", "10.0.0.12", "10.0.0.13"]


def file_of(name: str, machine: str, folder: Path) -> Path:
    """The file of one machine: the line below each "this machine's" comment has its value."""
    number = MACHINES.index(machine)
    own = {"bindAddress": machine, "brokerIP1": machine, "controllerDLegerSelfId": f"n{number}"}
    text = re.sub(
        r"^# this machine's.*\n(\w+) = .*$", lambda row: f"{row[1]} = {own[row[1]]}", FILES[name], flags=re.M
    )
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("machine", MACHINES)
def test_each_machine_has_three_servers_that_know_each_other(machine: str, tmp_path: Path) -> None:
    namesrv = NamesrvSettings.load(file_of("namesrv.conf", machine, tmp_path), strict=True)
    controller = ControllerSettings.load(file_of("controller.conf", machine, tmp_path), strict=True)
    broker = BrokerSettings.load(file_of("broker-a.conf", machine, tmp_path), strict=True)
    assert f"{namesrv.listens_on}:{namesrv.listen_port}" in broker.name_servers
    peers = listed(controller.peer_list)
    assert sorted(peers.values()) == sorted(broker.controllers)
    assert peers[controller.self_id].startswith(f"{machine}:")
    assert broker.address == f"{machine}:10911"
    assert (broker.ha_port, broker.fast_port) == (10912, 10909)
    for port in (namesrv.listen_port, broker.listen_port, broker.ha_port, broker.fast_port, 9878, 5557):
        assert re.search(rf"^\| {port}\b", PAGE, re.MULTILINE), port
    for number, other in enumerate(MACHINES):
        assert broker.name_servers[number].startswith(f"{other}:")


def test_the_units_start_with_these_files() -> None:
    units = Path(__file__).parents[3] / "deploy" / "systemd"
    started = " ".join(path.read_text() for path in units.glob("*.service"))
    for name in FILES:
        assert f"/etc/autoswitch-mq/{name.replace('broker-a', 'broker-%i')}" in started
    assert "mqnamesrv mqcontroller mqbroker@a" in PAGE
