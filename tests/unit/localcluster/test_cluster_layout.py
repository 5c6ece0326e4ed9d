"""Files and addresses of a local cluster."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from broker.settings.broker import BrokerSettings
from localcluster.layout import HOST_BEHIND_RELAY, Layout, LayoutError, Mode, escaped, ports_needed
from mqruntime.properties import parse

DIRECTORY = Path("/tmp/my clusters/run 1")
LAYOUT = Layout(DIRECTORY, 20_000)


def settings(name: str, layout: Layout = LAYOUT) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(layout.file(name).encode()).entries}


def test_every_process_has_a_name_and_an_address_of_its_own() -> None:
    assert LAYOUT.names[0] == "namesrv"
    assert LAYOUT.names[-1] == "broker-2"
    assert len({LAYOUT.address(name) for name in LAYOUT.names}) == 7
    assert all(LAYOUT.name_of(LAYOUT.address(name)) == name for name in LAYOUT.names)
    assert LAYOUT.name_of("127.0.0.1:1") is None


@pytest.mark.parametrize(("controllers", "brokers"), [(1, 1), (3, 3), (5, 7)])
def test_no_two_listeners_share_a_port(controllers: int, brokers: int) -> None:
    layout = Layout(DIRECTORY, 20_000, controllers, brokers)
    ports = [int(layout.address(name).rpartition(":")[2]) for name in layout.names]
    for name in layout.broker_names:
        listen = int(layout.properties(name)["listenPort"])
        ports += [listen - 2, int(layout.properties(name)["haListenPort"])]
    assert len(set(ports)) == len(ports)
    assert set(ports) <= set(layout.ports)
    assert len(layout.ports) == ports_needed(controllers, brokers)


@pytest.mark.parametrize("name", LAYOUT.names)
def test_a_properties_file_with_blanks_in_a_path_is_read_back(name: str) -> None:
    assert settings(name) == LAYOUT.properties(name)
    assert parse(LAYOUT.file(name).encode()).warnings == []


def test_tools_for_java_clusters_find_peers_ids_and_ports() -> None:
    controller, broker = LAYOUT.file("controller-1"), LAYOUT.file("broker-2")
    peers = re.search(r"controllerDLegerPeers=(\S+)", controller)
    own_id = re.search(r"controllerDLegerSelfId=(\S+)", controller)
    port = re.search(r"listenPort=(\d+)", broker)
    assert peers and own_id and port
    own = re.search(own_id.group(1) + r"-([\d.]+:\d+)", peers.group(1))
    assert own and own.group(1) == LAYOUT.address("controller-1")
    assert LAYOUT.address("broker-2").endswith(":" + port.group(1))
    environment = LAYOUT.environment()
    assert environment["namesrv"] == LAYOUT.namesrv
    assert environment["controllers"].split(";")[2] == LAYOUT.address("controller-2")


def test_contract_and_segment_size_are_in_the_brokers_files() -> None:
    broker = settings("broker-0")
    assert broker["allAckInSyncStateSet"] == "true"
    assert broker["minInSyncReplicas"] == "2"
    assert broker["mappedFileSizeCommitLog"] == str(64 * 1024 * 1024)
    assert settings("broker-0", Layout(DIRECTORY, 20_000, brokers=1))["minInSyncReplicas"] == "1"


def test_additional_settings_replace_the_defaults() -> None:
    layout = Layout(
        DIRECTORY,
        20_000,
        broker_settings={"minInSyncReplicas": "3"},
        controller_settings={"enableElectUncleanMaster": "true"},
    )
    assert settings("broker-1", layout)["minInSyncReplicas"] == "3"
    assert settings("controller-0", layout)["enableElectUncleanMaster"] == "true"


def test_a_layout_is_read_back_from_its_environment_file() -> None:
    text = json.dumps(LAYOUT.environment())
    assert Layout.from_environment(DIRECTORY, text) == LAYOUT
    with pytest.raises(LayoutError, match=r"env\.json"):
        Layout.from_environment(DIRECTORY, '{"namesrv": "elsewhere"}')


def test_an_impossible_layout_is_refused_with_the_reason() -> None:
    with pytest.raises(LayoutError, match="at least one"):
        Layout(DIRECTORY, 20_000, brokers=0)
    with pytest.raises(LayoutError, match="base port 65530"):
        Layout(DIRECTORY, 65_530)
    with pytest.raises(LayoutError, match="no process 'broker-3'"):
        LAYOUT.address("broker-3")


@pytest.mark.parametrize("value", ["plain", " leading", r"C:\data", "a=b:c#d"])
def test_values_are_escaped_no_more_than_needed(value: str) -> None:
    [entry] = parse(f"key={escaped(value)}\n".encode()).entries
    assert entry.value == value


@pytest.mark.parametrize("name", LAYOUT.names)
def test_behind_a_relay_only_the_listen_host_differs(name: str) -> None:
    behind = replace(LAYOUT, bind_host=HOST_BEHIND_RELAY)
    assert behind.properties(name) == {**LAYOUT.properties(name), "bindAddress": HOST_BEHIND_RELAY}
    again = Layout.from_environment(DIRECTORY, json.dumps(behind.environment()))
    assert again == behind


def test_every_port_of_a_process_is_known() -> None:
    ports = [port for name in LAYOUT.names for port in LAYOUT.ports_of(name)]
    assert len(set(ports)) == 1 + 3 + 3 * 3
    assert LAYOUT.ports_of("broker-1")[1:] == [
        int(settings("broker-1")["listenPort"]),
        int(settings("broker-1")["haListenPort"]),
    ]


def test_in_raft_mode_there_are_no_controllers_and_every_broker_is_a_member() -> None:
    layout = Layout(DIRECTORY, 20_000, controllers=0, mode=Mode.RAFT)
    assert layout.names == ["namesrv", "broker-0", "broker-1", "broker-2"]
    found = settings("broker-1", layout)
    assert "controllerAddr" not in found and found["dLegerSelfId"] == "n1"
    read = BrokerSettings(**found)  # type: ignore[arg-type]
    assert read.raft_group is not None and read.raft_group.peers == layout.members
    assert read.why_no_group() is None
    assert layout.member_address("broker-1") == layout.members["n1"]
    assert int(layout.members["n1"].rpartition(":")[2]) in layout.ports_of("broker-1")
    assert Layout.from_environment(DIRECTORY, json.dumps(layout.environment())) == layout
    with pytest.raises(LayoutError, match="no controllers"):
        Layout(DIRECTORY, 20_000, mode=Mode.RAFT)


def test_an_environment_without_a_mode_is_controller_mode() -> None:
    environment = LAYOUT.environment()
    del environment["layout"]["mode"]
    assert Layout.from_environment(DIRECTORY, json.dumps(environment)) == LAYOUT
