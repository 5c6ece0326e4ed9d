from __future__ import annotations

from pathlib import Path

import pytest

from controller.server import dledger_settings
from controller.settings import ControllerSettings
from mqruntime.settings import SettingsError

SAMPLE = """\
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878;n1-127.0.0.1:9868;n2-127.0.0.1:9858
controllerDLegerSelfId = n1
"""


def test_upstreams_sample_file_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "controller.conf"
    file.write_text(SAMPLE)
    settings = ControllerSettings.load(file)
    assert settings.warnings == []
    assert settings.peers == {"n0": "127.0.0.1:9878", "n1": "127.0.0.1:9868", "n2": "127.0.0.1:9858"}
    assert settings.listen_port == 9868
    assert settings.store_root == Path.home() / "DLedgerController" / "n1"


def test_a_java_properties_file_loads_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    file.write_text(
        SAMPLE + "isProcessReadEvent=false\nserverWorkerThreads=8\ncontrollerStorePath=/data/c1\n"
    )
    settings = ControllerSettings.load(file)
    assert settings.warnings == []
    assert settings.store_root == Path("/data/c1")


@pytest.mark.parametrize(
    "override",
    [
        "controllerDLegerSelfId=n9",
        "controllerDLegerPeers=n1",
        "controllerDLegerPeers=n1-127.0.0.1:0",
        "controllerDLegerPeers=n1-127.0.0.1:1;n1-127.0.0.1:2",
        "controllerDLegerPeers=n1-127.0.0.1:70000",
        "controllerDLegerPeers=n1-127.0.0.1:1;n2-127.0.0.1:1",
        "controllerType=jRaft",
        "mappedFileSize=10",
        "electionTimeoutMinMs=2000",
        "electionTimeoutMinMs=400",
        "heartBeatTimeIntervalMs=600",
    ],
)
def test_invalid_settings_are_rejected(tmp_path: Path, override: str) -> None:
    file = tmp_path / "controller.conf"
    file.write_text(SAMPLE)
    with pytest.raises(SettingsError):
        ControllerSettings.load(file, [override])


def test_the_timing_settings_are_read_together(tmp_path: Path) -> None:
    file = tmp_path / "controller.conf"
    times = "heartBeatTimeIntervalMs=2000\nelectionTimeoutMinMs=6000\nelectionTimeoutMaxMs=9000\n"
    file.write_text(SAMPLE + times)
    timing = ControllerSettings.load(file, strict=True).timing
    assert (timing.heartbeat_interval_ms, timing.push_timeout_ms) == (2000, 6000)
    assert (timing.election_timeout_min_ms, timing.election_timeout_max_ms) == (6000, 9000)


def test_a_black_list_always_includes_the_home(tmp_path: Path) -> None:
    file = tmp_path / "controller.conf"
    file.write_text(SAMPLE)
    settings = ControllerSettings.load(file, ["configBlackList=a; b"])
    assert settings.black_list == {"a", "b", "rocketmqHome"}


def test_index_files_have_the_size_that_a_java_controller_accepts(tmp_path: Path) -> None:
    """A Java member that ended before its first entry leaves none; upstream stops if one has another size."""
    file = tmp_path / "controller.conf"
    file.write_text(SAMPLE)
    for size in (4 << 20, 64 << 20, 1 << 30):
        settings = dledger_settings(ControllerSettings.load(file, [f"mappedFileSize={size}"]))
        assert settings.index_file_bytes == 5 * 1024 * 1024 * 32
    assert (
        dledger_settings(ControllerSettings.load(file, ["mappedFileSize=1048576"])).index_file_bytes < 1 << 20
    )
