"""One settings file for a name server with a controller inside: keys, folders, warnings; no server is
started."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.settings import ControllerSettings
from mqruntime import serve
from mqruntime.settings import SettingsError
from namesrv.__main__ import main, planned, share_folder
from namesrv.settings import NamesrvSettings

PLUGIN = """
#Namesrv config
listenPort = 9876
enableControllerInNamesrv = true

#controller config
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878;n1-127.0.0.1:9868;n2-127.0.0.1:9858
controllerDLegerSelfId = n0
"""
"""The settings of upstream's cluster-3n-namesrv-plugin."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def plan_of(folder: Path, text: str, *overrides: str, strict: bool = True) -> serve.ServerPlan:
    file = folder / "namesrv.conf"
    file.write_text(text)
    return planned(file, list(overrides), strict=strict)


def settings_of(plan: serve.ServerPlan) -> tuple[NamesrvSettings, ControllerSettings]:
    name_server, controller = plan.settings
    assert isinstance(name_server, NamesrvSettings) and isinstance(controller, ControllerSettings)
    return name_server, controller


def test_upstreams_keys_start_two_servers_with_one_store_folder(home: Path) -> None:
    plan = plan_of(home, PLUGIN)
    name_server, controller = settings_of(plan)
    assert (name_server.listen_port, controller.listen_port, controller.self_id) == (9876, 9878, "n0")
    assert plan.roots == [home / "DLedgerController" / "n0"] * 2
    assert name_server.kv_config_path == home / "DLedgerController" / "n0" / "kvConfig.json"
    assert plan_of(home, f"{PLUGIN}kvConfigPath={home}/kvConfig.json\n").warnings == []


def test_folders_in_the_file_are_used(home: Path) -> None:
    lines = PLUGIN + "kvConfigPath=~/kv/names.json\ncontrollerStorePath=/data/controller\n"
    plan = plan_of(home, lines)
    assert plan.roots == [home / "kv", Path("/data/controller")]
    plan = plan_of(home, PLUGIN, "controllerStorePath=/data/controller")
    assert plan.roots == [Path("/data/controller")] * 2


def test_a_former_key_value_file_causes_a_warning(tmp_path: Path) -> None:
    left = tmp_path / "namesrv" / "kvConfig.json"
    left.parent.mkdir()
    for present, warnings in ((False, 0), (True, 1)):
        if present:
            left.write_text("{}")
        settings = NamesrvSettings.model_construct(_fields_set=set(), kv_config_path=left)
        share_folder(settings, tmp_path / "n0")
        assert settings.kv_config_path == tmp_path / "n0" / "kvConfig.json"
        assert [f"{left} is not read" in warning for warning in settings.warnings] == [True] * warnings
    chosen = NamesrvSettings.load(None, [f"kvConfigPath={left}"])
    share_folder(chosen, tmp_path / "n0")
    assert chosen.kv_config_path == left and chosen.warnings == []


def test_common_keys_apply_to_both_servers_and_unknown_keys_warn_once(home: Path) -> None:
    lines = (
        PLUGIN
        + "scanNotActiveBrokerInterval=700\nbindAddress=0.0.0.0\norderMessageEnable=true\nnoSuchKey=1\n"
    )
    plan = plan_of(home, f"{lines}kvConfigPath=kv.json\n", strict=False)
    name_server, controller = settings_of(plan)
    assert name_server.scan_not_active_broker_interval_ms == 700
    assert controller.scan_not_active_broker_interval_ms == 700
    assert name_server.order_message_enable
    unknown, exposed = plan.warnings
    assert "noSuchKey: unknown setting" in unknown and exposed.startswith("listening on every address")
    with pytest.raises(SettingsError, match="noSuchKey=1: unknown setting"):
        plan_of(home, lines)


def test_a_name_server_alone_warns_of_controller_keys(home: Path) -> None:
    plan = plan_of(home, PLUGIN.replace("= true", "= false"), strict=False)
    assert [type(settings) for settings in plan.settings] == [NamesrvSettings]
    assert plan.roots == [NamesrvSettings.load(None).kv_config_path.parent]
    assert len(plan.warnings) == 3 and all("controllerDLeger" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ("controllerDLegerSelfId = n7", "controllerDLegerSelfId n7 is not among"),
        ("controllerDLegerSelfId =", "String should have at least 1 character"),
        ("listenPort = many", "valid integer"),
        ("supportActingMaster = true", "must be false"),
    ],
)
def test_a_value_that_is_invalid_for_either_server_is_rejected(home: Path, changed: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        plan_of(home, f"{PLUGIN}{changed}\n", strict=False)


def test_a_controller_in_the_name_server_requires_a_file(home: Path) -> None:
    with pytest.raises(SettingsError, match="enableControllerInNamesrv=true: .* name it with -c"):
        planned(None, ["enableControllerInNamesrv=true"], strict=False)


def test_settings_of_both_servers_are_printed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "namesrv.conf"
    file.write_text(PLUGIN)
    monkeypatch.setattr("sys.argv", ["mqnamesrv", "-p", "-c", str(file)])
    assert main() == 0
    first, _, second = capsys.readouterr().out.partition("\n\n")
    assert "enableControllerInNamesrv=true" in first.splitlines() and "kvConfigPath=" in first
    assert "controllerDLegerSelfId=n0" in second.splitlines()
