"""The deployment files name commands and settings that exist. They are not run here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from broker.settings.broker import BrokerSettings
from controller.settings import ControllerSettings
from mqruntime.settings import Settings
from namesrv.settings import NamesrvSettings

ROOT = Path(__file__).parents[3]
SETTINGS: dict[str, type[Settings]] = {
    "mqnamesrv": NamesrvSettings,
    "mqcontroller": ControllerSettings,
    "mqbroker": BrokerSettings,
}
JAVA_SAMPLE = """brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = -1
brokerRole = SLAVE
deleteWhen = 04
fileReservedTime = 48
enableControllerMode = true
controllerAddr = 127.0.0.1:9878
namesrvAddr = 127.0.0.1:9876
allAckInSyncStateSet=true
listenPort=30911
storePathRootDir=/data/node00
storePathCommitLog=/data/node00/commitlog
"""


def composed() -> list[tuple[str, list[str]]]:
    """(command, its settings) of each service of the compose file."""
    text = (ROOT / "deploy" / "compose.yaml").read_text()
    blocks = re.findall(r"    command:\n((?:      - .*\n)+)", text)
    services = [[line.removeprefix("      - ") for line in block.splitlines()] for block in blocks]
    return [(service[0], service[1:]) for service in services]


def test_each_service_of_the_compose_file_has_settings_that_load() -> None:
    services = composed()
    assert [command for command, _ in services] == ["mqnamesrv"] + ["mqcontroller"] * 3 + ["mqbroker"] * 3
    for command, overrides in services:
        settings = SETTINGS[command].load(None, overrides, strict=True)
        assert settings.listens_on is not None and settings.listens_on.startswith("172.28.9.")


@pytest.mark.parametrize("name", ["mqnamesrv", "mqcontroller", "mqbroker@"])
def test_each_unit_runs_a_command_of_the_wheel(name: str) -> None:
    text = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
    assert f"ExecStart=/opt/autoswitch-mq/bin/{name.rstrip('@')} -c " in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("name", ["mqnamesrv", "mqcontroller", "mqbroker@"])
def test_each_unit_gives_up_what_a_server_does_not_need(name: str) -> None:
    """The exposure is what `systemd-analyze security` computes; 10 is the worst."""
    unit = ROOT / "deploy" / "systemd" / f"{name}.service"
    shown = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True, check=False
    )
    level = re.search(r"exposure level for \S+ ([\d.]+)", shown.stdout)
    assert level is not None and float(level[1]) <= 3.0, shown.stdout[-2000:]


def test_the_image_takes_every_package_of_the_wheel() -> None:
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    packages = re.findall(r'"(\w+)\*"', (ROOT / "pyproject.toml").read_text())
    assert len(packages) > 10 and {f"!{package}" for package in packages} <= set(ignored)


def test_a_java_brokers_sample_loads_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "broker-n0.conf"
    file.write_text(JAVA_SAMPLE)
    settings = BrokerSettings.load(file)
    assert settings.warnings == []
    assert (settings.address, settings.ha_port) == ("127.0.0.1:30911", 30912)
