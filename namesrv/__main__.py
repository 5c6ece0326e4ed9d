"""The command `mqnamesrv`: `mqnamesrv [-c FILE] [-p] [KEY=VALUE ...]`.

With `enableControllerInNamesrv=true` the process also runs a controller, with settings from the same file. The name server
starts first and ends last. If one of the two ends, the other ends too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mqruntime import serve
from mqruntime.collector import GcTuner
from mqruntime.runtime import Runtime
from mqruntime.settings import COMMAND_LINE, SettingsError
from mqruntime.together import AppGroup
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings

KEY = "enableControllerInNamesrv"


def store_root(settings: NamesrvSettings) -> Path:
    """The folder of the key-value file, the only stored data of a name server."""
    return settings.kv_config_path.parent


def planned(file: Path | None, overrides: list[str], *, strict: bool) -> serve.ServerPlan:
    """The plan of the process with the settings of `file`. Raises SettingsError."""
    if NamesrvSettings.load(file, overrides).enable_controller_in_namesrv:
        return with_controller(file, overrides, strict=strict)
    return serve.alone(NamesrvSettings.load(file, overrides, strict=strict), NamesrvApp, store_root)


def with_controller(file: Path | None, overrides: list[str], *, strict: bool) -> serve.ServerPlan:
    """The plan of a process with a name server and a controller. Raises SettingsError."""
    # imported only here, because a name server without a controller needs none of these modules
    from controller.adoption import store_root as controllers_root
    from controller.server import ControllerApp
    from controller.settings import ControllerSettings

    if file is None:
        why = "the controller's settings are read from the name server's file; name it with -c"
        raise SettingsError(KEY, "true", COMMAND_LINE, None, why)
    settings = NamesrvSettings.load(file, overrides, strict=strict, others=[ControllerSettings])
    inner = ControllerSettings.load(file, overrides, strict=strict, others=[NamesrvSettings])
    root = controllers_root(inner)
    share_folder(settings, root)
    GcTuner().start()  # as mqcontroller does

    def make_app(runtimes: Sequence[Runtime]) -> AppGroup:
        name_server = NamesrvApp(settings, runtimes[0], shown_elsewhere=True)
        return AppGroup(name_server, ControllerApp(inner, runtimes[1], shows_too=name_server.collectors))

    return serve.ServerPlan([settings, inner], [store_root(settings), root], make_app)


def share_folder(settings: NamesrvSettings, folder: Path) -> None:
    """Put the key-value file into `folder`, the controller's, unless the settings name a place for it. Upstream's samples run
    three such processes on one machine without this setting, and two name servers with one file would undo each other's
    changes."""
    if "kv_config_path" in settings.model_fields_set:
        return
    left = settings.kv_config_path
    settings.kv_config_path = folder / left.name
    if left.exists():
        settings.warnings.append(
            f"{left} is not read: the key-value file is {settings.kv_config_path} here; copy it there, or set kvConfigPath"
        )


def main() -> int:
    """Run a name server until a signal; returns the exit code."""
    return serve.main_of("mqnamesrv", planned)


if __name__ == "__main__":
    sys.exit(main())
